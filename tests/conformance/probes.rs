//! The probes of RFC 8906 section 8 as ISC's genreport sends them, and its complaints.

use crate::harness::message::Edns;
use crate::harness::{Message, Proxy, Reply, Upstream, client, flags, forward_once};

/// All header bits that a query of opcode 0 may set.
const ALL_FLAGS: u16 = flags::TC | flags::RD | flags::RA | flags::CD | flags::AD | flags::AA | flags::Z;

/// An option's code and data.
type Opt = (u16, &'static [u8]);

/// A probe: genreport's name for it, the header, and EDNS with version, flags and options, if any.
struct Probe {
    name: &'static str,
    header: u16,
    qtype: &'static str,
    edns: Option<(u16, u8, u16, &'static [Opt])>,
    tcp: bool,
}

const COOKIE: (u16, &[u8]) = (10, &[1, 2, 3, 4, 5, 6, 7, 8]);
const SUBNET: (u16, &[u8]) = (8, &[0, 1, 0, 0]);
const NSID: (u16, &[u8]) = (3, &[]);
const EXPIRE: (u16, &[u8]) = (9, &[]);
const UNKNOWN: (u16, &[u8]) = (100, &[]);

const fn plain(name: &'static str, header: u16) -> Probe {
    Probe {
        name,
        header,
        qtype: "SOA",
        edns: None,
        tcp: false,
    }
}

const fn edns(name: &'static str, version: u8, flags: u16, options: &'static [Opt]) -> Probe {
    Probe {
        edns: Some((4096, version, flags, options)),
        ..plain(name, 0)
    }
}

const OPCODE: u16 = 15 << 11;

#[rustfmt::skip]
const PROBES: [Probe; 34] = [
    plain("dns", 0), plain("aa", flags::AA), plain("ad", flags::AD), plain("cd", flags::CD), plain("ra", flags::RA),
    plain("rd", flags::RD), plain("tc", flags::TC), plain("zflag", flags::Z),
    plain("opcode", OPCODE), plain("opcodeflg", OPCODE | ALL_FLAGS),
    Probe { qtype: "TYPE666", ..plain("type666", 0) },
    Probe { tcp: true, ..plain("tcp", 0) },
    edns("edns", 0, 0, &[]), edns("edns1", 1, 0, &[]),
    Probe { qtype: "TYPE48", edns: Some((512, 0, 0x8000, &[])), ..plain("edns@512", 0) },
    edns("ednsopt", 0, 0, &[UNKNOWN]), edns("edns1opt", 1, 0, &[UNKNOWN]),
    edns("do", 0, 0x8000, &[]), edns("edns1do", 1, 0x8000, &[]),
    edns("ednsflags", 0, 0x80, &[]), edns("edns1flags", 1, 0x80, &[]),
    edns("optlist", 0, 0, &[NSID, SUBNET, EXPIRE, COOKIE]),
    edns("ednsnsid", 0, 0, &[NSID]), edns("ednscookie", 0, 0, &[COOKIE]),
    edns("ednsexpire", 0, 0, &[EXPIRE]), edns("ednssubnet", 0, 0, &[SUBNET]),
    edns("edns1nsid", 1, 0, &[NSID]), edns("edns1cookie", 1, 0, &[COOKIE]),
    edns("edns1expire", 1, 0, &[EXPIRE]), edns("edns1subnet", 1, 0, &[SUBNET]),
    Probe { tcp: true, qtype: "TYPE48", edns: Some((512, 0, 0x8000, &[])), ..plain("ednstcp", 0) },
    Probe { edns: Some((4096, 0, 0x8000, &[COOKIE])), ..plain("bind11", 0) },
    Probe { edns: Some((4096, 0, 0, &[COOKIE])), ..plain("dig11", flags::RD | flags::AD) },
    Probe { header: flags::CD | flags::AD, edns: Some((4096, 0, 0x8000, &[])), ..plain("docd", 0) },
];

impl Probe {
    fn is_query(&self) -> bool {
        self.header & 0x7800 == 0
    }

    fn version(&self) -> u8 {
        self.edns.map_or(0, |(_, version, ..)| version)
    }

    fn message(&self) -> Message {
        let mut message = Message::query("example", self.qtype);
        message.header = self.header;
        if !self.is_query() {
            // "header-only"
            message.questions.clear();
        }
        message.edns = self.edns.map(|(size, version, flags, options)| Edns {
            size,
            version,
            flags,
            options: options
                .iter()
                .map(|(code, value)| (*code, value.to_vec()))
                .collect(),
            ..Edns::default()
        });
        message
    }

    /// genreport's complaints about an answer; none for `ok`.
    fn faults(&self, answer: &Message, octets: usize) -> Vec<&'static str> {
        let (query, has) = (self.is_query(), |bits| answer.has(bits));
        let rcode = answer.rcode();
        let expected = match (query, self.version()) {
            (false, _) => "NOTIMP",
            (true, 0) => "NOERROR",
            (true, _) => "BADVERS",
        };
        let sent = |bits| self.header & bits != 0;
        let dnssec_ok = self.edns.is_some_and(|(_, _, flags, _)| flags & 0x8000 != 0);
        let soa = answer.answers.iter().any(|record| record.rtype == 6);
        let edns = answer.edns.as_ref();
        let records =
            answer.questions.len() + answer.answers.len() + answer.authority.len() + answer.additional.len();
        let good = query && self.version() == 0;
        [
            (answer.header & 0x7800 != self.header & 0x7800, "opcode"),
            (rcode != expected, "rcode"),
            (!query && records > 0, "non-empty section"),
            (edns.is_some_and(|edns| edns.version != 0), "version-not-zero"),
            (edns.is_none() && self.edns.is_some(), "noopt"),
            (edns.is_some() && self.edns.is_none(), "opt"),
            (good && self.qtype == "SOA" && !soa, "nosoa"),
            (self.version() != 0 && soa, "soa"),
            (answer.find_option(100).is_some(), "echoed"),
            (
                dnssec_ok && edns.is_some_and(|edns| edns.flags & 0x8000 == 0),
                "nodo",
            ),
            (good && rcode == "NOERROR" && !has(flags::AA), "noaa"),
            (!query && has(flags::AA), "aa"),
            (!query && has(flags::RA), "ra"),
            (has(flags::RD) && (!query || !sent(flags::RD)), "rd"),
            (query && sent(flags::RD) && !has(flags::RD), "nord"),
            (has(flags::AD) && (!query || !sent(flags::AD) && !dnssec_ok), "ad"),
            (has(flags::CD) && (!query || !sent(flags::CD)), "cd"),
            (has(flags::Z), "z"),
            (edns.is_some_and(|edns| edns.flags & 0x7fff != 0), "mbz"),
            (
                !self.tcp && octets > self.edns.map_or(512, |(size, ..)| usize::from(size)),
                "toobig",
            ),
        ]
        .into_iter()
        .filter_map(|(wrong, what)| wrong.then_some(what))
        .collect()
    }
}

/// A proxy that forwards to an authority, asked without RD, answers like one: all 34 probes are `ok`.
#[test]
fn genreport_finds_no_fault() {
    let upstream = Upstream::start(|asked| {
        let key = format!("example. 300 TYPE48 \\# 604 01010308{}", "ab".repeat(600));
        let records = match () {
            () if asked.is("SOA") => vec!["example. 300 SOA ns.example. h.example. 1 2 3 4 5"],
            () if asked.is("TYPE48") => vec![key.as_str()],
            () => vec![],
        };
        Reply::Message(asked.message_with(&records).set(flags::AA))
    });
    // Without a cache, whose answers have no AA.
    let proxy = Proxy::start(&format!("zone \".\" {{ {} }}", forward_once(upstream.address)));
    let mut found = Vec::new();
    for probe in PROBES {
        let query = probe.message().encode();
        let octets = if probe.tcp {
            let mut stream = proxy.connect();
            stream.write(&client::frame(&query));
            let answer = stream.receive().expect("an answer over TCP");
            answer.encode()
        } else {
            client::exchange(proxy.address, &query)
        };
        let answer = Message::decode(&octets).unwrap_or_else(|error| panic!("{}: {error}", probe.name));
        let faults = probe.faults(&answer, octets.len());
        if !faults.is_empty() {
            found.push(format!("{}={}", probe.name, faults.join(",")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
