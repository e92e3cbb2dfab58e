//! `minimal`: answers without what nobody asked for.

use super::documented;
use crate::harness::{Proxy, Reply, Upstream};

const SOA: &str = "test. 90 SOA ns.test. root.test. 1 2 3 4 90";

#[test]
fn answers_have_one_section() {
    let upstream = Upstream::start(|asked| {
        if asked.name().starts_with("none") {
            return asked.denial("NOERROR", Some(SOA));
        }
        let mut message = asked.message_with(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        message.authority = vec![crate::harness::message::Record::parse("test. 300 NS ns.test.")];
        message.additional = vec![crate::harness::message::Record::parse("ns.test. 300 A 192.0.2.9")];
        Reply::Message(message)
    });
    let proxy = Proxy::start(&documented("minimal", upstream.address));
    // The second time from the cache.
    for _ in 0..2 {
        let answer = proxy.query("a.test", "A");
        assert_eq!(answer.answers(), ["a.test. A 192.0.2.1"]);
        assert!(
            answer.authority.is_empty() && answer.additional.is_empty(),
            "{answer}"
        );
        let none = proxy.query("none.test", "A");
        assert_eq!(none.authority.len(), 1, "{none}");
    }
}
