//! What one zone leaves to another: aliases out of the zone (RFC 1034 section 4.3.2, step 3a), and DS records
//! above its cut.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::harness::client::ask_from;
use crate::harness::upstream::Reply;
use crate::harness::{Message, Proxy, Upstream, flags, forward_once};

/// Writes a zone file with these records, and returns the configuration that serves it.
fn served(folder: &Path, zone: &str, records: &str) -> String {
    let file = folder.join(zone);
    fs::write(
        &file,
        format!("$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\n{records}"),
    )
    .unwrap();
    format!("zone {zone:?} {{ file {file:?} }}\n")
}

/// An upstream with addresses for these names, and nothing below them.
fn addresses(of: &'static [(&'static str, &'static str)]) -> Upstream {
    Upstream::start(move |asked| {
        let known = of.iter().find(|(name, _)| *name == asked.name());
        match known {
            Some((name, address)) if asked.is("A") => asked.answer(&[&format!("{name} 300 A {address}")]),
            Some(_) => asked.denial("NOERROR", Some("test. 30 SOA ns.test. admin.test. 1 2 3 4 5")),
            None => asked.denial("NXDOMAIN", Some("test. 30 SOA ns.test. admin.test. 1 2 3 4 5")),
        }
    })
}

/// The rcode, whether AA is set, and the answers.
fn said(answer: &Message) -> String {
    let mut said = answer.rcode();
    if answer.has(flags::AA) {
        said.push_str(" AA");
    }
    for record in answer.answers() {
        let _ = write!(said, " | {record}");
    }
    said
}

/// Names of a zone file, and the expected answers.
const LED_ON: [(&str, &str); 9] = [
    (
        "out",
        "NOERROR AA | out.one.example. CNAME www.test. | www.test. A 192.0.2.1",
    ),
    (
        "chain",
        "NOERROR AA | chain.one.example. CNAME out.one.example. | out.one.example. CNAME www.test. | \
     www.test. A 192.0.2.1",
    ),
    (
        "a.wild",
        "NOERROR AA | a.wild.one.example. CNAME www.test. | www.test. A 192.0.2.1",
    ),
    (
        "www.d",
        "NOERROR AA | d.one.example. TYPE39 \\# 6 047465737400 | www.d.one.example. CNAME www.test. | www.test. A 192.0.2.1",
    ),
    (
        "other",
        "NOERROR AA | other.one.example. CNAME a.two.example. | a.two.example. A 192.0.2.2",
    ),
    (
        "child",
        "NOERROR AA | child.one.example. CNAME a.sub.one.example. | a.sub.one.example. A 192.0.2.3",
    ),
    (
        "undelegated",
        "NOERROR AA | undelegated.one.example. CNAME a.bare.one.example. | a.bare.one.example. A 192.0.2.4",
    ),
    // The answer of the zone's own upstream, not the public one.
    (
        "hidden",
        "NOERROR AA | hidden.one.example. CNAME x.split.test. | x.split.test. A 10.0.0.9",
    ),
    // RFC 6604 section 3: the rcode is about the last name.
    ("gone", "NXDOMAIN AA | gone.one.example. CNAME none.test."),
];

#[test]
fn an_alias_that_leads_out_of_a_zone_file_is_followed_to_whoever_owns_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let public = addresses(&[("www.test.", "192.0.2.1"), ("x.split.test.", "192.0.2.9")]);
    let private = addresses(&[("x.split.test.", "10.0.0.9")]);
    let mut text = served(
        folder.path(),
        "one.example",
        "out CNAME www.test.\ngone CNAME none.test.\nd DNAME test.\nother CNAME a.two.example.\n\
         chain CNAME out\nsub NS ns.sub\nns.sub A 192.0.2.53\nchild CNAME a.sub\nhidden CNAME x.split.test.\n\
         undelegated CNAME a.bare\n*.wild CNAME www.test.\nloop CNAME loop.two.example.\n",
    );
    text += &served(
        folder.path(),
        "two.example",
        "a A 192.0.2.2\nloop CNAME loop.one.example.\n",
    );
    text += &served(folder.path(), "sub.one.example", "a A 192.0.2.3\n");
    text += &served(folder.path(), "bare.one.example", "a A 192.0.2.4\n");
    let _ = writeln!(
        text,
        "zone \"split.test\" {{ {} }}",
        forward_once(private.address)
    );
    let _ = writeln!(
        text,
        "zone \"test\" {{ cache; {} }}",
        forward_once(public.address)
    );
    let proxy = Proxy::start(&text);
    for (name, expected) in LED_ON {
        assert_eq!(
            said(&proxy.query(&format!("{name}.one.example"), "A")),
            expected,
            "{name}"
        );
    }
    let nothing = proxy.query("out.one.example", "TXT");
    assert_eq!(said(&nothing), "NOERROR AA | out.one.example. CNAME www.test.");
    // RFC 2308 section 2.2: the denying zone's SOA says for how long.
    assert_eq!(
        nothing.authority[0].without_ttl(),
        "test. SOA ns.test. admin.test. 1 2 3 4 5"
    );
    assert_eq!(
        said(&proxy.query("out.one.example", "CNAME")),
        "NOERROR AA | out.one.example. CNAME www.test."
    );
    assert_eq!(proxy.query("loop.one.example", "A").rcode(), "SERVFAIL");
    // A target that has been resolved is not asked for again.
    assert_eq!(
        public
            .asked("www.test.")
            .iter()
            .filter(|asked| asked.is("A"))
            .count(),
        1
    );
}

/// The client must ask another server for the target (RFC 1034 section 4.3.2, step 3a).
#[test]
fn an_alias_whose_target_is_nobodys_here_is_all_of_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let broken = Upstream::start(|asked| asked.denial("SERVFAIL", None));
    let mut text = served(
        folder.path(),
        "one.example",
        "out CNAME www.elsewhere.\nbroken CNAME www.test.\n",
    );
    let _ = writeln!(text, "zone \"test\" {{ {} }}", forward_once(broken.address));
    let proxy = Proxy::start(&text);
    assert_eq!(
        said(&proxy.query("out.one.example", "A")),
        "NOERROR AA | out.one.example. CNAME www.elsewhere."
    );
    assert_eq!(proxy.query("broken.one.example", "A").rcode(), "SERVFAIL");
    // Without RD, nothing is resolved for the client.
    let query = Message::query("broken.one.example", "A").clear(flags::RD);
    assert_eq!(
        said(&proxy.ask(&query)),
        "NOERROR AA | broken.one.example. CNAME www.test."
    );
}

/// What an alias leads to is decided for each client anew where the target's zone tells clients apart, although
/// the alias is in a cache.
#[test]
fn an_alias_into_a_zone_of_some_clients_is_cached_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let shop = served(folder.path(), "shop.example", "db CNAME db.corp.example.\n");
    let shop = shop.replace("{ file", "{ cache; file");
    fs::create_dir(folder.path().join("inside")).unwrap();
    let inside = served(&folder.path().join("inside"), "corp.example", "db A 10.0.0.1\n");
    let inside = inside.replace("{ file", "{ from \"127.0.0.2\"; file");
    let outside = served(folder.path(), "corp.example", "db A 192.0.2.1\n");
    let proxy = Proxy::start(&format!("{shop}{inside}{outside}"));
    let said_to = |number| {
        let query = Message::query("db.shop.example", "A");
        said(&ask_from([127, 0, 0, number].into(), proxy.address, &query))
    };
    for _ in 0..2 {
        for (client, address) in [(2, "10.0.0.1"), (3, "192.0.2.1")] {
            assert_eq!(
                said_to(client)
                    .trim_start_matches("NOERROR AA")
                    .trim_start_matches("NOERROR"),
                format!(" | db.shop.example. CNAME db.corp.example. | db.corp.example. A {address}")
            );
        }
    }
}

/// It fails, and like other failures it is cached (RFC 9520 section 3.2).
#[test]
fn a_loop_of_aliases_is_followed_once() {
    let folder = tempfile::tempdir().unwrap();
    let looping = |zone: &str, to: &str| {
        let text = served(folder.path(), zone, &format!("loop CNAME loop.{to}.\n"));
        text.replace("{ file", "{ cache { failure \"5m\" }; file")
    };
    let text = looping("one.example", "two.example") + &looping("two.example", "one.example");
    let proxy = Proxy::start(&text);
    let misses = || proxy.metrics().sum("dnsweir_cache_misses_total", &[]);
    assert_eq!(proxy.query("loop.one.example", "A").rcode(), "SERVFAIL");
    // Once around, as far as where it began.
    let once = misses();
    assert!(once <= 4.0, "{once}");
    for name in ["loop.one.example", "loop.two.example"] {
        assert_eq!(proxy.query(name, "A").rcode(), "SERVFAIL");
        assert_eq!(misses(), once, "{name}");
    }
}

/// That is cached for the name from which all of it is too long. Names further on have answers.
#[test]
fn a_chain_of_aliases_that_is_too_long_is_followed_once() {
    let folder = tempfile::tempdir().unwrap();
    let part = |zone: &str, other: &str, first: u32| {
        let aliases = (first..11).step_by(2);
        let aliases = aliases.map(|at| format!("a{at} CNAME a{}.{other}.\n", at + 1));
        let records: String = aliases.chain(["a11 A 192.0.2.1\n".to_owned()]).collect();
        let text = served(folder.path(), zone, &records);
        text.replace("{ file", "{ cache { failure \"5m\" }; file")
    };
    let text = part("one.example", "two.example", 0) + &part("two.example", "one.example", 1);
    let proxy = Proxy::start(&text);
    let misses = || proxy.metrics().sum("dnsweir_cache_misses_total", &[]);
    assert_eq!(proxy.query("a0.one.example", "A").rcode(), "SERVFAIL");
    let once = misses();
    assert_eq!(proxy.query("a0.one.example", "A").rcode(), "SERVFAIL");
    assert_eq!(misses(), once);
    for name in ["a8.one.example", "a5.two.example"] {
        let answers = proxy.query(name, "A").answers();
        let last = answers.last().map(String::as_str);
        assert_eq!(last, Some("a11.two.example. A 192.0.2.1"), "{name}");
    }
}

/// Other clients are not led back.
#[test]
fn a_loop_for_some_clients_is_cached_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let shop = served(folder.path(), "shop.example", "db CNAME db.corp.example.\n");
    let shop = shop.replace("{ file", "{ cache; file");
    fs::create_dir(folder.path().join("inside")).unwrap();
    let inside = served(
        &folder.path().join("inside"),
        "corp.example",
        "db CNAME db.shop.example.\n",
    );
    let inside = inside.replace("{ file", "{ from \"127.0.0.2\"; cache; file");
    // There, all clients get the same answer for the name that a filter puts in place of one of theirs.
    let without_recursion = Upstream::start(|asked| {
        let alias = format!("{} 300 CNAME db.shop.example.", asked.name());
        Reply::Message(asked.message_with(&[&alias]).clear(flags::RA))
    });
    let rewritten = format!(
        "filter \"f\" {{ module \"builtin:rewrite\"; limits time=\"1s\"
             config {{ name \"exact\" \"db.corp.example\" \"db.internal.test\" }} }}
         zone \"corp.example\" {{ from \"127.0.0.2\"; cache; use \"f\"; {} }}\n",
        forward_once(without_recursion.address)
    );
    let outside = served(folder.path(), "corp.example", "db A 192.0.2.1\n");
    for inside in [inside, rewritten] {
        let proxy = Proxy::start(&format!("{shop}{inside}{outside}"));
        let asked_by = |number, name| {
            let query = Message::query(name, "A");
            ask_from([127, 0, 0, number].into(), proxy.address, &query)
        };
        for name in ["db.corp.example", "db.shop.example"].repeat(2) {
            assert_eq!(asked_by(2, name).rcode(), "SERVFAIL", "{name}");
            assert_eq!(
                asked_by(3, "db.shop.example").answers(),
                [
                    "db.shop.example. CNAME db.corp.example.",
                    "db.corp.example. A 192.0.2.1"
                ],
                "{name}"
            );
        }
    }
}

/// `clients` of a zone hold for those that come by an alias, too: they get the alias alone.
#[test]
fn an_alias_is_no_way_around_the_clients_of_a_zone() {
    let folder = tempfile::tempdir().unwrap();
    let shop = served(folder.path(), "shop.example", "db CNAME db.corp.example.\n");
    let shop = shop.replace("{ file", "{ cache; file");
    let corp = served(folder.path(), "corp.example", "db A 10.0.0.1\n");
    let corp = corp.replace("{ file", "{ clients { allow \"127.0.0.2\" }; file");
    let proxy = Proxy::start(&format!("{shop}{corp}"));
    let answers_to = |number| {
        let query = Message::query("db.shop.example", "A");
        ask_from([127, 0, 0, number].into(), proxy.address, &query)
            .answers()
            .join(" | ")
    };
    let alias = "db.shop.example. CNAME db.corp.example.";
    for _ in 0..2 {
        assert_eq!(answers_to(2), format!("{alias} | db.corp.example. A 10.0.0.1"));
        assert_eq!(answers_to(3), alias);
    }
}

/// RFC 4035 section 3.1.4.1.
#[test]
fn ds_is_asked_of_those_who_serve_the_zone_above() {
    let folder = tempfile::tempdir().unwrap();
    let ds = |asked: &crate::harness::upstream::Asked| -> Reply {
        asked.answer(&[&format!("{} 300 TXT above", asked.name())])
    };
    let above = Upstream::start(ds);
    let below = Upstream::start(|asked| asked.answer(&[&format!("{} 300 TXT below", asked.name())]));
    let mut text = served(folder.path(), "file.p", "www A 192.0.2.1\n");
    text += &served(folder.path(), "alone.q", "www A 192.0.2.1\n");
    let _ = writeln!(
        text,
        "zone \"secure.p\" {{ cache; {} }}",
        forward_once(below.address)
    );
    let _ = writeln!(text, "zone \"p\" {{ cache; {} }}", forward_once(above.address));
    let proxy = Proxy::start(&text);
    for (name, qtype, is_above, is_below) in [
        ("secure.p", "DS", 1, 0),
        ("x.secure.p", "DS", 0, 1),
        ("secure.p", "TYPE48", 0, 1),
        ("file.p", "DS", 1, 0),
        ("p", "DS", 1, 0),
    ] {
        proxy.query(name, qtype);
        // Health checks use other types.
        let count = |upstream: &Upstream| {
            let asked = upstream.asked(name);
            asked.iter().filter(|asked| asked.is(qtype)).count()
        };
        assert_eq!(
            (count(&above), count(&below)),
            (is_above, is_below),
            "{name} {qtype}"
        );
    }
    // There is no zone above here: its own servers answer.
    let answer = proxy.query("alone.q", "DS");
    assert_eq!((answer.rcode(), answer.has(flags::AA)), ("NOERROR".into(), true));
}
