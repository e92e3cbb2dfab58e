//! The answers of a zone, by RFC section.

use std::fs;
use std::sync::Arc;

use super::File;
use crate::config::ZoneFile;
use crate::dns::name::Name;
use crate::dns::records::{Section, counts};
use crate::dns::suffix_map::SuffixMap;
use crate::dns::text::record_lines;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, rcode_text, rtype};
use crate::zonefile::{Bounds, read};
use dnsweir_answer::identity::Identity;
use dnsweir_answer::{Question, Resolution};

const ZONE: &str = r"
$TTL 300
@ 3600 SOA ns admin 1 2 3 4 60
@ NS ns
ns A 192.0.2.53
www A 192.0.2.1
alias CNAME www
chain CNAME alias
out CNAME www.test.
loop CNAME loop
gone CNAME none
*.wild A 192.0.2.2
host.wild TXT x
a.b.empty A 192.0.2.3
cut NS ns.cut
cut DS 1 13 2 00
ns.cut A 192.0.2.54
bare NS ns.cut
d DNAME wild
dout DNAME test.
self DNAME x.self
once DNAME twice
back.twice CNAME next.once
next.twice A 192.0.2.5
mail MX 1 www
_s._tcp SRV 0 0 1 www
web HTTPS 0 pool
pool HTTPS 1 . alpn=h2
pool A 192.0.2.4
nothing HTTPS 0 .
";

fn file(text: &str, fallthrough: &[&str]) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zone");
    fs::write(&path, text).unwrap();
    let zone = read(&path, "example.", Bounds { octets: 1 << 20 }).unwrap();
    File::new(&ZoneFile {
        path,
        zones: vec![zone],
        fallthrough: fallthrough.iter().map(|&name| name.to_owned()).collect(),
        memory: 1 << 20,
        transfer: None,
    })
}

fn resolve(file: &File, name: &str, qtype: u16, dnssec_ok: bool) -> Resolution {
    resolve_in(file, name, qtype, dnssec_ok, MESSAGE_MAXIMUM)
}

/// The same with at most `room` bytes.
fn resolve_in(file: &File, name: &str, qtype: u16, dnssec_ok: bool, room: usize) -> Resolution {
    let name = Name::parse(name).unwrap();
    file.immediate(&Question {
        name: name.as_bytes(),
        qtype,
        qclass: CLASS_IN,
        flags: 0,
        dnssec_ok,
        subnet: None,
        signed: None,
        room,
        client: [127, 0, 0, 1].into(),
        identity: &Identity::Unknown,
        zone: &Name::parse("example").unwrap(),
        zones: &SuffixMap::default(),
        tap: None,
        direct: true,
        traced: false,
    })
}

/// The rcode, AA, the records of all sections in order, and the name to be resolved next.
fn said(file: &File, name: &str, qtype: u16) -> Vec<String> {
    let (answer, authoritative, next) = match resolve(file, name, qtype, true) {
        Resolution::Answer {
            answer,
            authoritative,
        } => (answer, authoritative, None),
        Resolution::Alias(alias) => match &alias.so_far {
            Some(so_far) => (Arc::clone(so_far), true, alias.targets.first().cloned()),
            None => return vec!["an alias without records".into()],
        },
        _ => return vec!["not mine".into()],
    };
    let aa = if authoritative { " AA" } else { "" };
    let mut said = vec![format!("{}{aa}", rcode_text(answer.rcode))];
    for (sign, section) in [
        ("=", Section::Answer),
        ("^", Section::Authority),
        ("+", Section::Additional),
    ] {
        let lines = record_lines(&answer.message, section).into_iter();
        said.extend(
            lines.map(|line| format!("{sign} {}", line.replace(".example.", "").replace(" IN ", " "))),
        );
    }
    said.extend(next.map(|name| format!("> {}", Name::lowercased(&name))));
    said
}

const SOA: &str = "^ example. 60 SOA ns admin 1 2 3 4 60";

/// Section of the RFC, name, type, and the expected answer.
const ANSWERS: &[(&str, &str, u16, &[&str])] = &[
    (
        "RFC 1034 4.3.2",
        "www.example",
        rtype::A,
        &["NOERROR AA", "= www 300 A 192.0.2.1"],
    ),
    (
        "RFC 4343 3",
        "WWW.Example",
        rtype::A,
        &["NOERROR AA", "= www 300 A 192.0.2.1"],
    ),
    // The TTL of the SOA record is the lower of its own and its last field.
    ("RFC 2308 2.2", "www.example", rtype::TXT, &["NOERROR AA", SOA]),
    ("RFC 2308 2.1", "none.example", rtype::A, &["NXDOMAIN AA", SOA]),
    ("RFC 8020 2", "b.empty.example", rtype::A, &["NOERROR AA", SOA]),
    (
        "RFC 1034 3.6.2",
        "alias.example",
        rtype::A,
        &["NOERROR AA", "= alias 300 CNAME www", "= www 300 A 192.0.2.1"],
    ),
    (
        "RFC 1034 3.6.2",
        "alias.example",
        rtype::CNAME,
        &["NOERROR AA", "= alias 300 CNAME www"],
    ),
    (
        "RFC 1034 3.6.2",
        "chain.example",
        rtype::TXT,
        &[
            "NOERROR AA",
            "= chain 300 CNAME alias",
            "= alias 300 CNAME www",
            SOA,
        ],
    ),
    (
        "RFC 1034 3.6.2",
        "out.example",
        rtype::A,
        &["NOERROR AA", "= out 300 CNAME www.test.", "> www.test."],
    ),
    (
        "RFC 1034 3.6.2",
        "loop.example",
        rtype::A,
        &["NOERROR AA", "= loop 300 CNAME loop"],
    ),
    (
        "RFC 6604 3",
        "gone.example",
        rtype::A,
        &["NXDOMAIN AA", "= gone 300 CNAME none", SOA],
    ),
    (
        "RFC 4592 2.2.1",
        "a.b.wild.example",
        rtype::A,
        &["NOERROR AA", "= a.b.wild 300 A 192.0.2.2"],
    ),
    (
        "RFC 4592 2.2.1",
        "a.wild.example",
        rtype::TXT,
        &["NOERROR AA", SOA],
    ),
    (
        "RFC 4592 2.2.1",
        "host.wild.example",
        rtype::A,
        &["NOERROR AA", SOA],
    ),
    (
        "RFC 4592 2.2.1",
        "a.host.wild.example",
        rtype::A,
        &["NXDOMAIN AA", SOA],
    ),
    (
        "RFC 1034 4.2",
        "a.cut.example",
        rtype::A,
        &["NOERROR", "^ cut 300 NS ns.cut", "+ ns.cut 300 A 192.0.2.54"],
    ),
    (
        "RFC 4035 3.1.4.1",
        "cut.example",
        rtype::DS,
        &["NOERROR AA", "= cut 300 DS \\# 5 00010d0200"],
    ),
    (
        "RFC 4035 3.1.4.1",
        "bare.example",
        rtype::DS,
        &["NOERROR AA", SOA],
    ),
    ("RFC 6672 2.3", "d.example", rtype::A, &["NOERROR AA", SOA]),
    (
        "RFC 6672 3.1",
        "x.d.example",
        rtype::A,
        &[
            "NOERROR AA",
            "= d 300 DNAME wild",
            "= x.d 300 CNAME x.wild",
            "= x.wild 300 A 192.0.2.2",
        ],
    ),
    (
        "RFC 6672 3.1",
        "x.dout.example",
        rtype::A,
        &[
            "NOERROR AA",
            "= dout 300 DNAME test.",
            "= x.dout 300 CNAME x.test.",
            "> x.test.",
        ],
    ),
    (
        "RFC 6672 3.1: the same DNAME twice",
        "back.once.example",
        rtype::A,
        &[
            "NOERROR AA",
            "= once 300 DNAME twice",
            "= back.once 300 CNAME back.twice",
            "= back.twice 300 CNAME next.once",
            "= next.once 300 CNAME next.twice",
            "= next.twice 300 A 192.0.2.5",
        ],
    ),
    (
        "RFC 6672 3.1",
        "x.self.example",
        rtype::A,
        &[
            "NOERROR AA",
            "= self 300 DNAME x.self",
            "= x.self 300 CNAME x.x.self",
        ],
    ),
    (
        "RFC 1035 3.3.9",
        "mail.example",
        rtype::MX,
        &["NOERROR AA", "= mail 300 MX 1 www", "+ www 300 A 192.0.2.1"],
    ),
    (
        "RFC 2782",
        "_s._tcp.example",
        rtype::SRV,
        &[
            "NOERROR AA",
            "= _s._tcp 300 SRV 0 0 1 www",
            "+ www 300 A 192.0.2.1",
        ],
    ),
    (
        "RFC 9460 4.1: of an alias's target, its bindings and addresses",
        "web.example",
        rtype::HTTPS,
        &[
            "NOERROR AA",
            r"= web 300 HTTPS \# 16 000004706f6f6c076578616d706c6500",
            "+ pool 300 A 192.0.2.4",
            r"+ pool 300 HTTPS \# 10 00010000010003026832",
        ],
    ),
    (
        "RFC 9460 2.5.2: one without a target is of its owner",
        "pool.example",
        rtype::HTTPS,
        &[
            "NOERROR AA",
            r"= pool 300 HTTPS \# 10 00010000010003026832",
            "+ pool 300 A 192.0.2.4",
        ],
    ),
    (
        "RFC 9460 2.5.1: an alias to nothing",
        "nothing.example",
        rtype::HTTPS,
        &["NOERROR AA", r"= nothing 300 HTTPS \# 3 000000"],
    ),
    (
        "RFC 1035 3.3.11",
        "example",
        rtype::NS,
        &["NOERROR AA", "= example. 300 NS ns", "+ ns 300 A 192.0.2.53"],
    ),
    ("", "test", rtype::A, &["not mine"]),
];

#[test]
fn names_are_answered() {
    let file = file(ZONE, &[]);
    for &(section, name, qtype, expected) in ANSWERS {
        assert_eq!(
            said(&file, name, qtype),
            expected,
            "RFC {section}: {name} {qtype}"
        );
    }
}

/// RFC 6672 section 2.2.
#[test]
fn what_becomes_too_long_is_said_to_be() {
    let long = ["a".repeat(63), "b".repeat(63), "c".repeat(63)].join(".");
    let file = file(&format!("{ZONE}long DNAME {long}\n"), &[]);
    assert_eq!(
        said(&file, &format!("{}.long.example", "d".repeat(63)), rtype::A)[0],
        "YXDOMAIN AA"
    );
}

#[test]
fn some_names_are_left_to_others() {
    let file = file(ZONE, &["none.example."]);
    assert_eq!(said(&file, "a.none.example", rtype::A), ["not mine"]);
    assert_eq!(said(&file, "other.example", rtype::A)[0], "NXDOMAIN AA");
    // An answer with an alias is not passed on, even if the alias's target would be.
    assert_eq!(said(&file, "gone.example", rtype::A)[0], "NXDOMAIN AA");
}

/// The bytes of an answer, its records by section, and whether it is truncated.
fn counted(file: &File, name: &str, qtype: u16) -> (usize, [u16; 3], bool) {
    counted_in(file, name, qtype, MESSAGE_MAXIMUM)
}

fn counted_in(file: &File, name: &str, qtype: u16, room: usize) -> (usize, [u16; 3], bool) {
    let Resolution::Answer { answer, .. } = resolve_in(file, name, qtype, false, room) else {
        panic!("{name} is not answered");
    };
    let message = &answer.message;
    (message.len(), counts(message), message[2] & 2 != 0)
}

const HEAD: &str = "$TTL 300\n@ SOA ns admin 1 2 3 4 60\n@ NS ns\nns A 192.0.2.53\n";

/// Addresses of a name, in a network of sixteen bits.
fn addresses(name: &str, count: u16) -> String {
    let addresses = (0..count).map(|at| format!("{name} A 10.0.{}.{}\n", at >> 8, at & 255));
    addresses.collect()
}

/// Each target has all addresses of a wildcard, 2 250 000 in all, but the message's size bounds the work.
#[test]
fn an_answer_costs_what_it_holds_and_not_what_lies_behind_it() {
    let services: String = (0..1500)
        .map(|at| format!("_s._tcp SRV 0 0 1 h{at}.wild\n"))
        .collect();
    let file = file(&[HEAD, &services, &addresses("*.wild", 1500)].concat(), &[]);
    let (octets, [answers, _, additional], truncated) = counted(&file, "_s._tcp.example", rtype::SRV);
    assert_eq!((answers, truncated), (1500, false));
    // The first target's addresses do not fit, and no set is sent in part (RFC 2181 section 9).
    assert!(
        octets <= 65_535 && additional % 1500 == 0,
        "{octets} octets, {additional} addresses"
    );
}

/// RFC 2181 section 9: additional records are left out first, without TC.
#[test]
fn addresses_that_do_not_fit_are_left_out() {
    let hosts: String = (0..200).map(|at| addresses(&format!("h{at}"), 22)).collect();
    let services: String = (0..200).map(|at| format!("_s._tcp SRV 0 0 1 h{at}\n")).collect();
    let file = file(&[HEAD, &hosts, &services].concat(), &[]);
    let (octets, [answers, _, additional], truncated) = counted(&file, "_s._tcp.example", rtype::SRV);
    assert_eq!((answers, truncated, additional % 22), (200, false, 0));
    assert!(
        octets > 60_000 && additional > 3000,
        "{octets} octets, {additional} addresses"
    );
}

/// RFC 9471 section 3.1. Addresses of servers elsewhere may be missing without TC.
#[test]
fn a_referral_has_the_glue_it_needs_or_tc() {
    for (servers, truncated) in [
        (["a.cut", "b.cut"], true),
        (["a.cut", "b"], false),
        (["b", "a.cut"], false),
    ] {
        let [one, other] = servers.map(|server| format!("cut NS {server}\n") + &addresses(server, 20));
        let file = file(&[HEAD, &one, &other].concat(), &[]);
        let Resolution::Answer { answer, .. } = resolve_in(&file, "x.cut.example", rtype::A, false, 512)
        else {
            panic!("{servers:?}");
        };
        let glue = record_lines(&answer.message, Section::Additional);
        assert_eq!(
            (glue.len(), answer.message[2] & 2 != 0),
            (20, truncated),
            "{servers:?}"
        );
        assert!(glue.iter().all(|line| line.starts_with("a.cut.")), "{glue:?}");
    }
}

/// A host named by several records has its addresses once.
#[test]
fn a_host_is_looked_up_once() {
    let file = file(
        &[HEAD, "m MX 1 www\nm MX 2 www\nm MX 3 WWW\nwww A 192.0.2.1\n"].concat(),
        &[],
    );
    assert_eq!(counted(&file, "m.example", rtype::MX).1, [3, 0, 1]);
}

/// RFC 2181 section 9: a set that fits into no message is truncated, with TC.
#[test]
fn of_a_set_that_no_message_holds_there_is_what_fits() {
    let file = file(&[HEAD, &addresses("wide", 5000)].concat(), &[]);
    let (octets, [answers, ..], truncated) = counted(&file, "wide.example", rtype::A);
    assert_eq!((answers, truncated), (4094, true));
    assert!(octets <= 65_535, "{octets}");
    // A datagram holds fewer of them: no more is written.
    let (octets, [answers, ..], truncated) = counted_in(&file, "wide.example", rtype::A, 512);
    assert_eq!((answers, truncated), (30, true));
    assert!(octets <= 512, "{octets}");
}
