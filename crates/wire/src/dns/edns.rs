//! EDNS(0), RFC 6891: the OPT record of a query, and ours.
//!
//! OPT is hop-by-hop (section 6.1.1): it is read from every incoming message, rewritten for every outgoing
//! one, and never relayed or cached.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{rtype, u16_at};

/// The DO bit in the flags half of the OPT record's TTL (RFC 3225 section 3).
pub const DO: u16 = 0x8000;

/// Bytes of an OPT record without options: root owner, type, class, TTL, length.
pub(crate) const OPT_LENGTH: usize = 11;

/// The most that a client without EDNS accepts over UDP (RFC 1035 section 4.2.1).
pub const UDP_CLASSIC: u16 = 512;

/// The payload size we advertise, which fits any path without fragments (RFC 9715 section 3.1).
pub const UDP_DEFAULT: u16 = 1232;

const OPTION_SUBNET: u16 = 8;
const OPTION_KEEPALIVE: u16 = 11;
const OPTION_PADDING: u16 = 12;
const OPTION_ERROR: u16 = 15;

/// Bytes of an option before its value: code and length (RFC 6891 section 6.1.2).
pub(crate) const OPTION_HEADER: usize = 4;

/// Appends a Padding option (RFC 7830 section 3) with a value of `padding` zero bytes.
pub fn pad(options: &mut Vec<u8>, padding: usize) {
    options.extend(OPTION_PADDING.to_be_bytes());
    options.extend((padding as u16).to_be_bytes());
    options.resize(options.len() + padding, 0);
}

/// The content of a query's OPT record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// Bytes of UDP payload that the client accepts. Sizes below 512 count as 512 (RFC 6891 section 6.2.3).
    pub udp_size: u16,
    /// The flags half of the TTL; its top bit is [`DO`].
    pub flags: u16,
    /// The version the client speaks; only 0 exists.
    pub version: u8,
    /// Whether the client asked for edns-tcp-keepalive (RFC 7828).
    pub keepalive: bool,
}

/// Extended DNS error codes (RFC 8914 section 4) that the proxy itself gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendedError {
    /// 3: past its TTL, since nothing fresher was available.
    StaleAnswer,
    /// 13: a cached failure (RFC 9520).
    CachedError,
    /// 14: the proxy is stopping, or has not started yet.
    NotReady,
    /// 15: a filter decided so.
    Blocked,
    /// 18: the client may not ask, or not that often.
    Prohibited,
    /// 19: NXDOMAIN past its TTL.
    StaleNxdomain,
    /// 20: no zone of the configuration owns the name.
    NotAuthoritative,
    /// 0: something else, such as a filter that failed.
    Other,
    /// 22: no upstream answered.
    NoReachableAuthority,
    /// 23: a network error on the way to an upstream.
    NetworkError,
    /// 30: no record can have the type asked for (RFC 9824 section 3.5).
    InvalidQueryType,
}

impl ExtendedError {
    /// The INFO-CODE.
    pub fn code(self) -> ExtendedErrorCode {
        match self {
            ExtendedError::Other => 0,
            ExtendedError::StaleAnswer => 3,
            ExtendedError::CachedError => 13,
            ExtendedError::NotReady => 14,
            ExtendedError::Blocked => 15,
            ExtendedError::Prohibited => 18,
            ExtendedError::StaleNxdomain => 19,
            ExtendedError::NotAuthoritative => 20,
            ExtendedError::NoReachableAuthority => 22,
            ExtendedError::NetworkError => 23,
            ExtendedError::InvalidQueryType => 30,
        }
    }
}

/// The meanings of the codes of RFC 8914 section 4, by number.
const EXTENDED_ERRORS: [&str; 31] = [
    "Other Error",
    "Unsupported DNSKEY Algorithm",
    "Unsupported DS Digest Type",
    "Stale Answer",
    "Forged Answer",
    "DNSSEC Indeterminate",
    "DNSSEC Bogus",
    "Signature Expired",
    "Signature Not Yet Valid",
    "DNSKEY Missing",
    "RRSIGs Missing",
    "No Zone Key Bit Set",
    "NSEC Missing",
    "Cached Error",
    "Not Ready",
    "Blocked",
    "Censored",
    "Filtered",
    "Prohibited",
    "Stale NXDOMAIN Answer",
    "Not Authoritative",
    "Not Supported",
    "No Reachable Authority",
    "Network Error",
    "Invalid Data",
    "Signature Expired before Valid",
    "Too Early",
    "Unsupported NSEC3 Iterations Value",
    "Unable to conform to policy",
    "Synthesized",
    "Invalid Query Type",
];

/// An extended error's number and meaning, as `dig` prints them.
pub fn extended_error_text(code: ExtendedErrorCode) -> String {
    match EXTENDED_ERRORS.get(usize::from(code)) {
        Some(meaning) => format!("{code} ({meaning})"),
        None => code.to_string(),
    }
}

/// A malformed OPT record: FORMERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadOpt;

impl Edns {
    /// Parses an OPT record's fixed part and options. `class` and `ttl` are the record's.
    ///
    /// Unknown options are skipped (section 6.1.2); an option that overruns the record is an error, and so is
    /// a keepalive option with a value, which only servers send (RFC 7828 section 3.2.1).
    pub fn read(class: u16, ttl: u32, options: &[u8]) -> Result<Edns, BadOpt> {
        let mut edns = Edns {
            udp_size: class.max(UDP_CLASSIC),
            flags: ttl as u16,
            version: (ttl >> 16) as u8,
            keepalive: false,
        };
        for option in Options(options) {
            let (code, value) = option?;
            if code == OPTION_KEEPALIVE {
                if !value.is_empty() {
                    return Err(BadOpt);
                }
                edns.keepalive = true;
            }
        }
        Ok(edns)
    }

    /// Whether the client wants DNSSEC records.
    pub fn dnssec_ok(&self) -> bool {
        self.flags & DO != 0
    }
}

/// Our OPT record for one reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opt {
    /// The upper eight bits of a 12-bit rcode.
    pub rcode_high: u8,
    /// Copied from the query (RFC 3225 section 3).
    pub dnssec_ok: bool,
    /// The extended error, if any (RFC 8914).
    pub error: Option<ExtendedErrorCode>,
    /// The idle timeout in units of 100 ms (RFC 7828 section 3.1); only over TCP, if the client asked for it.
    pub keepalive: Option<u16>,
}

/// An INFO-CODE (RFC 8914 section 2): one of ours, or an upstream's, which may be unknown to us.
pub type ExtendedErrorCode = u16;

/// The first INFO-CODE in an upstream's OPT record. Its text is for the upstream's own operator, and is
/// dropped (RFC 8914 section 2 lets those that pass it on truncate it).
pub fn extended_error(options: &[u8]) -> Option<ExtendedErrorCode> {
    let mut options = Options(options).map_while(Result::ok);
    options.find_map(|(code, value)| (code == OPTION_ERROR && value.len() >= 2).then(|| u16_at(value, 0)))
}

/// The idle timeout in a server's OPT record, in units of 100 ms (RFC 7828 section 3.1), if any.
pub fn keepalive(options: &[u8]) -> Option<u16> {
    let mut options = Options(options).map_while(Result::ok);
    options.find_map(|(code, value)| (code == OPTION_KEEPALIVE && value.len() == 2).then(|| u16_at(value, 0)))
}

/// A client subnet as sent to upstreams (RFC 7871 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientSubnet {
    address: IpAddr,
    length: u8,
}

impl ClientSubnet {
    /// The network of the address's first `length` bits; a `length` beyond the address counts as all of it.
    pub fn new(address: IpAddr, length: u8) -> ClientSubnet {
        let (bits, most) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let length = length.min(most);
        let bits = bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        ClientSubnet { address, length }
    }

    /// The option, with a scope of 0 as in queries.
    pub fn option(&self) -> Vec<u8> {
        let (family, octets) = match self.address {
            IpAddr::V4(v4) => (1_u16, v4.octets().to_vec()),
            IpAddr::V6(v6) => (2, v6.octets().to_vec()),
        };
        // No more bytes than the bits need.
        let address = &octets[..usize::from(self.length).div_ceil(8)];
        let mut option = Vec::with_capacity(24);
        option.extend(OPTION_SUBNET.to_be_bytes());
        option.extend((4 + address.len() as u16).to_be_bytes());
        option.extend(family.to_be_bytes());
        option.extend([self.length, 0]);
        option.extend_from_slice(address);
        option
    }

    /// Whether a response with these options may answer a query with this subnet: it has no subnet, or the
    /// same one with any scope (RFC 7871 section 7.3).
    pub fn is_echoed(&self, options: &[u8]) -> bool {
        let option = self.option();
        let mut theirs = self::options(options).filter(|(code, _)| *code == OPTION_SUBNET);
        theirs.all(|(_, value)| {
            value.len() == option.len() - 4 && value[..3] == option[4..7] && value[4..] == option[8..]
        })
    }
}

impl fmt::Display for ClientSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The options of an OPT record as code and value, up to the first that overruns it.
pub fn options(options: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    Options(options).map_while(Result::ok)
}

/// The options of an OPT record as code and value (RFC 6891 section 6.1.2). One that overruns the record is
/// an error, and the last.
struct Options<'o>(&'o [u8]);

impl<'o> Iterator for Options<'o> {
    type Item = Result<(u16, &'o [u8]), BadOpt>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        if rest.is_empty() {
            return None;
        }
        if rest.len() < 4 {
            return Some(Err(BadOpt));
        }
        let (code, length) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        let Some((value, rest)) = rest[4..].split_at_checked(length) else {
            return Some(Err(BadOpt));
        };
        self.0 = rest;
        Some(Ok((code, value)))
    }
}

impl Opt {
    /// The bytes that [`Opt::write`] takes without a text.
    pub fn length(&self) -> usize {
        OPT_LENGTH + if self.error.is_some() { 6 } else { 0 } + if self.keepalive.is_some() { 6 } else { 0 }
    }

    /// Writes the record to the start of `out`, which must hold [`Opt::length`] bytes plus `error_text`: the
    /// error's EXTRA-TEXT, empty without an error.
    pub fn write(&self, out: &mut [u8], error_text: &str) -> usize {
        let options = (self.length() - OPT_LENGTH + error_text.len()) as u16;
        let flags = if self.dnssec_ok { DO } else { 0 };
        out[0] = 0;
        out[1..3].copy_from_slice(&rtype::OPT.to_be_bytes());
        out[3..5].copy_from_slice(&UDP_DEFAULT.to_be_bytes());
        out[5] = self.rcode_high;
        out[6] = 0;
        out[7..9].copy_from_slice(&flags.to_be_bytes());
        out[9..11].copy_from_slice(&options.to_be_bytes());
        let mut at = OPT_LENGTH;
        let options = [
            (OPTION_ERROR, self.error, error_text),
            (OPTION_KEEPALIVE, self.keepalive, ""),
        ];
        for (code, value, text) in options {
            if let Some(value) = value {
                let length = 2 + text.len() as u16;
                out[at..at + 2].copy_from_slice(&code.to_be_bytes());
                out[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
                out[at + 4..at + 6].copy_from_slice(&value.to_be_bytes());
                at += 6;
                out[at..at + text.len()].copy_from_slice(text.as_bytes());
                at += text.len();
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_has_no_more_octets_than_bits() {
        let option = |address: &str, length| ClientSubnet::new(address.parse().unwrap(), length).option();
        assert_eq!(option("192.0.2.77", 24), b"\0\x08\0\x07\0\x01\x18\0\xc0\0\x02");
        assert_eq!(
            option("192.0.2.255", 25),
            b"\0\x08\0\x08\0\x01\x19\0\xc0\0\x02\x80"
        );
        assert_eq!(option("192.0.2.1", 0), b"\0\x08\0\x04\0\x01\0\0");
        assert_eq!(
            option("2001:db8::1", 33),
            b"\0\x08\0\x09\0\x02\x21\0\x20\x01\x0d\xb8\0"
        );
        assert_eq!(option("192.0.2.1", 99).len(), 12);
        let shown = ClientSubnet::new("192.0.2.77".parse().unwrap(), 24).to_string();
        assert_eq!(shown, "192.0.2.0/24");
    }

    /// RFC 7871 section 7.3.
    #[test]
    fn another_subnet_is_no_answer() {
        let subnet = ClientSubnet::new("192.0.2.77".parse().unwrap(), 24);
        for (options, echoed) in [
            (&b""[..], true),
            (b"\0\x0a\0\x01x", true),
            (b"\0\x08\0\x07\0\x01\x18\x10\xc0\0\x02", true),
            (b"\0\x08\0\x07\0\x01\x18\x20\xc0\0\x02", true),
            (b"\0\x08\0\x07\0\x01\x18\x10\xc0\0\x03", false),
            (b"\0\x08\0\x07\0\x01\x17\x10\xc0\0\x02", false),
            (b"\0\x08\0\x07\0\x02\x18\x10\xc0\0\x02", false),
            (b"\0\x08\0\x04\0\x01\0\0", false),
            (b"\0\x08\0\x00", false),
        ] {
            assert_eq!(subnet.is_echoed(options), echoed, "{options:02x?}");
        }
    }
}
