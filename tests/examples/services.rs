//! `services`: names of a mesh, wildcards, and allocated addresses.

use super::{anything, documented, start, upstream_says};
use crate::harness::Proxy;

#[test]
fn the_documented_configuration_answers_for_the_mesh() {
    let upstream = anything();
    let proxy = Proxy::start(&documented("services", upstream.address, &[]));
    for (name, qtype, answer) in [
        ("x.test.global", "A", "A 240.0.0.7"),
        ("x.y.test.global", "A", "A 240.0.0.7"),
        ("db.test.global", "A", "A 240.0.0.8"),
        ("db.test.global", "AAAA", "AAAA 2001:2::8"),
    ] {
        let found = proxy.query(name, qtype);
        assert_eq!(found.answers(), [format!("{name}. {answer}")]);
        assert_eq!(found.ttl(), 30);
    }
    // Other types get an empty answer: a client that asks for A and AAAA is not sent elsewhere.
    for qtype in ["AAAA", "HTTPS"] {
        let nothing = proxy.query("x.test.global", qtype);
        assert_eq!(
            (nothing.rcode().as_str(), nothing.answers.len()),
            ("NOERROR", 0),
            "{nothing}"
        );
        assert_eq!(nothing.authority.len(), 1, "{nothing}");
    }
    // An address of the pool, in both families.
    let given = proxy.query("payments.partner.example", "A").answers();
    assert!(
        given.len() == 1 && given[0].starts_with("payments.partner.example. A 240.240."),
        "{given:?}"
    );
    let six = proxy.query("payments.partner.example", "AAAA").answers();
    assert!(six.len() == 1 && six[0].contains("AAAA 2001:2:"), "{six:?}");
    // Names that are not services pass.
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        upstream_says("www.example")
    );
    assert_eq!(
        (upstream.count("www.example"), upstream.count("x.test.global")),
        (1, 0)
    );
}

/// A mesh reaches a service at the same address from every node.
#[test]
fn addresses_are_given_out_alike_everywhere() {
    let upstream = anything();
    let allocate = "allocate \"240.240.0.0/16\"";
    let one = start(
        "services",
        &format!("{allocate}\nservice \"a.test\"\nservice \"*.b.test\" \"240.240.0.1\"\nttl \"5s\""),
        &upstream,
    );
    let other = start(
        "services",
        &format!("service \"c.test\"\nservice \"a.test\"\n{allocate}"),
        &upstream,
    );
    let address = one.query("a.test", "A");
    assert_eq!((address.answers.len(), address.ttl()), (1, 5));
    assert_eq!(other.query("a.test", "A").answers(), address.answers());
    assert_ne!(other.query("c.test", "A").answers(), address.answers());
}
