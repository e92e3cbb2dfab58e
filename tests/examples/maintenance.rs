//! `maintenance`: names under maintenance. The windows' times are tested next to the source: here, one is
//! open for all but a minute of the week.

use super::{anything, documented, start, upstream_says};
use crate::harness::Proxy;

#[test]
fn the_documented_configuration_is_taken() {
    let upstream = anything();
    let proxy = Proxy::start(&documented("maintenance", upstream.address, &[]));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        upstream_says("www.example")
    );
}

#[test]
fn an_open_window_answers_and_refuses() {
    let upstream = anything();
    // Two windows, one of which is open at any time.
    let names = "utc-offset=-60 { name \"shop.test\" \"192.0.2.9\"; name \"db.test\"; }";
    let config = format!(
        "ttl \"5s\"\nwindow \"Mon 00:00\" \"Thu 00:00\" {names}\nwindow \"Thu 00:00\" \"Mon 00:00\" {names}"
    );
    let proxy = start("maintenance", &config, &upstream);
    for _ in 0..2 {
        let shop = proxy.query("shop.test", "A");
        assert_eq!(shop.answers(), ["shop.test. A 192.0.2.9"]);
        assert!(shop.ttl() <= 5, "{shop}");
        let away = proxy.query_edns("a.db.test", "A");
        assert_eq!(
            (away.rcode().as_str(), away.extended_errors()),
            ("SERVFAIL", vec![14]),
            "{away}"
        );
        assert_eq!(proxy.query("www.test", "A").answers(), upstream_says("www.test"));
    }
    assert_eq!((upstream.count("shop.test"), upstream.count("a.db.test")), (0, 0));
}
