//! `tenants`: which clients may look up which names.

use super::{anything, client, documented, start, upstream_says};
use crate::harness::client::ask_from;
use crate::harness::{Message, Proxy};

#[test]
fn the_documented_configuration_has_two_tenants() {
    let upstream = anything();
    let replaced = [("10.1.0.0/16", "127.1.0.0/16"), ("10.9.0.0/16", "127.9.0.0/16")];
    let proxy = Proxy::start(&documented("tenants", upstream.address, &replaced));
    let ask =
        |from: &str, name: &str| ask_from(client(from), proxy.address, &Message::query(name, "A").edns(1232));
    // Twice, since one tenant's cached answer must not reach the other.
    for _ in 0..2 {
        for (from, name) in [
            ("127.1.0.1", "www.example.org"),
            ("127.1.0.1", "chess.games.example"),
            ("127.9.0.1", "www.example.org"),
            ("127.0.0.1", "www.social.example"),
        ] {
            assert_eq!(ask(from, name).answers(), upstream_says(name), "{from} {name}");
        }
        for (from, name, rcode) in [
            ("127.1.0.1", "www.social.example", "NXDOMAIN"),
            ("127.9.0.1", "chess.games.example", "REFUSED"),
        ] {
            let answer = ask(from, name);
            assert_eq!(
                (answer.rcode().as_str(), answer.extended_errors()),
                (rcode, vec![15]),
                "{answer}"
            );
        }
    }
    let guests = [("name", "refused"), ("tenant", "guests")];
    assert_eq!(proxy.metrics().sum("dnsweir_filter_counter_total", &guests), 2.0);
}

#[test]
fn others_and_codes_can_be_chosen() {
    let upstream = anything();
    let rules = "block \"games.test\"\n allow \"chess.games.test\"\n rcode \"SERVFAIL\"";
    let config = format!("tenant \"t\" \"127.1.0.0/16\" {{\n {rules}\n}}\nothers #false");
    let proxy = start("tenants", &config, &upstream);
    let ask = |from: &str, name: &str| ask_from(client(from), proxy.address, &Message::query(name, "A"));
    assert_eq!(ask("127.1.0.1", "games.test").rcode(), "SERVFAIL");
    let chess = "chess.games.test";
    assert_eq!(ask("127.1.0.1", chess).answers(), upstream_says(chess));
    assert_eq!(ask("127.0.0.1", chess).rcode(), "REFUSED");
}
