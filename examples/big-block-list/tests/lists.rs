//! Names, reasons, and invalid lists.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, Running, node};
use dnsweir_filter::{ExtendedError, Rcode, Type, Verdict};
use example_big_block_list::BigBlockList;

fn list(text: &str) -> Result<Running<BigBlockList>, Vec<test::Mistake>> {
    test::start::<BigBlockList>([node("list").arg(test::data(text))])
}

fn blocked(reason: &str) -> Verdict {
    let error = ExtendedError::new(15).text(reason);
    Verdict::refuse(Rcode::NXDOMAIN)
        .error(error)
        .remember(Duration::from_secs(3600))
}

#[test]
fn a_name_and_all_below_it_is_blocked() {
    let mut filter = list("ads.example\nads.test made for ads\ntrack.example tracker\n").unwrap();
    let mut ask = |name: &str| filter.query(&test::query(name, Type::A));
    assert_eq!(ask("ads.example"), blocked(""));
    assert_eq!(ask("a.b.ads.test"), blocked("made for ads"));
    assert_eq!(ask("track.example"), blocked("tracker"));
    let pass = Verdict::pass().remember(Duration::from_secs(3600));
    for name in ["example", "bads.example", "ads.example.org", "."] {
        assert_eq!(ask(name), pass, "{name}");
    }
}

#[test]
fn what_is_no_list_is_not_taken() {
    let message = |text: &str| list(text).unwrap_err().remove(0).message;
    assert_eq!(message(""), "the list is empty");
    assert_eq!(
        message("<html>502 Bad Gateway</html>\n"),
        "the list is not sorted, or no list: \"<html>502 Bad Gateway</html>\" would not be found"
    );
    let mistakes = test::start::<BigBlockList>([]).unwrap_err();
    assert_eq!(mistakes[0].message, "`list` is missing");
    let mistakes = test::start::<BigBlockList>([node("list").arg("ads.example")]).unwrap_err();
    assert_eq!(mistakes[0].help, "write: (data)\"PATH\"");
}
