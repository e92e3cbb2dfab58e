//! `split-horizon`: different answers for clients of different subnets.

use super::{anything, client, documented, start, upstream_says};
use crate::harness::client::ask_from;
use crate::harness::{Message, Proxy, Upstream};

fn ask(proxy: &Proxy, from: &str, name: &str, qtype: &str) -> Message {
    ask_from(client(from), proxy.address, &Message::query(name, qtype))
}

#[test]
fn the_documented_configuration_has_two_horizons() {
    let upstream = Upstream::start(|asked| {
        let last = if asked.name().contains("internal") { 2 } else { 1 };
        asked.answer(&[&format!("{} 300 A 192.0.2.{last}", asked.name())])
    });
    let replaced = [
        ("10.0.0.0/8", "127.9.0.0/16"),
        ("fd00::/8", "::1"),
        ("192.168.7.0/24", "127.8.7.0/24"),
    ];
    let proxy = Proxy::start(&documented("split-horizon", upstream.address, &replaced));
    // Twice, since one view's cached answer must not reach the other.
    for _ in 0..2 {
        assert_eq!(
            ask(&proxy, "127.9.1.1", "shop.example", "A").answers(),
            ["shop.example. A 10.0.0.7"]
        );
        assert_eq!(
            ask(&proxy, "127.8.7.1", "shop.example", "A").answers(),
            ["shop.example. A 192.168.7.20"]
        );
        assert_eq!(
            ask(&proxy, "127.0.0.1", "shop.example", "A").answers(),
            ["shop.example. A 192.0.2.1"]
        );
        // Under another name, which the client does not see.
        assert_eq!(
            ask(&proxy, "127.9.1.1", "www.example", "A").answers(),
            ["www.example. A 192.0.2.2"]
        );
        assert_eq!(
            ask(&proxy, "127.8.7.1", "www.example", "A").answers(),
            ["www.example. A 192.0.2.1"]
        );
    }
    assert_eq!(upstream.count("www.internal.example"), 1);
    assert_eq!(
        (upstream.count("www.example"), upstream.count("shop.example")),
        (1, 1)
    );
}

#[test]
fn a_view_shows_hosts_and_other_names() {
    let upstream = anything();
    let view = "view \"127.0.0.0/9\" {\n host \"a.test\" \"192.0.2.7\" \"2001:db8::7\"\n rewrite \"b.test\" \"c.test\"\n}\nttl \"5s\"";
    let proxy = start("split-horizon", view, &upstream);
    let answer = ask(&proxy, "127.9.1.1", "a.test", "A");
    assert_eq!(
        (answer.answers(), answer.ttl()),
        (vec!["a.test. A 192.0.2.7".to_owned()], 5)
    );
    let answer = ask(&proxy, "127.9.1.1", "a.test", "AAAA");
    assert_eq!(answer.answers(), ["a.test. AAAA 2001:db8::7"]);
    let answer = ask(&proxy, "127.9.1.1", "a.test", "MX");
    assert_eq!((answer.rcode().as_str(), answer.answers.len()), ("NOERROR", 0));
    assert_eq!(answer.authority.len(), 1, "{answer}");
    assert_eq!(
        ask(&proxy, "127.9.1.1", "b.test", "A").answers(),
        upstream_says("b.test")
    );
    assert_eq!(
        (
            upstream.count("a.test"),
            upstream.count("b.test"),
            upstream.count("c.test")
        ),
        (0, 0, 1)
    );
}
