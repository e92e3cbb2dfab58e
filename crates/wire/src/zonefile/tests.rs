//! Zone files, and the zones they define.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::zone::Redirect;
use super::{Bounds, Zone, read};
use crate::dns::name::Name;
use crate::dns::text::{data_text, type_text};

const BOUNDS: Bounds = Bounds { octets: 1 << 20 };

/// Every zone needs an SOA record.
const HEAD: &str = "@ 60 IN SOA ns admin 1 2 3 4 5\n";

fn load(folder: &Path, text: &str) -> Result<Arc<Zone>, Vec<String>> {
    let path = folder.join("zone");
    fs::write(&path, text).unwrap();
    read(&path, "example.", BOUNDS).map_err(|invalid| {
        let shown = invalid.mistakes.iter().map(|mistake| {
            assert!(!mistake.help.is_empty());
            let text = mistake.to_string();
            text.strip_prefix(&format!("{}/", folder.display()))
                .unwrap_or(&text)
                .to_owned()
        });
        shown.collect()
    })
}

/// The records of a zone except SOA, as lines in order.
fn lines(zone: &Zone) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, node) in &zone.nodes {
        for set in node.sets.iter().filter(|set| set.rtype != 6) {
            for data in &set.data {
                let (name, rtype) = (Name::lowercased(name), type_text(set.rtype));
                lines.push(format!(
                    "{name} {} {rtype} {}",
                    set.ttl,
                    data_text(data, set.rtype, 0..data.len())
                ));
            }
        }
    }
    lines.sort();
    lines
}

fn records(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    lines(&load(folder.path(), &format!("{HEAD}{text}")).unwrap())
}

/// RFC 1035 section 5.1, RFC 2308 section 4.
#[test]
fn entries_become_records() {
    for (text, expected) in [
        ("a 5 IN A 192.0.2.1", &["a.example. 5 A 192.0.2.1"][..]),
        ("a IN 5 A 192.0.2.1", &["a.example. 5 A 192.0.2.1"]),
        (
            "A.Example. 1h30m a 192.0.2.1 ; why",
            &["a.example. 5400 A 192.0.2.1"],
        ),
        // The last TTL written, unless $TTL sets another.
        ("a A 192.0.2.1", &["a.example. 60 A 192.0.2.1"]),
        (
            "a 7 A 192.0.2.1\nb A 192.0.2.1",
            &["a.example. 7 A 192.0.2.1", "b.example. 7 A 192.0.2.1"],
        ),
        (
            "$TTL 1d\na 7 A 192.0.2.1\nb A 192.0.2.1",
            &["a.example. 7 A 192.0.2.1", "b.example. 86400 A 192.0.2.1"],
        ),
        // The previous owner.
        (
            "a A 192.0.2.1\n  AAAA 2001:db8::1",
            &["a.example. 60 A 192.0.2.1", "a.example. 60 AAAA 2001:db8::1"],
        ),
        (
            "$ORIGIN sub\na A 192.0.2.1\n@ NS a\n$ORIGIN example.\nb CNAME @",
            &[
                "a.sub.example. 60 A 192.0.2.1",
                "b.example. 60 CNAME example.",
                "sub.example. 60 NS a.sub.example.",
            ],
        ),
        ("a MX ( 10 ; first\n  b )", &["a.example. 60 MX 10 b.example."]),
        (
            "a TXT a\"b c\"d \"\"",
            &["a.example. 60 TXT \"a\" \"b c\" \"d\" \"\""],
        ),
        ("a TXT \"two\nlines\"", &["a.example. 60 TXT \"two\\010lines\""]),
        (
            "a TXT \"\u{e9}\" @ \"@\" \\;",
            &["a.example. 60 TXT \"\\195\\169\" \"@\" \"@\" \";\""],
        ),
        ("a\\.b A 192.0.2.1", &["a\\.b.example. 60 A 192.0.2.1"]),
        ("\\@ A 192.0.2.1", &["\\@.example. 60 A 192.0.2.1"]),
        ("a TYPE65280 \\# 2 c0de", &["a.example. 60 TYPE65280 \\# 2 c0de"]),
        (
            "a CLASS1 TYPE1 \\# 4 c0000201\r\n",
            &["a.example. 60 A 192.0.2.1"],
        ),
        // A duplicate counts once, and a set has one TTL (RFC 2181 section 5).
        (
            "a 9 A 192.0.2.1\na 8 A 192.0.2.1\na 7 A 192.0.2.2",
            &["a.example. 7 A 192.0.2.1", "a.example. 7 A 192.0.2.2"],
        ),
    ] {
        assert_eq!(records(text), expected, "{text}");
    }
}

#[test]
fn soa_has_times_with_units() {
    let folder = tempfile::tempdir().unwrap();
    let zone = load(folder.path(), "@ SOA ns admin ( 2026 2h 30M 4w 1d )").unwrap();
    let soa = zone.node(zone.origin.as_bytes()).unwrap().set(6).unwrap();
    let text = data_text(&soa.data[0], 6, 0..soa.data[0].len());
    assert_eq!(text, "ns.example. admin.example. 2026 7200 1800 2419200 86400");
    // No TTL is written anywhere.
    assert_eq!((soa.ttl, zone.serial), (86400, 2026));
}

/// As BIND 9's named-compilezone writes them; another test compares with it.
#[test]
fn ranges_become_records() {
    for (text, expected) in [
        (
            "$GENERATE 1-3 h$ A 192.0.2.$",
            &[
                "h1.example. 60 A 192.0.2.1",
                "h2.example. 60 A 192.0.2.2",
                "h3.example. 60 A 192.0.2.3",
            ][..],
        ),
        (
            "$GENERATE 10-20/5 ${-9,3} 7 IN CNAME h${0,4,x}",
            &[
                "001.example. 7 CNAME h000a.example.",
                "006.example. 7 CNAME h000f.example.",
                "011.example. 7 CNAME h0014.example.",
            ],
        ),
        (
            "$GENERATE 1-1 \\$-$$-$ MX \"$ m${8,0,o}\"",
            &["\\$-\\$-1.example. 60 MX 1 m11.example."],
        ),
        (
            r#"$GENERATE 1-1 t TXT "\"a \$\" $""#,
            &[r#"t.example. 60 TXT "a $" "1""#],
        ),
        (
            "$GENERATE 291-291 ${0,0,n}.${0,7,N} NS ns",
            &["3.2.1.3.2.1.0.example. 60 NS ns.example."],
        ),
    ] {
        assert_eq!(records(text), expected, "{text}");
    }
}

#[test]
fn files_include_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("more")).unwrap();
    fs::write(
        folder.path().join("more/hosts"),
        "a A 192.0.2.1\n$ORIGIN other.example.\nb A 192.0.2.2\n",
    )
    .unwrap();
    let text = format!("{HEAD}$INCLUDE more/hosts\nc A 192.0.2.3\n$INCLUDE \"more/hosts\" sub\n A 192.0.2.4");
    let zone = load(folder.path(), &text).unwrap();
    let expected = [
        "a.example. 60 A 192.0.2.1",
        "a.sub.example. 60 A 192.0.2.1",
        "b.other.example. 60 A 192.0.2.2",
        "c.example. 60 A 192.0.2.3",
        "c.example. 60 A 192.0.2.4",
    ];
    assert_eq!(
        (lines(&zone), zone.files.len()),
        (expected.map(String::from).to_vec(), 3)
    );
}

/// A zone is read again only if one of its files has changed.
#[test]
fn what_is_the_same_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("more"), "a A 192.0.2.1").unwrap();
    let text = format!("{HEAD}$INCLUDE more");
    let first = load(folder.path(), &text).unwrap();
    assert!(Arc::ptr_eq(&first, &load(folder.path(), &text).unwrap()));
    fs::write(folder.path().join("more"), "a A 192.0.2.2").unwrap();
    let second = load(folder.path(), &text).unwrap();
    assert_ne!(first, second);
    assert_eq!(lines(&second), ["a.example. 60 A 192.0.2.2"]);
}

/// A text below the head, and its mistake.
const MISTAKES: &[(&str, &str)] = &[
    (
        "a A 192.0.2",
        "zone:2: the data of this A record cannot be read: expected IPv4 address",
    ),
    (
        "\n\na NS",
        "zone:4: the data of this NS record cannot be read: unexpected end of entry",
    ),
    (
        "a (\nA\n)",
        "zone:2: the data of this A record cannot be read: unexpected end of entry",
    ),
    ("a", "zone:2: the type and data of a record are missing"),
    ("a B 1", "zone:2: \"B\" is not a record type"),
    (
        "a ANY 1",
        "zone:2: records of type ANY are not allowed in zone files",
    ),
    ("a CH A 192.0.2.1", "zone:2: the class CH is not IN"),
    ("a..b A 192.0.2.1", "zone:2: \"a..b\" is not a name"),
    (
        "a NS b..c",
        "zone:2: the data of this NS record has not the form of its type",
    ),
    (
        "a.test. A 192.0.2.1",
        "zone:2: a.test. is not in the zone example.",
    ),
    ("a ( A 192.0.2.1", "zone:2: `(` is never closed"),
    ("a ) A 192.0.2.1", "zone:2: `)` has no `(` before it"),
    ("a TXT \"b", "zone:2: a quote is never closed"),
    ("$TTL", "zone:2: `$TTL` needs a number of seconds"),
    ("$TTL 1y", "zone:2: `$TTL` needs a number of seconds"),
    ("$TTL 2147483648", "zone:2: `$TTL` needs a number of seconds"),
    ("$ORIGIN a b", "zone:2: `$ORIGIN` needs one name"),
    ("$NONSENSE", "zone:2: there is no directive \"$NONSENSE\""),
    (
        "a SOA b c 1 2 3 4 5",
        "zone:2: an SOA record is below the name of the zone",
    ),
    (
        "@ SOA b c 1 2 3 4 5",
        "zone:2: there is another SOA record at this name",
    ),
    (
        "a CNAME b\na A 192.0.2.1",
        "zone:3: there is a CNAME and a A record at this name",
    ),
    (
        "a A 192.0.2.1\na CNAME b",
        "zone:3: there is a CNAME and a A record at this name",
    ),
    (
        "a CNAME b\na CNAME c",
        "zone:3: there is another CNAME record at this name",
    ),
    (
        "a DNAME b\na DNAME c",
        "zone:3: there is another DNAME record at this name",
    ),
    (
        "@ NSEC3PARAM 1 0 151 -",
        "zone:2: NSEC3 hashes more than 150 times",
    ),
    (
        "a NSEC3 1 0 0 - 0123456789ABCDEFGHIJKLMNOPQRSTUV A",
        "zone:2: the owner of this NSEC3 record is not a hash",
    ),
    (
        "$INCLUDE /etc/passwd",
        "zone:2: /etc/passwd is not in the folder of the zone file",
    ),
    ("$INCLUDE", "zone:2: `$INCLUDE` needs a file and at most one name"),
    (
        "$GENERATE 2-1 a A 1",
        "zone:2: the range 2-1 ends before it begins",
    ),
    (
        "$GENERATE 0-65536 a A 1",
        "zone:2: the range 0-65536 has 65537 numbers, and 65536 are the most",
    ),
    ("$GENERATE x a A 1", "zone:2: \"x\" is not a range"),
    (
        "$GENERATE 1-2 a",
        "zone:2: `$GENERATE` needs a range, a name, a type and data",
    ),
    (
        "$GENERATE 1-2 ${-2} A 192.0.2.1",
        "zone:2: the offset -2 makes a number below zero",
    ),
    (
        "$GENERATE 1-2 ${x} A 192.0.2.1",
        "zone:2: `${x}` is not an offset, a width and a base such as `${-1,3,x}`",
    ),
];

#[test]
fn mistakes_are_named_with_their_lines() {
    for &(text, expected) in MISTAKES {
        let folder = tempfile::tempdir().unwrap();
        let found = load(folder.path(), &format!("{HEAD}{text}")).unwrap_err();
        assert_eq!(found, [expected], "{text}");
    }
}

#[test]
fn whole_files_may_be_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let of = |text: &str| load(folder.path(), text).unwrap_err();
    assert_eq!(
        of("a 5 A 192.0.2.1"),
        ["zone: there is no SOA record at example."]
    );
    // Later mistakes are found, too, up to a limit.
    assert_eq!(
        of(&format!("{HEAD}a B\n\nb C\n")),
        [
            "zone:2: \"B\" is not a record type",
            "zone:4: \"C\" is not a record type"
        ]
    );
    assert_eq!(of(&"a\n".repeat(100)).len(), 20);
    assert_eq!(
        of("  A 192.0.2.1"),
        ["zone:1: no record before this one has a name"]
    );
    assert_eq!(of("a A 192.0.2.1"), ["zone:1: this record has no TTL"]);
    assert_eq!(of(&format!("{HEAD}$INCLUDE zone")).len(), 1);
    let none = read(&folder.path().join("none"), "example.", BOUNDS)
        .unwrap_err()
        .mistakes;
    assert!(none[0].problem.contains("cannot be read"), "{none:?}");
    let tight = Bounds { octets: 200 };
    let path = folder.path().join("zone");
    fs::write(&path, format!("{HEAD}a A 192.0.2.1\n")).unwrap();
    let tight = read(&path, "example.", tight).unwrap_err().mistakes;
    assert_eq!(tight[0].problem, "the zone takes more than 200 bytes of memory");
    let small = read(&path, "example.", Bounds { octets: 10 })
        .unwrap_err()
        .mistakes;
    assert!(
        small[0]
            .problem
            .ends_with("with it, the zone's files have more than 10 bytes left to them"),
        "{small:?}"
    );
}

/// RFC 4592 section 2.2.2, RFC 1034 section 4.2, RFC 6672 section 2.4.
#[test]
fn names_know_what_they_are_subject_to() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{HEAD}a.b.c A 192.0.2.1\ncut NS x.cut\nx.cut A 192.0.2.2\nlower.x.cut NS y\nd DNAME e\nbelow.d A 192.0.2.3"
    );
    let zone = load(folder.path(), &text).unwrap();
    let node = |name: &str| zone.node(Name::parse(name).unwrap().as_bytes()).unwrap();
    assert!(node("b.c.example").sets.is_empty() && node("c.example").redirect.is_none());
    let cut = Some((13, Redirect::Delegation));
    for name in ["cut.example", "x.cut.example", "lower.x.cut.example"] {
        assert_eq!(node(name).redirect, cut, "{name}");
    }
    assert_eq!(node("d.example").redirect, None);
    assert_eq!(node("below.d.example").redirect, Some((11, Redirect::Dname)));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in prop::collection::vec(prop_oneof![
        any::<u8>(),
        prop::sample::select(b" \t\n();\"\\$@.*#{},-/0123456789aAxn".to_vec()),
    ], 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zone");
        fs::write(&path, [HEAD.as_bytes(), &text].concat()).unwrap();
        let _ = read(&path, "example.", BOUNDS);
    }

    #[test]
    fn no_words_make_it_panic(words in prop::collection::vec(prop::sample::select(vec![
        "a", "@", "*", ".", "a.b", "a..", "\\", "\\0", "\\300", "\\.", "\"", "\"a\"", "\"\"", "(", ")", ";", "\n", "\n", "\t", "\\#", "4", "0",
        "c0000201", "A", "AAAA", "NS", "MX", "SOA", "TXT", "CNAME", "DNAME", "SRV", "NAPTR", "SVCB", "HTTPS", "CAA", "RRSIG", "NSEC", "NSEC3",
        "NSEC3PARAM", "DNSKEY", "DS", "CERT", "CSYNC", "URI", "TLSA", "LOC", "TYPE1", "TYPE65280", "IN", "1h", "192.0.2.1", "::1", "-", "1", "300",
        "alpn=h2", "key1=\"x\"", "20260101000000", "AAAA==", "$ORIGIN", "$TTL", "$GENERATE", "1-9/2", "${1,2,n}", "$", "IPSECKEY", "HINFO", "ZONEMD",
    ]), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zone");
        fs::write(&path, format!("{HEAD}{}", words.join(" "))).unwrap();
        let _ = read(&path, "example.", BOUNDS);
    }
}

/// Sets that fit into no message are rejected when read: queries would pay for them, and so would a load.
#[test]
fn sets_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let problem = |text: &str| {
        let mistakes = load(folder.path(), &format!("{HEAD}{text}")).map(|zone| zone.records);
        mistakes.unwrap_err()[0].clone()
    };
    let addresses: String = (0..5001)
        .map(|at| format!("a A 10.0.{}.{}\n", at >> 8, at & 255))
        .collect();
    assert_eq!(
        problem(&addresses),
        "zone:5002: a.example. has more than 5000 A records, more than fit into any message"
    );
    assert_eq!(
        problem("$GENERATE 0-65535 a TXT t-$\n"),
        "zone:2: a.example. has more than 5000 TXT records, more than fit into any message"
    );
    let types: String = (0..101)
        .map(|at| format!("a TYPE{} \\# 1 00\n", 65_280 + at))
        .collect();
    assert_eq!(
        problem(&types),
        "zone:102: this name has records of more than 100 types"
    );
}

/// Also in sets large enough for a hash table.
/// The reader goes on behind a mistake, and meets the record that did not fit again.
#[test]
fn one_record_too_many_is_a_mistake_however_often_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let twice = "$GENERATE 0-5000 a TXT t$\n".repeat(2);
    let mistakes = load(folder.path(), &[HEAD, &twice].concat()).unwrap_err();
    assert_eq!(
        mistakes[0],
        "zone:2: a.example. has more than 5000 TXT records, more than fit into any message"
    );
}

#[test]
fn the_same_record_twice_is_one() {
    let folder = tempfile::tempdir().unwrap();
    for count in [2, 16, 17, 4000] {
        let once: String = (0..count)
            .map(|at| format!("a A 10.0.{}.{}\n", at >> 8, at & 255))
            .collect();
        let zone = load(folder.path(), &[HEAD, &once, &once].concat()).unwrap();
        assert_eq!(zone.records, count + 1, "{count}");
    }
}
