//! `rate-limit`: rates, bursts, who counts as one client, and what others notice.

use std::net::IpAddr;

use super::{anything, client, configured, documented};
use crate::harness::client::{ask_from, unanswered};
use crate::harness::{Message, Proxy};

/// How many of so many queries are answered, each from a port of its own.
fn answered(proxy: &Proxy, from: IpAddr, queries: usize) -> usize {
    (0..queries)
        .filter(|_| {
            let answer = ask_from(from, proxy.address, &Message::query("www.test", "A"));
            match answer.rcode().as_str() {
                "NOERROR" => true,
                "REFUSED" => false,
                other => panic!("{other}: {answer}"),
            }
        })
        .count()
}

#[test]
fn the_documented_configuration_limits_a_client() {
    let upstream = anything();
    // A rate that gives nothing while the test runs, whatever the machine does meanwhile.
    let replaced = [
        ("rate 50\n", "rate 1 per=\"1h\"\n"),
        ("workers 2", "workers 1"),
        ("10.96.0.0/12", "127.9.3.0/24"),
    ];
    let proxy = Proxy::start(&documented("rate-limit", upstream.address, &replaced));
    assert_eq!(answered(&proxy, client("127.9.1.1"), 210), 200);
    // Nobody else notices, and some are not limited at all.
    assert_eq!(answered(&proxy, client("127.9.1.2"), 10), 10);
    assert_eq!(answered(&proxy, client("127.9.3.1"), 210), 210);
    let limited = [("filter", "rate-limit"), ("name", "limited")];
    proxy.await_metric("dnsweir_filter_counter_total", &limited, 10.0);
    // A blocked query says so (RFC 8914 section 4.16).
    let query = Message::query("www.test", "A").edns(1232);
    assert_eq!(
        ask_from(client("127.9.1.1"), proxy.address, &query).extended_errors(),
        [15]
    );
}

#[test]
fn a_dropped_query_gets_no_answer() {
    let upstream = anything();
    let config = "rate 1 per=\"1h\"\nburst 1\nbeyond \"drop\"\nexcept \"127.9.0.0/16\"";
    // The proxy refuses what is in no zone, so one can tell that a query before it got no answer.
    let text = configured("rate-limit", config, &upstream).replace("zone \".\"", "zone \"www.test\"");
    let proxy = Proxy::start(&text);
    assert_eq!(proxy.query("www.test", "A").rcode(), "NOERROR");
    unanswered(proxy.address, &Message::query("www.test", "A").encode());
    assert_eq!(answered(&proxy, client("127.9.1.1"), 10), 10);
}

#[test]
fn prefixes_count_as_one_and_the_table_is_bounded() {
    let upstream = anything();
    let text = "workers 1\n".to_owned()
        + &configured(
            "rate-limit",
            "rate 1 per=\"1h\"\nburst 2\nprefix ipv4=24 ipv6=64\nclients 2\nbeyond \"refuse\"",
            &upstream,
        );
    let proxy = Proxy::start(&text);
    assert_eq!(answered(&proxy, client("127.9.1.1"), 1), 1);
    assert_eq!(answered(&proxy, client("127.9.1.200"), 5), 1);
    assert_eq!(answered(&proxy, client("127.9.2.1"), 5), 2);
    // A third client makes the table forget the first.
    assert_eq!(answered(&proxy, client("127.9.3.1"), 5), 2);
    assert_eq!(answered(&proxy, client("127.9.1.1"), 5), 2);
    proxy.await_metric(
        "dnsweir_filter_counter_total",
        &[("filter", "f"), ("name", "evicted")],
        2.0,
    );
}

/// What the README says of workers: a client whose queries come from many ports can have the limit on each.
#[test]
fn each_worker_has_a_limit_of_its_own() {
    let upstream = anything();
    let text = format!(
        "workers 2\n{}",
        configured("rate-limit", "rate 10 per=\"1h\"", &upstream)
    );
    let proxy = Proxy::start(&text);
    let passed = answered(&proxy, client("127.9.1.1"), 100);
    assert!((10..=20).contains(&passed), "{passed}");
}
