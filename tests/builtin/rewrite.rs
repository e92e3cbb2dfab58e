//! `rewrite`: names, types, classes, TTLs, rcodes, aliases.

use super::{anything, start};
use crate::harness::upstream::Asked;
use crate::harness::{Message, Proxy, Record, Reply, Stream, Upstream, flags, forward_once};

fn above(config: &str, upstream: &Upstream) -> Proxy {
    start("rewrite", config, "use \"f\"; cache", upstream)
}

/// The upstream sees the new name, the client only its own.
#[test]
fn names_are_rewritten_and_reverted() {
    let upstream = anything();
    let rules = r##"
        name "exact" "db.internal" "db.prod.test"
        name "prefix" "dev-" "prod-"
        name "suffix" "old.test" "new.test"
        name "substring" "us-west" "eu-north"
        name "regex" "^([a-z]+)-([a-z]+)\\.region\\.test$" "{2}.{1}.test"
    "##;
    let proxy = above(rules, &upstream);
    for (asked, becomes) in [
        ("db.internal", "db.prod.test"),
        ("DB.Internal", "db.prod.test"),
        ("dev-api.test", "prod-api.test"),
        ("a.old.test", "a.new.test"),
        ("old.test", "new.test"),
        ("api.us-west.test", "api.eu-north.test"),
        ("ftp-eu.region.test", "eu.ftp.test"),
        ("untouched.example", "untouched.example"),
    ] {
        let answer = proxy.query(asked, "A");
        assert_eq!(answer.answers.len(), 1, "{asked}: {answer}");
        assert!(
            answer.answers[0].name.eq_ignore_ascii_case(&format!("{asked}.")),
            "{asked}: {answer}"
        );
        assert!(upstream.count(becomes) >= 1, "{asked} did not become {becomes}");
    }
    assert_eq!(upstream.count("db.internal"), 0);
    // Both spellings of a name are one upstream query.
    assert_eq!(upstream.count("db.prod.test"), 1);
}

/// Every occurrence of the new name in the answer becomes the client's name; others stay.
#[test]
fn the_whole_answer_is_reverted() {
    let upstream = Upstream::start(|asked| {
        let mut message =
            asked.message_with(&["new.test. 300 CNAME host.test.", "host.test. 300 A 192.0.2.1"]);
        message.authority.push(Record::parse("test. 300 NS ns.test."));
        Reply::Message(message)
    });
    let proxy = above("name \"exact\" \"old.test\" \"new.test\"", &upstream);
    for _ in 0..2 {
        let answer = proxy.query("old.test", "A");
        assert_eq!(
            answer.answers(),
            ["old.test. CNAME host.test.", "host.test. A 192.0.2.1"]
        );
        assert_eq!(answer.authority[0].name, "test.");
    }
    // A client can see the new name if configured.
    let keep = above(
        "name \"exact\" \"old.test\" \"new.test\" answers=\"keep\"",
        &upstream,
    );
    assert_eq!(
        keep.query("old.test", "A").answers()[0],
        "new.test. CNAME host.test."
    );
}

/// Rules apply in order; the first match ends them unless it says `continue`.
#[test]
fn rules_stop_or_continue() {
    let upstream = anything();
    let chain = |then: &str| {
        format!("name \"exact\" \"a.test\" \"b.test\" {then}\nname \"exact\" \"b.test\" \"c.test\"")
    };
    for (then, becomes) in [
        ("", "b.test"),
        ("then=\"stop\"", "b.test"),
        ("then=\"continue\"", "c.test"),
    ] {
        let before = upstream.count(becomes);
        let proxy = above(&chain(then), &upstream);
        assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.1"]);
        assert_eq!(upstream.count(becomes), before + 1, "{then}");
    }
}

#[test]
fn types_and_classes_are_rewritten() {
    let upstream = anything();
    let proxy = above("type \"ANY\" \"HINFO\"\nclass \"CH\" \"IN\"", &upstream);
    proxy.query("a.test", "ANY");
    assert!(upstream.asked("a.test").iter().all(|asked| asked.is("TYPE13")));
    assert_eq!(upstream.count("a.test"), 1);
    let answer = proxy.ask(&Message::query("b.test", "A").class(3));
    assert_eq!(answer.rcode(), "NOERROR");
    assert_eq!(upstream.asked("b.test")[0].question().class, 1);
}

/// Bounds of TTLs, and other rcodes, for the names that the client asks for.
#[test]
fn ttls_and_rcodes_of_answers_are_rewritten() {
    let upstream = Upstream::start(|asked| match asked.name().split('.').next() {
        Some("fail") => asked.denial("REFUSED", None),
        _ => asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]),
    });
    let rules = r#"
        ttl "suffix" "short.test" max="60s" then="continue"
        ttl "suffix" "long.test" min="900s"
        ttl "exact" "fixed.test" "5s"
        rcode "suffix" "test" "REFUSED" "NXDOMAIN"
    "#;
    for pipeline in ["use \"f\"; cache", "cache; use \"f\"", "use \"f\""] {
        let proxy = start("rewrite", rules, pipeline, &upstream);
        for (name, ttl) in [
            ("a.short.test", 60),
            ("a.long.test", 900),
            ("fixed.test", 5),
            ("other.test", 300),
        ] {
            assert_eq!(proxy.query(name, "A").ttl(), ttl, "{name}, {pipeline}");
        }
        assert_eq!(proxy.query("fail.test", "A").rcode(), "NXDOMAIN", "{pipeline}");
        assert_eq!(proxy.query("fail.example", "A").rcode(), "REFUSED", "{pipeline}");
    }
}

/// An alias is a CNAME record and what its target resolves to, through the zone that owns it.
#[test]
fn aliases_are_resolved_through_their_own_zone() {
    let inner = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.5", asked.name())]));
    let outer = anything();
    let proxy = Proxy::start(&format!(
        "filter \"f\" {{ module \"builtin:rewrite\"; limits time=\"1s\"; config {{ cname \"exact\" \"www.test\" \"web.inner.example\" }} }}\n\
         zone \"inner.example\" {{ cache; {} }}\nzone \".\" {{ use \"f\"; cache; {} }}",
        forward_once(inner.address),
        forward_once(outer.address)
    ));
    for _ in 0..2 {
        let answer = proxy.query("www.test", "A");
        assert_eq!(
            answer.answers(),
            [
                "www.test. CNAME web.inner.example.",
                "web.inner.example. A 192.0.2.5"
            ]
        );
    }
    assert_eq!(
        (inner.count("web.inner.example"), outer.count("www.test")),
        (1, 0)
    );
    // A query for CNAME gets only the alias.
    assert_eq!(
        proxy.query("www.test", "CNAME").answers(),
        ["www.test. CNAME web.inner.example."]
    );
}

/// An upstream with alias chains of several lengths, and other names.
fn aliases() -> Upstream {
    Upstream::start(|asked| {
        let name = asked.name();
        let lines: &[&str] = match name.as_str() {
            "abc.test." => &["abc.test. 5 CNAME def.old.", "def.old. 5 A 192.0.2.99"],
            "gone.test." => &["gone.test. 5 CNAME none.old."],
            "chain.test." => &[
                "chain.test. 5 CNAME one.test.",
                "one.test. 5 CNAME two.prod.",
                "two.prod. 5 CNAME three.test.",
                "three.test. 5 A 192.0.2.99",
            ],
            "dotted.test." => &["dotted.test. 5 CNAME a.web.b.site."],
            "two.staging." => &["two.staging. 7 CNAME final.test.", "final.test. 7 A 192.0.2.7"],
            "lost.new." | "none.new." => return asked.denial("NXDOMAIN", None),
            _ => return asked.answer(&[&format!("{name} 300 A 192.0.2.1")]),
        };
        asked.answer(lines)
    })
}

/// Aliases in answers get new targets, by each kind of match, with the records and rcode of the new target.
#[test]
fn targets_of_aliases_are_rewritten() {
    let upstream = aliases();
    let rules = r##"
        target "exact" "def.old" "xyz.new" then="continue"
        target "exact" "none.old" "none.new" then="continue"
        target "suffix" "prod" "staging" then="continue"
        target "regex" #"(.*)\.web\.(.*)\.site\.$"# "{1}.webapp.{2}.org." final-dot=#true
        name "exact" "unreached.test" "other.test"
    "##;
    for pipeline in ["use \"f\"; cache", "cache; use \"f\""] {
        let proxy = start("rewrite", rules, pipeline, &upstream);
        for _ in 0..2 {
            for (name, answers) in [
                (
                    "abc.test",
                    &["abc.test. CNAME xyz.new.", "xyz.new. A 192.0.2.1"][..],
                ),
                (
                    "chain.test",
                    &[
                        "chain.test. CNAME one.test.",
                        "one.test. CNAME two.staging.",
                        "two.staging. CNAME final.test.",
                        "final.test. A 192.0.2.7",
                    ],
                ),
                (
                    "dotted.test",
                    &[
                        "dotted.test. CNAME a.webapp.b.org.",
                        "a.webapp.b.org. A 192.0.2.1",
                    ],
                ),
                ("plain.test", &["plain.test. A 192.0.2.1"]),
                ("gone.test", &["gone.test. CNAME none.new."]),
                ("unreached.test", &["unreached.test. A 192.0.2.1"]),
            ] {
                assert_eq!(proxy.query(name, "A").answers(), answers, "{name}, {pipeline}");
            }
            // RFC 6604 section 3: the rcode of the last name.
            assert_eq!(proxy.query("gone.test", "A").rcode(), "NXDOMAIN", "{pipeline}");
        }
    }
    assert_eq!(upstream.count("other.test"), 0);
}

/// The new target's own alias is rewritten to that target again: this ends, too.
#[test]
fn loops_of_targets_end() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 5 CNAME loop.test.", asked.name())]));
    let proxy = above("target \"exact\" \"loop.test\" \"target.test\"", &upstream);
    let answer = proxy.query("a.test", "A");
    assert!(
        !answer.answers.is_empty() && answer.answers.len() < 50,
        "{answer}"
    );
    assert!(upstream.count("target.test") < 20);
}

/// Names in record data change with the question.
#[test]
fn names_in_data_are_rewritten() {
    let upstream = Upstream::start(|asked| match asked.is("MX") {
        true => asked.answer(&[
            &format!("{} 300 MX 10 mail.new.test.", asked.name()),
            &format!("{} 300 MX 20 backup.example.", asked.name()),
        ]),
        false => asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]),
    });
    let rules = r##"name "suffix" "old.test" "new.test" { value "suffix" "new.test" "old.test"; }"##;
    let proxy = above(rules, &upstream);
    for _ in 0..2 {
        let answer = proxy.query("old.test", "MX");
        assert_eq!(
            answer.answers(),
            [
                "old.test. MX 10 mail.old.test.",
                "old.test. MX 20 backup.example."
            ]
        );
    }
    assert_eq!(
        proxy.query("new.test", "MX").answers()[0],
        "new.test. MX 10 mail.new.test."
    );
}

/// Aliases to themselves, or to each other, end.
#[test]
fn alias_loops_end() {
    let upstream = anything();
    let proxy = above(
        "cname \"exact\" \"a.test\" \"b.test\"\ncname \"exact\" \"b.test\" \"a.test\"",
        &upstream,
    );
    let answer = proxy.query("a.test", "A");
    assert!(
        ["SERVFAIL", "NOERROR"].contains(&answer.rcode().as_str()),
        "{answer}"
    );
    assert!(answer.answers.len() < 50, "{answer}");
    assert!(!answer.has(flags::TC));
}

/// Each of the names is an alias, wherever the loop was entered.
#[test]
fn aliases_of_a_loop_are_answers() {
    let rules = "cname \"exact\" \"a.test\" \"b.test\"\ncname \"exact\" \"b.test\" \"a.test\"";
    let proxy = start(
        "rewrite",
        rules,
        "cache { failure \"5m\" }\nuse \"f\"",
        &anything(),
    );
    for (name, target) in [("a.test", "b.test"), ("b.test", "a.test")].repeat(2) {
        assert_eq!(
            proxy.query(name, "CNAME").answers(),
            [format!("{name}. CNAME {target}.")]
        );
    }
}

/// A rewritten query stays in the zone of the client's name: a filter changes the question, not the pipeline.
#[test]
fn a_rewritten_query_stays_in_its_pipeline() {
    let (own, other) = (anything(), anything());
    let proxy = Proxy::start(&format!(
        "filter \"f\" {{ module \"builtin:rewrite\"; limits time=\"1s\"; config {{ name \"exact\" \"a.test\" \"a.other\" }} }}\n\
         zone \"test\" {{ use \"f\"; {} }}\nzone \"other\" {{ {} }}",
        forward_once(own.address),
        forward_once(other.address)
    ));
    assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.1"]);
    assert_eq!((own.count("a.other"), other.count("a.other")), (1, 0));
}

/// A reply that is complete over TCP only.
fn large(asked: &Asked, message: Message) -> Reply {
    Reply::Message(match asked.tcp {
        true => message,
        false => asked.message_with(&[]).set(flags::TC),
    })
}

/// A verdict may have 64 edits of records, and answers more records.
#[test]
fn names_in_the_data_of_many_records_are_rewritten() {
    let upstream = Upstream::start(|asked| {
        let mut message = asked.message_with(&[]);
        for number in 0..80 {
            let (name, host) = (asked.name(), format!("host-{number}.new.test."));
            let service = Record::parse(&format!("{name} 300 SRV 1 2 {number} {host}"));
            message.answers.push(service);
            let address = Record::parse(&format!("{host} 300 A 192.0.2.{number}"));
            message.additional.push(address);
        }
        large(asked, message)
    });
    let rules = r##"name "suffix" "old.test" "new.test" { value "suffix" "new.test" "old.test"; }"##;
    for pipeline in ["use \"f\"; cache", "cache; use \"f\""] {
        let proxy = start("rewrite", rules, pipeline, &upstream);
        for _ in 0..2 {
            let answer = Stream::connect(proxy.address).ask(&Message::query("sip.old.test", "SRV"));
            let expected = (0..80).map(|at| format!("sip.old.test. SRV 1 2 {at} host-{at}.old.test."));
            assert_eq!(answer.answers(), expected.collect::<Vec<_>>(), "{pipeline}");
            assert_eq!(answer.additional.len(), 80, "{pipeline}");
        }
    }
}

/// The new target's records take the place of others, also in a section that had none.
#[test]
fn targets_may_have_many_records() {
    let upstream = Upstream::start(|asked| {
        let name = asked.name();
        if name == "abc.test." {
            return asked.answer(&["abc.test. 5 CNAME def.old.", "def.old. 5 A 192.0.2.99"]);
        }
        let mut message = asked.message_with(&[]);
        for number in 0..80 {
            let address = Record::parse(&format!("{name} 300 A 192.0.2.{number}"));
            message.answers.push(address);
        }
        for number in 0..2 {
            let server = Record::parse(&format!("new. 300 NS ns-{number}.new."));
            message.authority.push(server);
        }
        large(asked, message)
    });
    let proxy = above("target \"exact\" \"def.old\" \"xyz.new\"", &upstream);
    let answer = Stream::connect(proxy.address).ask(&Message::query("abc.test", "A"));
    let addresses = (0..80).map(|number| format!("xyz.new. A 192.0.2.{number}"));
    let expected = ["abc.test. CNAME xyz.new.".to_owned()]
        .into_iter()
        .chain(addresses);
    assert_eq!(answer.answers(), expected.collect::<Vec<_>>());
    assert_eq!(answer.authority.len(), 2);
}

/// A type that cannot be looked up does not make the filter fail, for which the name would be blamed.
#[test]
fn a_reserved_type_keeps_nobody_from_new_targets() {
    let upstream = aliases();
    let proxy = above("target \"exact\" \"def.old\" \"xyz.new\"", &upstream);
    for _ in 0..3 {
        let reserved = proxy.query("abc.test", "TYPE200").answers();
        assert_eq!(
            reserved.first().map(String::as_str),
            Some("abc.test. CNAME def.old.")
        );
    }
    assert_eq!(
        proxy.query("abc.test", "A").answers(),
        ["abc.test. CNAME xyz.new.", "xyz.new. A 192.0.2.1"]
    );
}
