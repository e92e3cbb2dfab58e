//! Tells clients that ask in clear text where to ask encrypted (RFC 9462): the SVCB records of
//! `_dns.resolver.arpa.`.
//!
//! The name in them is the name in our certificate. Clients check that the certificate also has the address
//! that they know (section 4.2), so it should have that, too.

use std::net::{IpAddr, SocketAddr};

use crate::config::{Encryption, Listen};
use crate::dns::name::Name;
use crate::dns::special::Special;
use crate::dns::{CLASS_IN, QUESTION_TAIL, build, rcode, rtype, u16_at};

/// The name that clients query (RFC 9462 section 4).
const NAME: &[u8] = b"\x04_dns\x08resolver\x04arpa\0";

/// TTL of the answer in seconds: as long as a reload may go unnoticed.
const TTL: u32 = 300;

/// Parameters of SVCB records: RFC 9460 section 14.3.2, RFC 9461 section 5.
const ALPN: u16 = 1;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const IPV6HINT: u16 = 6;
const DOHPATH: u16 = 7;

/// The path as a template (RFC 8484 section 4.1).
const TEMPLATE: &[u8] = b"/dns-query{?dns}";

/// The answer to `question` (name, type, class) with a special name: the encrypted listeners, if that is the
/// question and there are any.
pub fn answer(listen: &Listen, special: Special, question: &[u8]) -> Vec<u8> {
    designated(listen, question).unwrap_or_else(|| special.answer(question))
}

fn designated(listen: &Listen, question: &[u8]) -> Option<Vec<u8>> {
    let tail = question.len().checked_sub(QUESTION_TAIL)?;
    if u16_at(question, tail) != rtype::SVCB || !question[..tail].eq_ignore_ascii_case(NAME) {
        return None;
    }
    let target = Name::parse(listen.identity.as_ref()?.name.as_deref()?).ok()?;
    let mut message = build::empty(question, rcode::NOERROR);
    for (address, encryption) in &listen.encrypted {
        let data = record(&target, *address, *encryption);
        build::push_record(
            &mut message,
            6,
            &question[..tail],
            rtype::SVCB,
            CLASS_IN,
            TTL,
            &data,
        );
    }
    (!listen.encrypted.is_empty()).then_some(message)
}

/// The RDATA of a record (RFC 9460 section 2.2).
fn record(target: &Name, address: SocketAddr, encryption: Encryption) -> Vec<u8> {
    let (priority, alpn): (u16, &[u8]) = match encryption {
        Encryption::Tls => (1, b"\x03dot"),
        Encryption::Https => (2, b"\x02h2"),
        Encryption::Quic => (3, b"\x03doq"),
    };
    let mut data = priority.to_be_bytes().to_vec();
    data.extend(target.as_bytes());
    // In ascending order of their keys.
    parameter(&mut data, ALPN, alpn);
    parameter(&mut data, PORT, &address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) if !ip.is_unspecified() => parameter(&mut data, IPV4HINT, &ip.octets()),
        IpAddr::V6(ip) if !ip.is_unspecified() => parameter(&mut data, IPV6HINT, &ip.octets()),
        _ => {}
    }
    if encryption == Encryption::Https {
        parameter(&mut data, DOHPATH, TEMPLATE);
    }
    data
}

fn parameter(data: &mut Vec<u8>, key: u16, value: &[u8]) {
    data.extend(key.to_be_bytes());
    data.extend((value.len() as u16).to_be_bytes());
    data.extend(value);
}
