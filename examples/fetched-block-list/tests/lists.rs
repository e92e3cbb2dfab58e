//! How sources become a list.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dnsweir_filter::test::{self, Running, node, query, start};
use dnsweir_filter::{ExtendedError, Rcode, Type, Verdict};
use example_fetched_block_list::FetchedBlockList;

fn filter() -> Running<FetchedBlockList> {
    start([]).unwrap()
}

fn verdict(filter: &mut Running<FetchedBlockList>, name: &str) -> Option<String> {
    let expected = filter.query(&query(name, Type::A));
    let blocked = |source: &str| {
        let error = ExtendedError::new(15).text(source);
        Verdict::refuse(Rcode::NXDOMAIN)
            .error(error)
            .remember(std::time::Duration::from_secs(3600))
    };
    ["ads", "trackers"]
        .into_iter()
        .find(|source| expected == blocked(source))
        .map(str::to_owned)
}

#[test]
fn lists_are_read_as_they_come() {
    let mut filter = filter();
    assert_eq!(verdict(&mut filter, "ads.example"), None);
    let ads = "# a hosts file\n127.0.0.1 localhost\n0.0.0.0 Z.Example # last\n0.0.0.0 ads.example\n::1 ip6.example\n";
    let trackers = "track.example.\n\nads.example\nnot a-name!\n192.0.2.1\n";
    filter.refresh([("ads", ads), ("trackers", trackers)]).unwrap();
    for (name, source) in [
        ("ads.example", Some("ads")),
        ("www.ads.example", Some("ads")),
        ("z.example", Some("ads")),
        ("ip6.example", Some("ads")),
        ("track.example", Some("trackers")),
        ("example", None),
        ("localhost", None),
        ("192.0.2.1", None),
    ] {
        assert_eq!(verdict(&mut filter, name).as_deref(), source, "{name}");
    }
    assert_eq!(filter.counter("blocked"), 5);
    filter.refresh([("ads", "new.example")]).unwrap();
    assert_eq!(verdict(&mut filter, "ads.example"), None);
    assert_eq!(verdict(&mut filter, "new.example").as_deref(), Some("ads"));
}

#[test]
fn a_list_that_is_too_short_is_not_taken() {
    let mut filter: Running<FetchedBlockList> = start([node("at-least").arg(2)]).unwrap();
    filter.refresh([("ads", "a.example\nb.example")]).unwrap();
    let error = filter.refresh([("ads", "<html>\nsorry.example\n")]).unwrap_err();
    assert_eq!(error, "there are only 1 names");
    assert_eq!(verdict(&mut filter, "a.example").as_deref(), Some("ads"));
    let mistakes = test::start::<FetchedBlockList>([node("at-least").arg("x")]).unwrap_err();
    assert_eq!(mistakes.len(), 1);
}
