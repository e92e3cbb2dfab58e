//! `acl`: access control.

use super::{anything, start};
use crate::harness::client::{ask_from, unanswered};
use crate::harness::{Message, Upstream};

/// The answer for a loopback client: rcode, number of answers, extended errors.
fn asked(proxy: &crate::harness::Proxy, from: &str, name: &str, qtype: &str) -> (String, usize, Vec<u16>) {
    let query = Message::query(name, qtype).edns(1232);
    let answer = ask_from(from.parse().expect("an address"), proxy.address, &query);
    (answer.rcode(), answer.answers.len(), answer.extended_errors())
}

#[test]
fn the_first_rule_that_fits_decides() {
    let upstream: Upstream = anything();
    let config = "allow \"127.1.0.0/16\"\n\
        block \"127.2.0.0/16\" { name \"secret.test\" \"other.test\" }\n\
        filter \"127.2.0.0/16\" \"127.3.0.0/16\" { type \"AAAA\" \"TXT\" }\n\
        block { name \"secret.test\"; type \"A\" }";
    let proxy = start("acl", config, "use \"f\"; cache", &upstream);
    let passed = || ("NOERROR".to_owned(), 1, vec![]);
    let blocked = || ("REFUSED".to_owned(), 0, vec![15]);
    let filtered = || ("NOERROR".to_owned(), 0, vec![17]);
    for _ in 0..2 {
        assert_eq!(asked(&proxy, "127.1.0.1", "a.secret.test", "A"), passed());
        assert_eq!(asked(&proxy, "127.2.0.1", "a.secret.test", "A"), blocked());
        assert_eq!(asked(&proxy, "127.2.0.1", "secret.test", "TXT"), blocked());
        assert_eq!(asked(&proxy, "127.2.0.1", "a.test", "AAAA"), filtered());
        assert_eq!(asked(&proxy, "127.3.0.1", "a.secret.test", "AAAA"), filtered());
        assert_eq!(asked(&proxy, "127.3.0.1", "a.secret.test", "A"), blocked());
        assert_eq!(asked(&proxy, "127.4.0.1", "a.test", "A"), passed());
        // What is refused to one client is answered for another.
        assert_eq!(asked(&proxy, "127.1.0.1", "a.test", "A"), passed());
    }
    let labels = [("filter", "f"), ("name", "queries"), ("action", "filter")];
    assert_eq!(proxy.metrics().sum("dnsweir_filter_counter_total", &labels), 4.0);
}

#[test]
fn a_query_can_be_left_without_an_answer() {
    let upstream = anything();
    let config = "drop { name \"gone.test\" }";
    let proxy = start("acl", config, "use \"f\"; cache", &upstream);
    unanswered(proxy.address, &Message::query("a.gone.test", "A").encode());
    assert_eq!(proxy.query("a.test", "A").rcode(), "NOERROR");
    let labels = [("filter", "f"), ("reason", "acl")];
    assert_eq!(proxy.metrics().sum("dnsweir_filter_drops_total", &labels), 1.0);
}
