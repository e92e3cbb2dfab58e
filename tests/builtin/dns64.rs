//! `dns64`: NAT64 addresses for names without IPv6 addresses.

use std::net::Ipv6Addr;

use super::{documented, start};
use crate::harness::message::flags;
use crate::harness::{Message, Proxy, Reply, Stream, Upstream};

const SOA: &str = "test. 90 SOA ns.test. root.test. 1 2 3 4 90";

fn upstream() -> Upstream {
    Upstream::start(|asked| {
        let name = asked.name();
        match (name.as_str(), asked.is("AAAA")) {
            ("native.test.", true) => asked.answer(&["native.test. 300 AAAA 2001:db8::1"]),
            ("mapped.test.", true) => asked.answer(&["mapped.test. 300 AAAA ::ffff:192.0.2.9"]),
            ("mixed.test.", true) => asked.answer(&[
                "mixed.test. 300 AAAA ::ffff:192.0.2.9",
                "mixed.test. 300 AAAA 2001:db8::2",
            ]),
            // Some servers answer AAAA queries like this (RFC 4074).
            ("broken.test.", true) => asked.denial("NOTIMP", None),
            ("gone.test.", _) => asked.denial("NXDOMAIN", Some(SOA)),
            ("private.test.", false) => asked.answer(&["private.test. 300 A 10.0.0.1"]),
            ("lost.test.", false) => asked.denial("SERVFAIL", None),
            ("alias.test.", false) => {
                asked.answer(&["alias.test. 60 CNAME old.test.", "old.test. 300 A 192.0.2.33"])
            }
            ("33.2.0.192.in-addr.arpa.", _) => asked.answer(&["33.2.0.192.in-addr.arpa. 300 PTR old.test."]),
            (_, false) if !asked.is("TXT") && !name.starts_with("none") => {
                asked.answer(&[&format!("{name} 300 A 192.0.2.33")])
            }
            _ => asked.denial("NOERROR", Some(SOA)),
        }
    })
}

#[test]
fn the_documented_configuration_translates_addresses() {
    let upstream = upstream();
    let proxy = Proxy::start(&documented("dns64", upstream.address));
    let translated = "64:ff9b::c000:221";
    // The second time from the cache.
    for _ in 0..2 {
        let old = proxy.query("old.test", "AAAA");
        assert_eq!(old.answers(), [format!("old.test. AAAA {translated}")]);
        // The TTL is at most that of the denial (RFC 6147 section 5.1.7).
        assert!(old.answers[0].ttl <= 90, "{old}");
        assert_eq!(
            proxy.query("alias.test", "AAAA").answers(),
            [
                "alias.test. CNAME old.test.".to_owned(),
                format!("old.test. AAAA {translated}")
            ]
        );
    }
    assert_eq!(upstream.count("old.test"), 2, "one for each type");
    // Section 5.1.2, 5.1.4.
    for name in ["broken.test", "mapped.test"] {
        assert_eq!(
            proxy.query(name, "AAAA").answers(),
            [format!("{name}. AAAA {translated}")]
        );
    }
    assert_eq!(
        proxy.query("native.test", "AAAA").answers(),
        ["native.test. AAAA 2001:db8::1"]
    );
    assert_eq!(
        proxy.query("mixed.test", "AAAA").answers(),
        ["mixed.test. AAAA 2001:db8::2"]
    );
    assert_eq!(proxy.query("gone.test", "AAAA").rcode(), "NXDOMAIN");
    assert_eq!(proxy.query("old.test", "A").answers(), ["old.test. A 192.0.2.33"]);
    // Section 5.3.1.
    let reverse = "1.2.2.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa";
    assert_eq!(
        proxy.query(reverse, "PTR").answers(),
        [
            format!("{reverse}. CNAME 33.2.0.192.in-addr.arpa."),
            "33.2.0.192.in-addr.arpa. PTR old.test.".to_owned()
        ]
    );
}

/// Nothing is synthesized if there is nothing to translate, or if that is unknown.
#[test]
fn other_answers_stay_as_they_are() {
    let upstream = upstream();
    let proxy = Proxy::start(&documented("dns64", upstream.address));
    for name in ["none.test", "private.test"] {
        let empty = proxy.query(name, "AAAA");
        assert_eq!(
            (empty.rcode().as_str(), empty.answers.len()),
            ("NOERROR", 0),
            "{empty}"
        );
        assert_eq!(empty.authority.len(), 1, "{empty}");
    }
    assert_eq!(proxy.query("lost.test", "AAAA").rcode(), "SERVFAIL");
    // A client that validates itself would find the answer forged (RFC 6147 section 5.5).
    let validating = Message::query("old.test", "AAAA").set(flags::CD).dnssec_ok();
    assert_eq!(proxy.ask(&validating).answers.len(), 0);
    assert_eq!(proxy.query("old.test", "AAAA").answers.len(), 1);
}

#[test]
fn a_network_has_its_own_prefix() {
    let upstream = upstream();
    let config = "prefix \"2001:db8:122::/48\"; exclude \"2001:db8::/32\"";
    let proxy = start("dns64", config, "use \"f\"; cache", &upstream);
    for (name, address) in [
        ("native.test", "2001:db8:122:c000:2:2100::"),
        ("private.test", "2001:db8:122:a00:0:100::"),
    ] {
        let answer = proxy.query(name, "AAAA").answers();
        let expected: Ipv6Addr = address.parse().expect("an address");
        assert_eq!(answer, [format!("{name}. AAAA {expected}")]);
    }
}

/// Contrary to RFC 6147 section 5.1.1, and only for clients that cannot reach IPv4 addresses.
#[test]
fn more_names_or_fewer_clients_are_translated() {
    let upstream = upstream();
    let proxy = start("dns64", "always", "use \"f\"; cache", &upstream);
    let answer = proxy.query("mixed.test", "AAAA").answers();
    assert_eq!(answer, ["mixed.test. AAAA 64:ff9b::c000:221"]);
    let proxy = start("dns64", "only-ipv6-clients", "use \"f\"; cache", &upstream);
    assert_eq!(proxy.query("old.test", "AAAA").answers.len(), 0);
}

/// A name with so many addresses that their translations fit into no message cannot disable the filter: the
/// answer is truncated each time.
#[test]
fn a_name_with_too_many_addresses_is_cut_and_others_are_translated() {
    let addresses: Vec<String> = (0..2400)
        .map(|at| format!("wide.test. 300 A 93.184.{}.{}", at >> 8, at & 255))
        .collect();
    let upstream = Upstream::start(move |asked| match (asked.is("AAAA"), asked.name().as_str()) {
        (true, _) => asked.denial("NOERROR", Some(SOA)),
        (false, "wide.test.") if asked.tcp => {
            asked.answer(&addresses.iter().map(String::as_str).collect::<Vec<_>>())
        }
        (false, "wide.test.") => {
            let mut message = asked.message_with(&[]);
            message.header |= flags::TC;
            Reply::Message(message)
        }
        (false, name) => asked.answer(&[&format!("{name} 300 A 192.0.2.33")]),
    });
    let proxy = start("dns64", "", "use \"f\"", &upstream);
    for round in 0..6 {
        let wide = Stream::connect(proxy.address).ask(&Message::query("wide.test", "AAAA"));
        let said = (wide.rcode(), wide.header & flags::TC, wide.answers.len());
        assert_eq!(said, ("NOERROR".to_owned(), flags::TC, 2339), "{round}");
        let other = proxy.query(&format!("other-{round}.test"), "AAAA");
        assert_eq!(
            other.answers(),
            [format!("other-{round}.test. AAAA 64:ff9b::c000:221")]
        );
    }
}

/// A verdict may have 64 edits of records.
#[test]
fn any_number_of_excluded_addresses_is_removed() {
    let upstream = Upstream::start(|asked| {
        let name = asked.name();
        if !asked.tcp {
            return Reply::Message(asked.message_with(&[]).set(flags::TC));
        }
        let mapped = (0..100).map(|last| format!("{name} 300 AAAA ::ffff:192.0.2.{last}"));
        let lines: Vec<String> = mapped.chain([format!("{name} 300 AAAA 2001:db8::1")]).collect();
        asked.answer(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let proxy = start("dns64", "", "use \"f\"", &upstream);
    let answer = Stream::connect(proxy.address).ask(&Message::query("wide.test", "AAAA"));
    assert_eq!(answer.answers(), ["wide.test. AAAA 2001:db8::1"]);
}
