//! `rebinding`: private addresses in answers for public names.

use super::{anything, documented, start};
use crate::harness::message::Record;
use crate::harness::{Message, Proxy, Upstream};

#[test]
fn the_documented_configuration_removes_private_addresses() {
    let upstream = Upstream::zone(&[
        "evil.example. 300 A 192.168.1.1",
        "mixed.example. 300 CNAME pool.example.",
        "pool.example. 300 A 10.0.0.1",
        "pool.example. 300 A 192.0.2.1",
        "pool.example. 300 A 198.51.100.7",
        "nas.corp.example. 300 A 192.168.1.2",
    ]);
    let proxy = Proxy::start(&documented("rebinding", upstream.address));
    // The second time from the cache, which holds the stripped answer.
    for _ in 0..2 {
        let evil = proxy.query_edns("evil.example", "A");
        assert_eq!(
            (evil.rcode().as_str(), evil.answers.len()),
            ("NOERROR", 0),
            "{evil}"
        );
        assert_eq!(evil.extended_errors(), [17], "{evil}");
        assert_eq!(
            proxy.query("pool.example", "A").answers(),
            ["pool.example. A 192.0.2.1"]
        );
        assert_eq!(
            proxy.query("nas.corp.example", "A").answers(),
            ["nas.corp.example. A 192.168.1.2"]
        );
    }
    assert_eq!(upstream.count("pool.example"), 1);
    // The other answer is empty, and without an SOA record it is not cached (RFC 2308 section 5).
    assert_eq!(upstream.count("evil.example"), 2);
    let stripped = [("filter", "rebinding"), ("name", "stripped")];
    assert_eq!(
        proxy.metrics().sum("dnsweir_filter_counter_total", &stripped),
        3.0
    );
}

#[test]
fn networks_are_added_and_names_allowed() {
    let upstream = anything();
    let config = "private \"192.0.2.0/24\"\nallow \"test\"";
    let proxy = start("rebinding", config, "use \"f\"; cache", &upstream);
    assert_eq!(proxy.query("www.example", "A").answers.len(), 0);
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
}

/// The proxy cannot verify signatures, so a signed query must not bypass the filter. An unaffected answer is
/// relayed.
#[test]
fn a_signature_is_no_way_around_it() {
    let upstream = Upstream::zone(&["evil.example. 300 A 192.168.1.1", "good.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start(&documented("rebinding", upstream.address));
    let signed = |name: &str| {
        // Some algorithm, some time, and a MAC of 32 bytes without any key (RFC 8945 section 4.2).
        let mut data = b"\x0bhmac-sha256\0\0\0\x65\0\0\0\x01\x2c\0\x20".to_vec();
        data.extend([7; 32]);
        data.extend([0x12, 0x34, 0, 0, 0, 0]);
        let mut query = Message::query(name, "A");
        query.additional.push(Record {
            name: ".".to_owned(),
            rtype: 250,
            class: 255,
            ttl: 0,
            data,
        });
        let answer = proxy.ask(&query);
        (answer.rcode(), answer.answers())
    };
    assert_eq!(signed("evil.example"), ("REFUSED".into(), vec![]));
    assert_eq!(
        signed("good.example"),
        ("NOERROR".into(), vec!["good.example. A 192.0.2.1".into()])
    );
}
