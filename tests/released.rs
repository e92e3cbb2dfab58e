//! Filters as they were built for earlier releases of the interface: each still does all that it did.

use std::fs;

use crate::harness::guests::root;
use crate::harness::{Message, Proxy, Upstream, unanswered};

#[test]
fn filters_of_every_release_still_work() {
    let kept = root().join("tests/released");
    let sums = fs::read_to_string(kept.join("SHA256SUMS")).expect("the list of what is kept");
    let mut count = 0;
    for line in sums.lines() {
        let (digest, name) = line.split_once("  ").expect("a digest and a name");
        let module = kept.join(name);
        work(&module.display().to_string(), digest);
        count += 1;
    }
    let files = fs::read_dir(&kept).expect("a folder").filter(|entry| {
        let path = entry.as_ref().expect("an entry").path();
        path.extension().is_some_and(|extension| extension == "wasm")
    });
    assert_eq!(files.count(), count, "each has its digest");
    assert!(count > 0);
}

/// Has the filter do each of its things once.
#[track_caller]
fn work(module: &str, digest: &str) {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let proxy = Proxy::start(&format!(
        "filter \"released\" {{\n    module \"{module}\"; sha256 \"{digest}\"; on-error \"servfail\"; limits time=\"1s\"\n    \
         config {{ address \"192.0.2.7\"; target \"target.test\" }}\n}}\n\
         zone \"test\" {{ use \"released\"; forward \"{}\" }}",
        upstream.address
    ));
    proxy.process.logged("released is configured for [test.]");
    let asked = |name: &str| {
        let answer = proxy.query(name, "A");
        let ttl = answer.answers.first().map_or(0, |record| record.ttl);
        (answer.rcode(), answer.answers(), ttl)
    };
    let found = |records: &[&str], ttl: u32| {
        let records: Vec<String> = records.iter().map(|&record| record.to_owned()).collect();
        ("NOERROR".to_owned(), records, ttl)
    };
    assert_eq!(asked("pass.test"), found(&["pass.test. A 192.0.2.1"], 300));
    assert_eq!(asked("answer.test"), found(&["answer.test. A 192.0.2.7"], 300));
    assert_eq!(asked("rename.test"), found(&["rename.test. A 192.0.2.1"], 300));
    assert_eq!(upstream.count("target.test"), 1);
    let (_, records, _) = asked("alias.test");
    assert_eq!(
        records,
        ["alias.test. CNAME target.test.", "target.test. A 192.0.2.1"]
    );
    assert_eq!(asked("refuse.test").0, "REFUSED");
    unanswered(proxy.address, &Message::query("drop.test", "A").encode());
    assert_eq!(asked("edit.test"), found(&["edit.test. A 192.0.2.1"], 7));
    assert_eq!(asked("shorten.test"), found(&["shorten.test. A 192.0.2.1"], 9));
    assert_eq!(asked("replace.test"), found(&["replace.test. A 192.0.2.7"], 300));
    assert_eq!(asked("ask.test"), found(&["ask.test. A 192.0.2.7"], 300));
    assert_eq!(asked("reask.test"), found(&["reask.test. A 192.0.2.7"], 300));
    assert_eq!(asked("trap.test").0, "SERVFAIL");
    proxy.process.logged("told to panic at trap.test");
    proxy
        .process
        .printed("an event", |line| line.contains("heard of shorten.test"));
    let own = [("filter", "released"), ("name", "queries")];
    assert!(proxy.metrics().sum("dnsweir_filter_counter_total", &own) >= 9.0);
}
