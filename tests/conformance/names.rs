//! Names: special ones (RFC 6303, 6761, 7686, 8375, 9462, 9476), arbitrary octets (RFC 2181 section 11), case
//! (RFC 4343), and wildcards (RFC 4592).

use crate::harness::{Message, Proxy, Upstream, forward_once};

fn anything() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.question().name)]))
}

/// Names that never leave the machine.
#[test]
fn special_names_are_answered_here() {
    let upstream = anything();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    // RFC 6761 section 6.3: localhost and below.
    for name in ["localhost.", "LocalHost.", "www.localhost.", "a.b.localhost."] {
        let v4 = proxy.query(name, "A");
        assert_eq!(v4.answers(), [format!("{name} A 127.0.0.1")]);
        assert_eq!(proxy.query(name, "AAAA").answers(), [format!("{name} AAAA ::1")]);
        let other = proxy.query(name, "MX");
        assert_eq!(
            (other.rcode().as_str(), other.answers.len()),
            ("NOERROR", 0),
            "{name}"
        );
    }
    // RFC 6761 section 6.4, RFC 7686 section 2, RFC 9476 section 2.
    for name in ["invalid.", "www.invalid.", "www.onion.", "www.ALT."] {
        for qtype in ["A", "AAAA", "TXT"] {
            assert_eq!(proxy.query(name, qtype).rcode(), "NXDOMAIN", "{name} {qtype}");
        }
    }
    // RFC 9462 section 6.4: an empty answer, which may be cached.
    for (name, qtype) in [
        ("_dns.resolver.arpa.", "TYPE64"),
        ("resolver.arpa.", "A"),
        ("a.b.resolver.arpa.", "TXT"),
    ] {
        let answer = proxy.query(name, qtype);
        assert_eq!(
            (answer.rcode().as_str(), answer.answers.len()),
            ("NOERROR", 0),
            "{name} {qtype}"
        );
        assert_eq!(answer.authority[0].name, "resolver.arpa.", "{name} {qtype}");
    }
    let forwarded: Vec<String> = upstream.everything().iter().map(|asked| asked.name()).collect();
    let special = |name: &String| {
        ["localhost.", "invalid.", "onion.", "alt.", "resolver.arpa."]
            .iter()
            .any(|end| name.ends_with(end))
    };
    assert!(!forwarded.iter().any(special), "{forwarded:?}");

    // Names that only look similar are ordinary names.
    for name in ["notlocalhost.", "localhost.example.", "valid.", "alternative."] {
        assert_eq!(proxy.query(name, "A").answers(), [format!("{name} A 192.0.2.1")]);
    }
}

/// A configured zone is more specific than the rule.
#[test]
fn a_zone_of_the_operators_takes_a_special_name_over() {
    let upstream = anything();
    let proxy = Proxy::start(&format!(
        "zone \"svc.alt\" {{ {} }}",
        forward_once(upstream.address)
    ));
    assert_eq!(
        proxy.query("www.svc.alt.", "A").answers(),
        ["www.svc.alt. A 192.0.2.1"]
    );
    assert_eq!(proxy.query("www.alt.", "A").rcode(), "NXDOMAIN");
}

/// RFC 6303 and RFC 8375, if enabled: except for DS at the apex, and configured zones within.
#[test]
fn locally_served_zones_are_served_on_demand() {
    let upstream = anything();
    let forward = forward_once(upstream.address);
    let zones = format!("zone \"96.10.in-addr.arpa\" {{ {forward} }}\nzone \".\" {{ cache; {forward} }}");
    let proxy = Proxy::start(&format!("local-zones\n{zones}"));
    let soa = |apex: &str| format!("{apex} SOA {apex} nobody.invalid. 1 3600 1200 604800 10800");
    for (name, apex) in [
        ("1.0.0.10.in-addr.arpa.", "10.in-addr.arpa."),
        ("1.0.20.172.in-addr.arpa.", "20.172.in-addr.arpa."),
        ("1.1.168.192.in-addr.arpa.", "168.192.in-addr.arpa."),
        ("1.0.64.100.in-addr.arpa.", "64.100.in-addr.arpa."),
        ("1.0.0.d.f.ip6.arpa.", "d.f.ip6.arpa."),
        ("printer.home.arpa.", "home.arpa."),
    ] {
        let denied = proxy.query(name, "PTR");
        assert_eq!(denied.rcode(), "NXDOMAIN", "{name}");
        let authority: Vec<String> = denied
            .authority
            .iter()
            .map(|record| record.without_ttl())
            .collect();
        assert_eq!(authority, [soa(apex)], "{name}");
        assert_eq!(proxy.query(apex, "SOA").answers(), [soa(apex)]);
        assert_eq!(upstream.count(name) + upstream.count(apex), 0, "{name}");
        // RFC 8375 section 4, RFC 4035 section 3.1.4.1.
        proxy.query(apex, "TYPE43");
        assert_eq!(upstream.count(apex), 1, "{apex}");
    }
    let service = "10.0.96.10.in-addr.arpa.";
    assert_eq!(proxy.query(service, "PTR").rcode(), "NOERROR");
    assert_eq!(upstream.count(service), 1, "a zone of the operator's");
    // Off by default, because a cluster's own names may be there.
    proxy.reload(&zones);
    proxy.query("1.0.0.10.in-addr.arpa.", "PTR");
    assert_eq!(upstream.count("1.0.0.10.in-addr.arpa."), 1);
}

/// RFC 2181 section 11: a name may contain any octets; those of hosts are a convention.
#[test]
fn any_octets_are_a_name() {
    let upstream = anything();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let longest_label = format!("{}.example.", "l".repeat(63));
    let longest_name = format!("{}{}.", "abcdefg.".repeat(30), "h".repeat(13));
    for name in [
        "_service._tcp.example.",
        "a\\.b.example.",
        "\\000.example.",
        "\\255\\128.example.",
        "*.example.",
        "\\032.example.",
        "xn--nxasmq6b.example.",
        &longest_label,
        &longest_name,
    ] {
        // From the upstream, then from the cache. EDNS leaves room for the longest name twice.
        for _ in 0..2 {
            assert_eq!(
                proxy.query_edns(name, "A").answers(),
                [format!("{name} A 192.0.2.1")]
            );
        }
        assert_eq!(upstream.count(name), 1, "{name}");
    }
    // RFC 1035 section 3.1: the root is a name.
    assert_eq!(proxy.query(".", "A").answers(), [". A 192.0.2.1"]);
}

/// RFC 4343 section 2: only ASCII letters are case-insensitive.
#[test]
fn only_ascii_letters_are_folded() {
    let upstream = anything();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    proxy.query("A\\192[.example", "A");
    proxy.query("a\\192[.EXAMPLE", "A");
    assert_eq!(
        upstream
            .everything()
            .iter()
            .filter(|asked| asked.name().ends_with(".example."))
            .count(),
        1
    );
    // `{` is `[` with the bit that distinguishes letter cases; so is 224 for 192.
    proxy.query("a\\192{.example", "A");
    proxy.query("a\\224[.example", "A");
    assert_eq!(
        upstream
            .everything()
            .iter()
            .filter(|asked| asked.name().ends_with(".example."))
            .count(),
        3
    );
}

/// RFC 4592 section 2.3: a query for an asterisk is literal, and its answer is for no other name.
#[test]
fn an_asterisk_is_an_octet() {
    let upstream = Upstream::zone(&[
        "*.example. 300 A 192.0.2.1",
        "example. 300 SOA ns.example. root.example. 1 2 3 4 5",
    ]);
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    assert_eq!(
        proxy.query("*.example", "A").answers(),
        ["*.example. A 192.0.2.1"]
    );
    assert_eq!(proxy.query("www.example", "A").rcode(), "NXDOMAIN");
}

/// The client can use the answer: records carry the name asked for, up to case.
#[test]
fn mixed_case_is_answered_in_kind() {
    let upstream = anything();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    for name in ["MiXeD.Example.", "mixed.example.", "MIXED.EXAMPLE."] {
        let answer = proxy.ask(&Message::query(name, "A"));
        assert!(answer.answers[0].name.eq_ignore_ascii_case(name), "{answer}");
    }
    assert_eq!(upstream.count("mixed.example"), 1);
}
