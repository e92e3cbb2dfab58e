//! `rotation`: the order of addresses, at random and by client.

use std::collections::HashSet;

use super::{anything, documented, start};
use crate::harness::client::ask_from;
use crate::harness::{Message, Proxy, Upstream};

#[test]
fn the_documented_configuration_has_each_order() {
    let names = ["www.example", "shop.example", "ns.example"];
    let records = names
        .iter()
        .flat_map(|name| (1..=4).map(move |last| format!("{name}. 300 A 192.0.2.{last}")));
    let records: Vec<String> = records.collect();
    let upstream = Upstream::zone(&records.iter().map(String::as_str).collect::<Vec<_>>());
    let proxy = Proxy::start(&documented("rotation", upstream.address));
    let first = |name: &str, from: &str| {
        let answers = ask_from(
            from.parse().expect("an address"),
            proxy.address,
            &Message::query(name, "A"),
        )
        .answers();
        assert_eq!(answers.iter().collect::<HashSet<_>>().len(), 4, "{answers:?}");
        answers[0].clone()
    };
    // The chance that one of four is never first is 4·(3/4)²⁰⁰, about 4·10⁻²⁵.
    let random: HashSet<String> = (0..200).map(|_| first("www.example", "127.0.0.1")).collect();
    assert_eq!(random.len(), 4);
    let same: HashSet<String> = (0..20).map(|_| first("shop.example", "127.7.7.7")).collect();
    assert_eq!(same.len(), 1);
    let clients: HashSet<String> = (1..=60)
        .map(|last| first("shop.example", &format!("127.7.7.{last}")))
        .collect();
    assert_eq!(clients.len(), 4);
    let kept: HashSet<String> = (0..20).map(|_| first("ns.example", "127.0.0.1")).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(names.map(|name| upstream.count(name)), [1; 3]);
}

#[test]
fn clients_of_a_network_are_one_client() {
    let records = (1..=4).map(|last| format!("shop.test. 300 A 192.0.2.{last}"));
    let records: Vec<String> = records.collect();
    let upstream = Upstream::zone(&records.iter().map(String::as_str).collect::<Vec<_>>());
    let config = "order \"affinity\"\nprefix ipv4=16 ipv6=64";
    let proxy = start("rotation", config, "use \"f\"; cache", &upstream);
    let query = Message::query("shop.test", "A");
    let first =
        |from: &str| ask_from(from.parse().expect("an address"), proxy.address, &query).answers()[0].clone();
    let network: HashSet<String> = (1..=20)
        .map(|last| first(&format!("127.7.{last}.{last}")))
        .collect();
    assert_eq!(network.len(), 1);
    // The proxy counts edits for the filter even without a call.
    let metrics = proxy.metrics();
    assert_eq!(
        metrics.sum("dnsweir_filter_edits_total", &[("filter", "f")]),
        20.0
    );
    assert!(metrics.sum("dnsweir_filter_edit_seconds_total", &[("filter", "f")]) > 0.0);

    let upstream = anything();
    let proxy = start(
        "rotation",
        "order \"as-is\" \"test\"",
        "use \"f\"; cache",
        &upstream,
    );
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
}
