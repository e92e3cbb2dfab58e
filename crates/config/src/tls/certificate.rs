//! What is read of a certificate: its expiry, and its name.
//!
//! Whether a certificate is valid is rustls's decision. Its fields are passed over one by one, so that those not needed
//! here may be anything. x509-cert's types refuse whole certificates for times before 1970, and for serial numbers and
//! object identifiers that are longer than usual.

use std::iter;

use jiff::civil::DateTime;
use rustls::pki_types::CertificateDer;
use x509_cert::der::{AnyRef, Reader as _, SliceReader, Tag, TagNumber, Tagged as _};

/// The version, which certificates of version 1 leave out (RFC 5280 section 4.1).
const VERSION: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber::N0,
};

/// The extensions (RFC 5280 section 4.1).
const EXTENSIONS: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber::N3,
};

/// `id-ce-subjectAltName`, 2.5.29.17 (RFC 5280 section 4.2.1.6), as encoded.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// A DNS name among the alternative names (RFC 5280 section 4.2.1.6).
const DNS_NAME: Tag = Tag::ContextSpecific {
    constructed: false,
    number: TagNumber::N2,
};

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// When a certificate expires, in seconds since 1970.
pub fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    // After the serial number, the algorithm and the issuer.
    let validity = fields(certificate)?.nth(3)?;
    let time = elements(validity.value()).nth(1)?;
    let digits = str::from_utf8(time.value()).ok()?;
    // RFC 5280 section 4.1.2.5.1: years of two digits are those from 1950 to 2049.
    let century = match time.tag() {
        Tag::UtcTime if digits < "50" => "20",
        Tag::UtcTime => "19",
        Tag::GeneralizedTime => "",
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", format!("{century}{digits}")).ok()?;
    Some(time.duration_since(EPOCH).as_secs())
}

/// The first DNS name in a certificate that is not a wildcard.
pub(super) fn name(certificate: &CertificateDer<'_>) -> Option<String> {
    let extensions = fields(certificate)?.find(|field| field.tag() == EXTENSIONS)?;
    let extensions = elements(extensions.value()).next()?;
    let names = elements(extensions.value()).find_map(|extension| {
        let mut parts = elements(extension.value());
        let found = parts.next()?.value() == SUBJECT_ALT_NAME;
        // Between the two may stand whether the extension is critical.
        parts.last().filter(|_| found)
    })?;
    let names = elements(names.value()).next()?;
    let mut names = elements(names.value()).filter(|name| name.tag() == DNS_NAME);
    names.find_map(|name| {
        let name = str::from_utf8(name.value()).ok()?;
        (!name.starts_with('*')).then(|| name.to_owned())
    })
}

/// The signed fields of a certificate from its serial number on (RFC 5280 section 4.1).
fn fields(certificate: &[u8]) -> Option<impl Iterator<Item = AnyRef<'_>>> {
    let certificate = elements(certificate).next()?;
    let signed = elements(certificate.value()).next()?;
    Some(elements(signed.value()).skip_while(|field| field.tag() == VERSION))
}

/// The elements of a constructed value. They end at the first that is not DER.
fn elements(value: &[u8]) -> impl Iterator<Item = AnyRef<'_>> {
    let mut reader = SliceReader::new(value).ok();
    iter::from_fn(move || reader.as_mut()?.decode::<AnyRef<'_>>().ok())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, KeyPair, SanType, SerialNumber, date_time_ymd};

    use super::*;

    fn params(names: &[&str], year: i32) -> CertificateParams {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(year, 2, 28);
        params
    }

    fn made(params: &CertificateParams) -> CertificateDer<'static> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
    }

    /// RFC 5280 section 4.1.2.5: UTCTime from 1950 to 2049, else GeneralizedTime.
    #[test]
    fn expiry_is_read_in_both_forms() {
        for (year, seconds) in [
            (1949, -657_676_800),
            (1965, -152_755_200),
            (1999, 920_160_000),
            (2049, 2_498_083_200),
            (2050, 2_529_619_200),
            (9999, 253_375_776_000),
        ] {
            let certificate = made(&params(&["dns.example"], year));
            assert_eq!(expiry(&certificate), Some(seconds), "{year}");
        }
        assert_eq!(expiry(&CertificateDer::from(&b"x"[..])), None);
    }

    #[test]
    fn the_first_dns_name_that_is_no_wildcard_is_the_name() {
        for (names, expected) in [
            (&["dns.example", "other.example"][..], Some("dns.example")),
            (
                &["192.0.2.1", "2001:db8::1", "*.example", "dns.example"],
                Some("dns.example"),
            ),
            (&["192.0.2.1", "*.example"], None),
            (&[], None),
        ] {
            let certificate = made(&params(names, 2049));
            assert_eq!(name(&certificate).as_deref(), expected, "{names:?}");
        }
        assert_eq!(name(&CertificateDer::from(&b"x"[..])), None);
    }

    #[test]
    fn what_is_not_needed_may_be_unusual() {
        let long: Vec<u64> = [1, 3, 6, 1, 4, 1].into_iter().chain([u64::MAX; 8]).collect();
        let mut unusual = params(&["dns.example"], 1999);
        unusual.not_before = date_time_ymd(1960, 1, 1);
        unusual.serial_number = Some(SerialNumber::from_slice(&[0x7f; 40]));
        let other = SanType::OtherName((long.clone(), "other".into()));
        unusual.subject_alt_names.insert(0, other);
        let extension = CustomExtension::from_oid_content(&long, vec![5, 0]);
        unusual.custom_extensions.push(extension);
        let certificate = made(&unusual);
        assert_eq!(expiry(&certificate), Some(920_160_000));
        assert_eq!(name(&certificate).as_deref(), Some("dns.example"));
    }
}
