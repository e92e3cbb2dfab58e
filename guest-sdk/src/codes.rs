//! Numbers from the registries of RFC 6895 that filters use: types, classes, rcodes.

use std::fmt;
use std::str::FromStr;

use crate::Word;

/// A text that is not a type, class or rcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownCode;

impl fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such name in the DNS parameters registry")
    }
}

impl std::error::Error for UnknownCode {}

macro_rules! codes {
    ($(#[$doc:meta])* $code:ident $generic:literal { $($name:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $code(pub u16);

        impl $code {
            $(
                #[doc = concat!("`", stringify!($name), "`, ", stringify!($value), ".")]
                pub const $name: $code = $code($value);
            )*

            /// The name in the registry, if it has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The registered name as a [`Word`] for a [`Line`](crate::Line).
            #[inline]
            pub fn word(self) -> Option<Word> {
                match self.0 {
                    $($value => const { Word::new(stringify!($name)) },)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{}{}", $generic, self.0),
                }
            }
        }

        impl fmt::Debug for $code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $code {
            type Err = UnknownCode;

            /// Accepts the registered name or the generic form (RFC 3597 section 5), in any letter case.
            fn from_str(text: &str) -> Result<$code, UnknownCode> {
                // A table: a comparison for each name would be 10 KB of code.
                const NAMES: &[(&str, $code)] = &[$((stringify!($name), $code::$name),)*];
                let named = NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
                if let Some((_, code)) = named {
                    return Ok(*code);
                }
                match text.split_at_checked($generic.len()) {
                    Some((start, number)) if start.eq_ignore_ascii_case($generic) => {
                        // `u16::from_str` would accept a sign.
                        if !number.bytes().all(|digit| digit.is_ascii_digit()) {
                            return Err(UnknownCode);
                        }
                        number.parse().map($code).map_err(|_| UnknownCode)
                    }
                    _ => Err(UnknownCode),
                }
            }
        }
    };
}

codes! {
    /// A type of resource record, or of query. Types without a registered name are written `TYPE65280` (RFC
    /// 3597 section 5).
    Type "TYPE" {
        A = 1, NS = 2, MD = 3, MF = 4, CNAME = 5, SOA = 6, MB = 7, MG = 8, MR = 9, NULL = 10,
        PTR = 12, HINFO = 13, MINFO = 14, MX = 15, TXT = 16, RP = 17, AFSDB = 18, X25 = 19, ISDN = 20,
        RT = 21, SIG = 24, KEY = 25, PX = 26, GPOS = 27, AAAA = 28, LOC = 29, NXT = 30, SRV = 33,
        NAPTR = 35, KX = 36, CERT = 37, DNAME = 39, OPT = 41, APL = 42, DS = 43, SSHFP = 44, IPSECKEY = 45,
        RRSIG = 46, NSEC = 47, DNSKEY = 48, DHCID = 49, NSEC3 = 50, NSEC3PARAM = 51, TLSA = 52,
        SMIMEA = 53, HIP = 55, CDS = 59, CDNSKEY = 60, OPENPGPKEY = 61, CSYNC = 62, ZONEMD = 63,
        SVCB = 64, HTTPS = 65, SPF = 99, NID = 104, L32 = 105, L64 = 106, LP = 107, EUI48 = 108,
        EUI64 = 109, TKEY = 249, TSIG = 250, IXFR = 251, AXFR = 252, MAILB = 253, MAILA = 254,
        ANY = 255, URI = 256, CAA = 257, AVC = 258, TA = 32768, DLV = 32769,
    }
}

impl Type {
    /// Whether it is only for questions, or for messages as a whole (RFC 6895 section 3.1): no verdict may have such
    /// records.
    pub(crate) fn is_meta(self) -> bool {
        matches!(self.0, 0 | 41 | 128..=255)
    }
}

codes! {
    /// A class of records; nearly always `IN`.
    Class "CLASS" {
        IN = 1, CH = 3, HS = 4, NONE = 254, ANY = 255,
    }
}

codes! {
    /// A response code, with the upper bits that EDNS adds (RFC 6891 section 6.1.3).
    Rcode "RCODE" {
        NOERROR = 0, FORMERR = 1, SERVFAIL = 2, NXDOMAIN = 3, NOTIMP = 4, REFUSED = 5, YXDOMAIN = 6,
        YXRRSET = 7, NXRRSET = 8, NOTAUTH = 9, NOTZONE = 10, BADVERS = 16, BADCOOKIE = 23,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!("aaaa".parse(), Ok(Type::AAAA));
        assert_eq!("TYPE28".parse(), Ok(Type::AAAA));
        assert_eq!("type65280".parse(), Ok(Type(65280)));
        assert_eq!(Type(65280).to_string(), "TYPE65280");
        assert_eq!("CLASS3".parse(), Ok(Class::CH));
        assert_eq!(Rcode(3).to_string(), "NXDOMAIN");
        for text in ["", "TYPE", "TYPE+1", "TYPE65536", "AAAAA", "TÝPE1"] {
            assert_eq!(text.parse::<Type>(), Err(UnknownCode), "{text:?}");
        }
    }
}
