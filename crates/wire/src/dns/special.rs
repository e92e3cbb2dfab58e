//! Names that are never forwarded: the special-use names of RFC 6761 and its successors and, if enabled, the
//! zones to be served locally (RFC 6303).
//!
//! They act as zones, so a configured zone at or below one of them takes precedence: the longest suffix wins,
//! as everywhere.

use super::name::Name;
use super::{CLASS_IN, build, rtype};

/// How a special-use name is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// `localhost.`: the loopback addresses, and no other data (RFC 6761 section 6.3).
    Loopback,
    /// Known not to exist in the DNS.
    Nonexistent,
    /// A zone of this name in which every name exists, but has no data.
    Bare(&'static str),
    /// An empty zone of this name (RFC 6303 section 3).
    Empty(&'static str),
}

/// The zones that are always special.
pub const ALWAYS: [(&str, Special); 5] = [
    ("localhost.", Special::Loopback),
    // RFC 6761 section 6.4.
    ("invalid.", Special::Nonexistent),
    // RFC 7686 section 2.
    ("onion.", Special::Nonexistent),
    // RFC 9476 section 2.
    ("alt.", Special::Nonexistent),
    // RFC 9462 section 6.4: NODATA, since no resolver is designated here, and an upstream's is not ours.
    ("resolver.arpa.", Special::Bare("resolver.arpa.")),
];

/// The zones that are served locally if enabled: a cluster may have its own names in them.
pub fn local() -> impl Iterator<Item = (&'static str, Special)> {
    LOCAL.into_iter().map(|name| (name, Special::Empty(name)))
}

/// RFC 6303 sections 4.1 to 4.6, RFC 7793 section 2.1, RFC 8375 section 4.
#[rustfmt::skip]
const LOCAL: [&str; 98] = [
    "home.arpa.",
    "10.in-addr.arpa.", "168.192.in-addr.arpa.",
    "16.172.in-addr.arpa.", "17.172.in-addr.arpa.", "18.172.in-addr.arpa.", "19.172.in-addr.arpa.",
    "20.172.in-addr.arpa.", "21.172.in-addr.arpa.", "22.172.in-addr.arpa.", "23.172.in-addr.arpa.",
    "24.172.in-addr.arpa.", "25.172.in-addr.arpa.", "26.172.in-addr.arpa.", "27.172.in-addr.arpa.",
    "28.172.in-addr.arpa.", "29.172.in-addr.arpa.", "30.172.in-addr.arpa.", "31.172.in-addr.arpa.",
    "0.in-addr.arpa.", "127.in-addr.arpa.", "254.169.in-addr.arpa.", "2.0.192.in-addr.arpa.",
    "100.51.198.in-addr.arpa.", "113.0.203.in-addr.arpa.", "255.255.255.255.in-addr.arpa.",
    "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.",
    "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.",
    "d.f.ip6.arpa.", "8.e.f.ip6.arpa.", "9.e.f.ip6.arpa.", "a.e.f.ip6.arpa.", "b.e.f.ip6.arpa.",
    "8.b.d.0.1.0.0.2.ip6.arpa.",
    "64.100.in-addr.arpa.", "65.100.in-addr.arpa.", "66.100.in-addr.arpa.", "67.100.in-addr.arpa.",
    "68.100.in-addr.arpa.", "69.100.in-addr.arpa.", "70.100.in-addr.arpa.", "71.100.in-addr.arpa.",
    "72.100.in-addr.arpa.", "73.100.in-addr.arpa.", "74.100.in-addr.arpa.", "75.100.in-addr.arpa.",
    "76.100.in-addr.arpa.", "77.100.in-addr.arpa.", "78.100.in-addr.arpa.", "79.100.in-addr.arpa.",
    "80.100.in-addr.arpa.", "81.100.in-addr.arpa.", "82.100.in-addr.arpa.", "83.100.in-addr.arpa.",
    "84.100.in-addr.arpa.", "85.100.in-addr.arpa.", "86.100.in-addr.arpa.", "87.100.in-addr.arpa.",
    "88.100.in-addr.arpa.", "89.100.in-addr.arpa.", "90.100.in-addr.arpa.", "91.100.in-addr.arpa.",
    "92.100.in-addr.arpa.", "93.100.in-addr.arpa.", "94.100.in-addr.arpa.", "95.100.in-addr.arpa.",
    "96.100.in-addr.arpa.", "97.100.in-addr.arpa.", "98.100.in-addr.arpa.", "99.100.in-addr.arpa.",
    "100.100.in-addr.arpa.", "101.100.in-addr.arpa.", "102.100.in-addr.arpa.", "103.100.in-addr.arpa.",
    "104.100.in-addr.arpa.", "105.100.in-addr.arpa.", "106.100.in-addr.arpa.", "107.100.in-addr.arpa.",
    "108.100.in-addr.arpa.", "109.100.in-addr.arpa.", "110.100.in-addr.arpa.", "111.100.in-addr.arpa.",
    "112.100.in-addr.arpa.", "113.100.in-addr.arpa.", "114.100.in-addr.arpa.", "115.100.in-addr.arpa.",
    "116.100.in-addr.arpa.", "117.100.in-addr.arpa.", "118.100.in-addr.arpa.", "119.100.in-addr.arpa.",
    "120.100.in-addr.arpa.", "121.100.in-addr.arpa.", "122.100.in-addr.arpa.", "123.100.in-addr.arpa.",
    "124.100.in-addr.arpa.", "125.100.in-addr.arpa.", "126.100.in-addr.arpa.", "127.100.in-addr.arpa.",
];

/// The contact in an empty zone's SOA (RFC 6303 section 3): an answer with this name in it is ours.
pub const NOBODY: &[u8] = b"\x06nobody\x07invalid\0";

/// The zone of the loopback addresses.
const LOCALHOST: &[u8] = b"\x09localhost\0";

/// The TTL of such an answer, in seconds: it never changes.
const TTL: u32 = 86_400;

/// The TTL of an empty zone's records and denials (RFC 6303 section 3).
const EMPTY_TTL: u32 = 10_800;

/// The numbers in an empty zone's SOA: serial, refresh, retry, expire, minimum (RFC 6303 section 3).
const SOA_NUMBERS: [u32; 5] = [1, 3600, 1200, 604_800, EMPTY_TTL];

/// The TTL of the answer to ANY, in seconds: long enough that few clients ask again (RFC 8482 section 4.2).
const ANY_TTL: u32 = 3600;

impl Special {
    /// Whether queries for the parent's side of its zone cut go to the parent zone (RFC 8375 section 4). For
    /// the others, they go nowhere.
    pub fn leaves(self) -> bool {
        match self {
            Special::Empty(_) => true,
            Special::Loopback | Special::Nonexistent | Special::Bare(_) => false,
        }
    }

    /// The complete answer to `question` (name, type, class), without OPT.
    pub fn answer(self, question: &[u8]) -> Vec<u8> {
        let tail = question.len().saturating_sub(super::QUESTION_TAIL);
        let qtype = super::u16_at(question, tail);
        match self {
            Special::Loopback => loopback(question, tail, qtype),
            // The zone above it, the root, has no such name.
            Special::Nonexistent => denial(question, super::rcode::NXDOMAIN, Name::ROOT.as_bytes()),
            Special::Bare(apex) => empty_zone(question, tail, qtype, apex, super::rcode::NOERROR),
            Special::Empty(apex) => empty_zone(question, tail, qtype, apex, super::rcode::NXDOMAIN),
        }
    }
}

fn loopback(question: &[u8], tail: usize, qtype: u16) -> Vec<u8> {
    let mut message = build::empty(question, super::rcode::NOERROR);
    let data: &[u8] = match qtype {
        rtype::A => &[127, 0, 0, 1],
        rtype::AAAA => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        _ => return denial(question, super::rcode::NOERROR, LOCALHOST),
    };
    build::push_record(&mut message, 6, &question[..tail], qtype, CLASS_IN, TTL, data);
    message
}

/// An answer without data, with the zone's SOA record, which limits its lifetime (RFC 2308 section 2).
fn denial(question: &[u8], rcode: u16, apex: &[u8]) -> Vec<u8> {
    let mut message = build::empty(question, rcode);
    build::push_record(&mut message, 8, apex, rtype::SOA, CLASS_IN, EMPTY_TTL, &soa(apex));
    message
}

fn soa(apex: &[u8]) -> Vec<u8> {
    let mut soa = [apex, NOBODY].concat();
    soa.extend(SOA_NUMBERS.iter().flat_map(|number| number.to_be_bytes()));
    soa
}

/// The answer of a zone with only SOA and NS at its apex; other names get `rcode`.
fn empty_zone(question: &[u8], tail: usize, qtype: u16, apex: &str, rcode: u16) -> Vec<u8> {
    let apex = Name::parse(apex).unwrap_or(Name::ROOT);
    let apex = apex.as_bytes();
    let at_apex = question[..tail].eq_ignore_ascii_case(apex);
    let rcode = if at_apex { super::rcode::NOERROR } else { rcode };
    let mut message = build::empty(question, rcode);
    let soa = soa(apex);
    let (count_at, of, data) = match qtype {
        rtype::SOA if at_apex => (6, rtype::SOA, &soa[..]),
        rtype::NS if at_apex => (6, rtype::NS, apex),
        // RFC 2308 section 2: a denial carries the SOA record.
        _ => (8, rtype::SOA, &soa[..]),
    };
    build::push_record(&mut message, count_at, apex, of, CLASS_IN, EMPTY_TTL, data);
    message
}

/// The answer to ANY if no upstream is asked: one record that cites RFC 8482 (section 4.2).
pub fn any(question: &[u8]) -> Vec<u8> {
    let tail = question.len().saturating_sub(super::QUESTION_TAIL);
    let mut message = build::empty(question, super::rcode::NOERROR);
    let data = b"\x07RFC8482\0";
    build::push_record(
        &mut message,
        6,
        &question[..tail],
        rtype::HINFO,
        CLASS_IN,
        ANY_TTL,
        data,
    );
    message
}

#[cfg(test)]
mod tests {
    use super::super::records::Section;
    use super::super::records::{Answer, Meaning};
    use super::super::text::record_lines;
    use super::*;

    fn answer(special: Special, name: &str, qtype: u16) -> Answer {
        let mut question = Name::parse(name).unwrap().as_bytes().to_vec();
        question.extend(qtype.to_be_bytes());
        question.extend(CLASS_IN.to_be_bytes());
        Answer::read(special.answer(&question)).unwrap()
    }

    #[test]
    fn every_zone_is_a_name_of_its_own() {
        let mut names: Vec<_> = local().chain(ALWAYS).map(|(name, _)| name).collect();
        for name in &names {
            assert_eq!(Name::parse(name).unwrap().to_string(), *name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LOCAL.len() + ALWAYS.len());
    }

    /// RFC 6303 section 3.
    #[test]
    fn empty_zones_have_their_own_records_and_deny_all_others() {
        let ten = Special::Empty("10.in-addr.arpa.");
        let soa = "10.in-addr.arpa. 10800 IN SOA 10.in-addr.arpa. nobody.invalid. 1 3600 1200 604800 10800";
        let of = |name: &str, qtype| {
            let answer = answer(ten, name, qtype);
            let lines = |section| record_lines(&answer.message, section);
            (
                answer.rcode,
                answer.meaning,
                lines(Section::Answer),
                lines(Section::Authority),
            )
        };
        let (apex, below) = ("10.in-addr.arpa.", "1.2.3.10.in-addr.arpa.");
        let none = Vec::<String>::new;
        assert_eq!(
            of(apex, rtype::SOA),
            (0, Meaning::Success, vec![soa.into()], none())
        );
        let ns = "10.in-addr.arpa. 10800 IN NS 10.in-addr.arpa.";
        assert_eq!(
            of(apex, rtype::NS),
            (0, Meaning::Success, vec![ns.into()], none())
        );
        assert_eq!(of(apex, rtype::A), (0, Meaning::Denial, none(), vec![soa.into()]));
        assert_eq!(
            of(below, rtype::PTR),
            (3, Meaning::Denial, none(), vec![soa.into()])
        );
    }

    /// RFC 2308 section 2: a denial states how long it is valid.
    #[test]
    fn what_is_denied_may_be_kept() {
        for (special, name, qtype, rcode) in [
            (Special::Nonexistent, "a.invalid.", rtype::A, 3),
            (Special::Nonexistent, "onion.", rtype::AAAA, 3),
            (Special::Loopback, "a.localhost.", rtype::MX, 0),
        ] {
            let answer = answer(special, name, qtype);
            assert_eq!(
                (answer.rcode, answer.meaning, answer.ttl),
                (rcode, Meaning::Denial, EMPTY_TTL),
                "{name}"
            );
        }
    }

    /// RFC 9462 section 6.4.
    #[test]
    fn no_resolver_is_designated() {
        let bare = Special::Bare("resolver.arpa.");
        for (name, qtype) in [
            ("_dns.resolver.arpa.", rtype::SVCB),
            ("a.resolver.arpa.", rtype::A),
        ] {
            let answer = answer(bare, name, qtype);
            assert_eq!(
                (answer.rcode, answer.meaning, answer.answer_count()),
                (0, Meaning::Denial, 0)
            );
        }
    }
}
