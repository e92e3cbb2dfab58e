//! `canary`: a share of the clients, always the same ones.

use std::collections::BTreeSet;

use super::{anything, client, configured, documented, start};
use crate::harness::client::ask_from;
use crate::harness::{Message, Proxy, Upstream};

/// The clients, of 200, that see this address.
fn seeing(proxy: &Proxy, name: &str, address: &str) -> BTreeSet<u32> {
    let expected = format!("{name}. A {address}");
    (1..=200)
        .filter(|number| {
            let from = client(&format!("127.9.0.{number}"));
            let answer = ask_from(from, proxy.address, &Message::query(name, "A"));
            assert_eq!(answer.answers.len(), 1, "{answer}");
            answer.answers() == [expected.as_str()]
        })
        .collect()
}

#[test]
fn the_documented_configuration_sends_a_share_elsewhere() {
    let upstream = Upstream::start(|asked| {
        let last = if asked.name().contains("next") { 2 } else { 1 };
        asked.answer(&[&format!("{} 300 A 192.0.2.{last}", asked.name())])
    });
    let text = |share: &str| {
        let share = format!("share={share} group");
        documented("canary", upstream.address, &[("share=5 group", share.as_str())])
    };
    let proxy = Proxy::start(&text("5"));
    let five = seeing(&proxy, "api.example", "192.0.2.2");
    assert!((2..=25).contains(&five.len()), "{five:?}");
    // The same clients get the other half of the release.
    assert_eq!(seeing(&proxy, "static.example", "192.0.2.80"), five);
    // A larger share adds clients and removes none.
    proxy.reload(&text("20"));
    let twenty = seeing(&proxy, "api.example", "192.0.2.2");
    assert!(five.is_subset(&twenty), "{five:?} {twenty:?}");
    assert!((20..=65).contains(&twenty.len()), "{twenty:?}");
    // And back.
    proxy.reload(&text("5"));
    assert_eq!(seeing(&proxy, "api.example", "192.0.2.2"), five);
    assert_eq!(
        (upstream.count("api.example"), upstream.count("api-next.example")),
        (1, 1)
    );
    // No client gets another answer for another name.
    assert_eq!(seeing(&proxy, "other.example", "192.0.2.1").len(), 200);
}

#[test]
fn canaries_may_be_whole_subnets_and_get_addresses() {
    let upstream = anything();
    let config = "canary \"a.test\" \"192.0.2.9\" \"2001:db8::9\" share=50.0 group=\"g\"\nprefix ipv4=24 ipv6=64\nttl \"5s\"";
    let proxy = start("canary", config, &upstream);
    let found = seeing(&proxy, "a.test", "192.0.2.9");
    assert!(found.is_empty() || found.len() == 200, "{found:?}");
    let every = Proxy::start(&configured("canary", &config.replace("50.0", "100"), &upstream));
    assert_eq!(
        every.query("a.test", "AAAA").answers(),
        ["a.test. AAAA 2001:db8::9"]
    );
    assert_eq!(every.query("a.test", "A").ttl(), 5);
    every.await_metric(
        "dnsweir_filter_counter_total",
        &[("filter", "f"), ("name", "canaries")],
        2.0,
    );
}
