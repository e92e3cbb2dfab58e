//! `rebinding`: private addresses in answers for public names.

use super::{anything, documented, start};
use crate::harness::message::{Record, encode_name};
use crate::harness::{Message, Proxy, Reply, Stream, Upstream, flags};

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

/// However many there are: a verdict may have 64 edits of records.
#[test]
fn hundreds_of_private_addresses_are_removed() {
    const PUBLIC: [&str; 2] = ["192.0.2.1", "198.51.100.7"];
    // A name such as 65.example has so many private addresses.
    let upstream = Upstream::start(|asked| {
        if !asked.tcp {
            return Reply::Message(asked.message_with(&[]).set(flags::TC));
        }
        let name = asked.name();
        let label = name.split('.').next().and_then(|label| label.parse().ok());
        let count: u16 = label.unwrap_or(0);
        let private = (0..count).map(|at| format!("10.0.{}.{}", at >> 8, at & 255));
        let addresses = PUBLIC.map(str::to_owned).into_iter().chain(private);
        let lines: Vec<String> = addresses
            .map(|address| format!("{name} 300 A {address}"))
            .collect();
        asked.answer(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    });
    for pipeline in ["use \"f\"; cache", "cache; use \"f\""] {
        let proxy = start("rebinding", "", pipeline, &upstream);
        // The second time from the cache.
        for _ in 0..2 {
            for private in [16, 64, 65, 700] {
                let query = Message::query(&format!("{private}.example"), "A");
                let answer = Stream::connect(proxy.address).ask(&query);
                let public = PUBLIC.map(|address| format!("{private}.example. A {address}"));
                assert_eq!(answer.answers(), public, "{private}, {pipeline}");
            }
        }
        let stripped = [("filter", "f"), ("name", "stripped")];
        let count = proxy.metrics().sum("dnsweir_filter_counter_total", &stripped);
        assert!(count >= 4.0, "{pipeline}: {count}");
    }
}

/// As many records as a message holds, of so long a name that those that stay are more than a call may hand
/// over: as many of them as it may are left.
#[test]
fn private_addresses_are_removed_from_the_largest_answer() {
    const PRIVATE: u16 = 65;
    const ALL: u16 = 4000;
    let long = vec!["a".repeat(60); 4].join(".");
    let name = format!("{long}.test.");
    let upstream = Upstream::start(|asked| {
        if !asked.tcp {
            return Reply::Message(asked.message_with(&[]).set(flags::TC));
        }
        let mut wire = asked.message_with(&[]);
        wire.edns = None;
        let mut wire = wire.encode();
        wire[6..8].copy_from_slice(&ALL.to_be_bytes());
        for number in 0..ALL {
            let [high, low] = number.to_be_bytes();
            let network = if number < PRIVATE { 10 } else { 11 };
            wire.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, network, 0, high, low]);
        }
        Reply::Octets(vec![wire])
    });
    assert_eq!(encode_name(&name).len(), 250);
    let proxy = start("rebinding", "", "cache; use \"f\"", &upstream);
    for _ in 0..2 {
        let answer = Stream::connect(proxy.address).ask(&Message::query(&name, "A"));
        assert_eq!(answer.rcode(), "NOERROR");
        let private = answer.answers.iter().filter(|record| record.data[0] == 10);
        assert_eq!((private.count(), answer.answers.len() > 2000), (0, true));
    }
}
