//! An answer that follows an alias has what its target resolves to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, node};
use dnsweir_filter::{Answer, NameBuf, Rdata, Type, Verdict};
use dnsweir_filter_template::Templates;

/// The proxy would refuse the whole verdict because of one of them.
#[test]
fn what_no_answer_may_have_is_left_out() {
    let (name, target): (NameBuf, NameBuf) = ("a.test".parse().unwrap(), "b.test".parse().unwrap());
    let ttl = Duration::from_secs(60);
    let address = Rdata::A([192, 0, 2, 1].into());
    let found = Answer::noerror()
        .record(&target, ttl, address.clone())
        .record(&target, ttl, Rdata::Other(Type(200), b"x".to_vec()))
        .record(&target, ttl, Rdata::Other(Type::TXT, Vec::new()));
    let template = node("template").child(node("answer").arg("{name} 60 CNAME b.test."));
    let mut filter = test::start::<Templates>([template]).unwrap();
    filter.finds("b.test", Type::A, found);
    let expected = Answer::noerror()
        .authoritative()
        .record(&name, ttl, Rdata::Cname(target.clone()))
        .record(&target, ttl, address);
    assert_eq!(
        filter.query(&test::query("a.test", Type::A)),
        Verdict::answer(expected)
    );
}
