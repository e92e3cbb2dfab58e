//! DNS messages as bytes: just enough to answer from a cache without building anything.
//!
//! [`query`] checks what a client sent, [`records`] walks what an upstream sent, [`reply`] writes what a
//! client gets; all three borrow the caller's buffers and allocate nothing. [`build`] is the slow and
//! comfortable side, for adding, renaming or removing records: [`parts`] takes messages apart, and [`writer`]
//! writes new ones.

mod binding_data;
pub mod build;
pub mod data;
pub mod edns;
pub mod https;
pub mod name;
pub mod names;
mod number_data;
mod origin;
pub mod padding;
pub mod parts;
pub mod query;
pub mod records;
pub mod reply;
pub mod signature;
pub mod special;
pub mod suffix_map;
pub mod text;
pub mod transfer;
mod transport;
pub mod tsig;
pub mod writer;

pub use origin::Origin;
pub use transport::Transport;

/// Bytes of a message's header (RFC 1035 section 4.1.1).
pub const HEADER: usize = 12;

/// Bytes of a question's type and class, which follow its name.
pub const QUESTION_TAIL: usize = 4;

/// The largest message that TCP's length prefix can announce.
pub const MESSAGE_MAXIMUM: usize = 65_535;

/// The largest query that is read, over UDP and TCP alike. One question, OPT with padding and a signature
/// come nowhere near; a larger message is answered with FORMERR.
pub const QUERY_MAXIMUM: usize = 4096;

/// The most records besides the question that are read in a query, which needs OPT and a signature.
pub const QUERY_RECORDS: usize = 32;

/// Bits of the header's second 16 bits (RFC 1035 section 4.1.1, RFC 4035 section 3).
pub mod flag {
    /// Query or response.
    pub const QR: u16 = 0x8000;
    /// The four bits of the opcode.
    pub const OPCODE: u16 = 0x7800;
    /// Authoritative answer.
    pub const AA: u16 = 0x0400;
    /// Truncated.
    pub const TC: u16 = 0x0200;
    /// Recursion desired.
    pub const RD: u16 = 0x0100;
    /// Recursion available.
    pub const RA: u16 = 0x0080;
    /// Authentic data.
    pub const AD: u16 = 0x0020;
    /// Checking disabled.
    pub const CD: u16 = 0x0010;
    /// The four low bits of the rcode.
    pub const RCODE: u16 = 0x000f;
}

/// Record types that the proxy itself must tell apart.
pub mod rtype {
    #![allow(missing_docs, reason = "each is the type of that name")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const SIG: u16 = 24;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const NAPTR: u16 = 35;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const DNSKEY: u16 = 48;
    pub const NSEC3: u16 = 50;
    pub const NSEC3PARAM: u16 = 51;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const NXNAME: u16 = 128;
    pub const TKEY: u16 = 249;
    pub const TSIG: u16 = 250;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}

/// The only class that is forwarded (RFC 1035 section 3.2.4).
pub const CLASS_IN: u16 = 1;

/// Response codes (RFC 1035 section 4.1.1, RFC 6891 section 9).
pub mod rcode {
    #![allow(missing_docs, reason = "each is the rcode of that name")]
    pub const NOERROR: u16 = 0;
    pub const FORMERR: u16 = 1;
    pub const SERVFAIL: u16 = 2;
    pub const NXDOMAIN: u16 = 3;
    pub const NOTIMP: u16 = 4;
    pub const REFUSED: u16 = 5;
    pub const YXDOMAIN: u16 = 6;
    pub const NOTAUTH: u16 = 9;
    pub const BADVERS: u16 = 16;
}

/// The two bytes at `at`, big-endian; the caller has checked that they exist.
pub fn u16_at(message: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([message[at], message[at + 1]])
}

/// The four bytes at `at`, big-endian; the caller has checked that they exist.
pub fn u32_at(message: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]])
}

/// Response codes by name, as `dig` prints them.
pub const RCODES: [(&str, u16); 13] = [
    ("NOERROR", rcode::NOERROR),
    ("FORMERR", rcode::FORMERR),
    ("SERVFAIL", rcode::SERVFAIL),
    ("NXDOMAIN", rcode::NXDOMAIN),
    ("NOTIMP", rcode::NOTIMP),
    ("REFUSED", rcode::REFUSED),
    ("YXDOMAIN", rcode::YXDOMAIN),
    ("YXRRSET", 7),
    ("NXRRSET", 8),
    ("NOTAUTH", 9),
    ("NOTZONE", 10),
    ("BADVERS", rcode::BADVERS),
    ("BADCOOKIE", 23),
];

/// The text of an rcode, as `dig` prints it; `RCODE24` for one without a name.
pub fn rcode_text(code: u16) -> String {
    named(&RCODES, code).map_or_else(|| format!("RCODE{code}"), str::to_owned)
}

/// The name of a number, if it has one.
fn named(names: &[(&'static str, u16)], number: u16) -> Option<&'static str> {
    let found = names.iter().find(|(_, known)| *known == number);
    found.map(|(name, _)| *name)
}
