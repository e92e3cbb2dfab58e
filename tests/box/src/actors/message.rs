//! DNS messages (RFC 1035 section 4), as far as clients and upstreams need them; independent of the proxy's
//! code.

/// The seconds of a span: answers stay the same within one, and their address encodes it.
pub const AGE: u64 = 10;

/// How many spans an address can distinguish.
pub const SPANS: u64 = 200;

/// The rcodes used here (RFC 1035 section 4.1.1).
pub const SERVFAIL: u8 = 2;
pub const NXDOMAIN: u8 = 3;

/// The types used here (RFC 1035 section 3.2.2, RFC 2782).
pub const A: u8 = 1;
pub const SRV: u8 = 33;

/// Builds a query for a name and type.
pub fn query(id: u16, name: &str, qtype: u8) -> Vec<u8> {
    let mut octets = id.to_be_bytes().to_vec();
    octets.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        octets.push(label.len() as u8);
        octets.extend(label.as_bytes());
    }
    octets.extend([0, 0, qtype, 0, 1]);
    octets
}

/// Returns the bytes of a message's question, and its name in lower case.
pub fn question(message: &[u8]) -> Option<(&[u8], String)> {
    let (mut at, mut name) = (12, String::new());
    loop {
        let length = usize::from(*message.get(at)?);
        if length == 0 {
            break;
        }
        if length > 63 {
            return None;
        }
        let label = message.get(at + 1..at + 1 + length)?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&String::from_utf8_lossy(label).to_lowercase());
        at += 1 + length;
    }
    Some((message.get(12..at + 5)?, name))
}

/// Whether a reply is authoritative: no upstream's is (RFC 1035 section 4.1.1, AA).
pub fn is_own(reply: &[u8]) -> bool {
    reply.get(2).is_some_and(|flags| flags & 4 != 0)
}

/// Whether a name does not exist.
pub fn is_missing(name: &str) -> bool {
    name.starts_with("no")
}

/// Returns the address of a name at a time: it encodes the span, and two bytes of a hash of the name.
pub fn address(name: &str, now: u64) -> [u8; 4] {
    let hash = name.bytes().fold(7_u32, |hash, octet| {
        hash.wrapping_mul(31).wrapping_add(octet.into())
    });
    let span = now / 1_000_000_000 / AGE % SPANS;
    [10, span as u8, (hash >> 8) as u8, hash as u8]
}

/// Returns an honest upstream's answer to a query; `None` if the query is malformed.
pub fn answer(query: &[u8], now: u64) -> Option<Vec<u8>> {
    let (asked, name) = question(query)?;
    let is_address = asked.get(asked.len() - 4..)? == [0, 1, 0, 1];
    let missing = is_missing(&name);
    let mut octets = query.get(..2)?.to_vec();
    octets.extend([0x81, if missing { 0x80 | NXDOMAIN } else { 0x80 }, 0, 1]);
    octets.extend(match (missing, is_address) {
        (false, true) => [0, 1, 0, 0, 0, 0],
        _ => [0, 0, 0, 1, 0, 0],
    });
    octets.extend(asked);
    if !missing && is_address {
        // The question's name, A, IN, five seconds.
        octets.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
        octets.extend(address(&name, now));
    } else {
        // The root's SOA, IN, five seconds: names of one letter each, five numbers (RFC 2308 section 3).
        octets.extend([0, 0, 6, 0, 1, 0, 0, 0, 5, 0, 26, 1, b'a', 0, 1, b'b', 0]);
        octets.extend([0; 16]);
        octets.extend([0, 0, 0, 5]);
    }
    Some(octets)
}

/// Returns a reply without records.
pub fn bare(query: &[u8], flags: [u8; 2]) -> Option<Vec<u8>> {
    let (asked, _) = question(query)?;
    let mut octets = query.get(..2)?.to_vec();
    octets.extend(flags);
    octets.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    octets.extend(asked);
    Some(octets)
}

/// Returns the address in a reply, if its first record is one.
pub fn first_address(reply: &[u8]) -> Option<[u8; 4]> {
    let (asked, _) = question(reply)?;
    let at = 12 + asked.len();
    let count = u16::from_be_bytes([*reply.get(6)?, *reply.get(7)?]);
    // The name is a pointer, or spelled out again.
    let at = match reply.get(at)? {
        192.. => at + 2,
        _ => at + asked.len() - 4,
    };
    let fixed = reply.get(at..at + 10)?;
    let address = reply.get(at + 10..at + 14)?;
    (count > 0 && fixed[..2] == [0, 1] && fixed[8..] == [0, 4])
        .then(|| [address[0], address[1], address[2], address[3]])
}

/// Adds the length prefix of TCP (RFC 1035 section 4.2.2).
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut octets = (message.len() as u16).to_be_bytes().to_vec();
    octets.extend(message);
    octets
}

/// Takes the first complete message from a stream's buffer.
pub fn unframed(octets: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes(*octets.first_chunk::<2>()?));
    let message = octets.get(2..2 + length)?.to_vec();
    octets.drain(..2 + length);
    Some(message)
}
