//! The forms of record data: which fields each type has. Messages and master files are read by the same table.

use crate::Type;

/// A field of record data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// A number of this many bytes: 1, 2 or 4.
    Number(usize),
    /// Seconds, in 4 bytes.
    Seconds,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A name.
    Name,
    /// A string of up to 255 bytes, after its length (RFC 1035 section 3.3).
    String,
    /// Strings, up to the end of the data.
    Strings,
    /// A text, up to the end of the data.
    Text,
    /// Bytes up to the end of the data, as hexadecimal digits in text.
    Hex,
    /// Bytes up to the end of the data, in base64 in text.
    Base64,
    /// Types, up to the end of the data (RFC 4034 section 4.1.2).
    Types,
    /// Parameters of a service, up to the end of the data (RFC 9460 section 2.2).
    Parameters,
    /// This many bytes, which are read from messages only.
    Octets(usize),
    /// Bytes up to the end of the data, which are read from messages only.
    Opaque,
}

/// The fields of a type's data.
///
/// Among them are all types whose names may be compressed: "Receiving servers MUST decompress domain names in RRs of
/// well-known type, and SHOULD also decompress RRs of type RP, AFSDB, RT, SIG, PX, NXT, NAPTR, and SRV" (RFC 3597
/// section 4), where the well-known types are those of RFC 1035. Names in DNAME, SVCB and HTTPS must not be compressed;
/// if one is, it is decompressed as well. Data of all other types is copied as it is.
pub(crate) fn form(rtype: Type) -> &'static [Field] {
    use Field::{
        Base64, Hex, Ipv4, Ipv6, Name, Number, Octets, Opaque, Parameters, Seconds, Strings, Text, Types,
    };
    match rtype {
        Type::A => &[Ipv4],
        Type::AAAA => &[Ipv6],
        Type::NS | Type::CNAME | Type::PTR | Type::DNAME => &[Name],
        // The mail types before MX (RFC 1035 section 3.3).
        Type::MD | Type::MF | Type::MB | Type::MG | Type::MR => &[Name],
        Type::SOA => &[Name, Name, Number(4), Seconds, Seconds, Seconds, Seconds],
        Type::MINFO | Type::RP => &[Name, Name],
        Type::MX | Type::AFSDB | Type::RT => &[Number(2), Name],
        Type::PX => &[Number(2), Name, Name],
        Type::SRV => &[Number(2), Number(2), Number(2), Name],
        Type::NAPTR => &[
            Number(2),
            Number(2),
            Field::String,
            Field::String,
            Field::String,
            Name,
        ],
        Type::SVCB | Type::HTTPS => &[Number(2), Name, Parameters],
        // What is before and after the signer's name (RFC 2535 section 4.1), and after the next name (section 5.2).
        Type::SIG => &[Octets(18), Name, Opaque],
        Type::NXT => &[Name, Opaque],
        Type::TXT | Type::SPF => &[Strings],
        Type::HINFO => &[Field::String, Field::String],
        Type::CAA => &[Number(1), Field::String, Text],
        Type::URI => &[Number(2), Number(2), Text],
        Type::DS | Type::CDS => &[Number(2), Number(1), Number(1), Hex],
        Type::SSHFP => &[Number(1), Number(1), Hex],
        Type::TLSA | Type::SMIMEA => &[Number(1), Number(1), Number(1), Hex],
        Type::DNSKEY | Type::CDNSKEY => &[Number(2), Number(1), Number(1), Base64],
        Type::CERT => &[Number(2), Number(2), Number(1), Base64],
        Type::OPENPGPKEY => &[Base64],
        Type::CSYNC => &[Number(4), Number(2), Types],
        _ => &[Opaque],
    }
}

/// Whether a record of this type may be without data: only those whose form is not known here (RFC 3597).
pub(crate) fn may_be_empty(rtype: Type) -> bool {
    form(rtype) == [Field::Opaque]
}
