//! `minimal`: answers without unrequested records.

use super::documented;
use crate::harness::message::Record;
use crate::harness::{Message, Proxy, Reply, Upstream};

const SOA: &str = "test. 90 SOA ns.test. root.test. 1 2 3 4 90";

#[test]
fn answers_have_one_section() {
    let upstream = Upstream::start(|asked| {
        if asked.name().starts_with("none") {
            return asked.denial("NOERROR", Some(SOA));
        }
        let mut message = asked.message_with(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        message.authority = vec![Record::parse("test. 300 NS ns.test.")];
        message.additional = vec![Record::parse("ns.test. 300 A 192.0.2.9")];
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

/// RFC 4035 section 3.1.3.3: a validating client needs the proof that the wildcard matches. RFC 2308
/// section 2.2: a denial at the end of an alias needs its SOA record to be cacheable.
#[test]
fn what_proves_or_denies_stays() {
    const NSEC: &str = "test. 300 TYPE47 \\# 4 01610100";
    let upstream = Upstream::start(|asked| {
        let mut message = asked.message_with(&[&format!("{} 300 CNAME a.test.", asked.name())]);
        message.authority = vec![Record::parse("test. 300 NS ns.test.")];
        let stays = match asked.name().starts_with("wild") {
            true => NSEC,
            false => SOA,
        };
        message.authority.push(Record::parse(stays));
        Reply::Message(message)
    });
    let proxy = Proxy::start(&documented("minimal", upstream.address));
    for (name, stays) in [("wild.test", NSEC), ("nodata.test", SOA)] {
        let query = Message::query(name, "A").edns(1232).dnssec_ok();
        let authority = proxy.ask(&query).authority;
        let lines: Vec<String> = authority.iter().map(Record::without_ttl).collect();
        assert_eq!(lines, [Record::parse(stays).without_ttl()], "{name}");
    }
    for _ in 0..4 {
        assert_eq!(proxy.query("other.test", "A").authority.len(), 1);
    }
    assert_eq!(upstream.count("other.test"), 1);
}
