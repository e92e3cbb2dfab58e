//! What a zone says, by RFC section.

use std::fs;

use super::File;
use crate::config::ZoneFile;
use crate::dns::name::Name;
use crate::dns::records::Section;
use crate::dns::text::record_lines;
use crate::dns::{CLASS_IN, rcode_text, rtype};
use crate::source::{Question, Resolution};
use crate::zonefile::{Bounds, read};

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
mail MX 1 www
_s._tcp SRV 0 0 1 www
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
    let name = Name::parse(name).unwrap();
    file.immediate(&Question {
        name: name.as_bytes(),
        qtype,
        qclass: CLASS_IN,
        flags: 0,
        dnssec_ok,
        subnet: None,
        signed: None,
        client: [127, 0, 0, 1].into(),
        zone: &Name::parse("example").unwrap(),
        tap: None,
        direct: true,
        traced: false,
    })
}

/// The rcode, AA, and the records of all sections, in order.
fn said(file: &File, name: &str, qtype: u16) -> Vec<String> {
    let Resolution::Answer {
        answer,
        authoritative,
    } = resolve(file, name, qtype, true)
    else {
        return vec!["not mine".into()];
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
    said
}

const SOA: &str = "^ example. 60 SOA ns admin 1 2 3 4 60";

/// Section of the RFC, name, type, and what is said.
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
    // The TTL of the SOA record is the lower one of its own and the last field.
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
        &["NOERROR AA", "= out 300 CNAME www.test."],
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
    // What is known of the name stays known.
    assert_eq!(said(&file, "gone.example", rtype::A)[0], "NXDOMAIN AA");
}

/// RFC 2181 section 9: more than a message holds is said to be more.
#[test]
fn what_no_message_holds_is_truncated() {
    let many: String = (0..4000)
        .map(|number| format!("big TXT {number:0>100}\n"))
        .collect();
    let file = file(&format!("{ZONE}{many}"), &[]);
    let Resolution::Answer { answer, .. } = resolve(&file, "big.example", rtype::TXT, false) else {
        panic!("no answer");
    };
    assert!(answer.message[2] & 2 != 0 && answer.answer_count() == 0);
}
