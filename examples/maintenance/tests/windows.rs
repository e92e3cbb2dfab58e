//! When a window is open, and what names get during it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Answer, ExtendedError, NameBuf, Rcode, Rdata, ResponseEdit, Type, Verdict};
use example_maintenance::Maintenance;

/// Saturday, 3 January 1970, 00:00 UTC.
const SATURDAY: u64 = 2 * 86_400;
const MINUTE: Duration = Duration::from_secs(60);

fn start(config: impl IntoIterator<Item = Node>) -> Running<Maintenance> {
    test::start(config).unwrap()
}

fn window(begins: &str, ends: &str) -> Node {
    node("window").arg(begins).arg(ends)
}

fn ask(filter: &mut Running<Maintenance>, name: &str, seconds: u64) -> Verdict {
    filter.query(&test::query(name, Type::A).time(Duration::from_secs(seconds)))
}

fn outside(left: Duration) -> Verdict {
    Verdict::pass()
        .edit(ResponseEdit::new().ttl_max(left))
        .remember(left)
}

#[test]
fn a_name_has_another_address_during_the_window() {
    let name = node("name").arg("shop.test").arg("192.0.2.9");
    let mut filter = start([window("Sat 22:00", "Sun 02:00").child(name)]);
    let owner: NameBuf = "shop.test".parse().unwrap();
    let instead = |left: Duration| {
        let address = Rdata::A([192, 0, 2, 9].into());
        Verdict::answer(Answer::noerror().record(&owner, left, address)).remember(left)
    };
    let opens = SATURDAY + 22 * 3600;
    let closes = opens + 4 * 3600;
    assert_eq!(ask(&mut filter, "shop.test", SATURDAY), outside(MINUTE));
    assert_eq!(
        ask(&mut filter, "shop.test", opens - 1),
        outside(Duration::from_secs(1))
    );
    assert_eq!(ask(&mut filter, "shop.test", opens), instead(MINUTE));
    assert_eq!(
        ask(&mut filter, "shop.test", closes - 10),
        instead(Duration::from_secs(10))
    );
    assert_eq!(ask(&mut filter, "shop.test", closes), outside(MINUTE));
    // 53 weeks later.
    assert_eq!(
        ask(&mut filter, "shop.test", opens + 53 * 7 * 86_400),
        instead(MINUTE)
    );
}

#[test]
fn without_an_address_the_name_is_told_to_be_away() {
    let inside = window("Wed 23:00", "Thu 01:00").child(node("name").arg("db.test"));
    let mut filter = start([inside]);
    let away = Verdict::refuse(Rcode::SERVFAIL).error(ExtendedError::new(14).text("under maintenance"));
    // The week in which the epoch begins: Thursday 00:30, and a name below.
    assert_eq!(ask(&mut filter, "a.db.test", 1800), away.remember(MINUTE));
    assert_eq!(ask(&mut filter, "db.test", 3600), outside(MINUTE));
}

#[test]
fn a_clock_may_be_ahead_of_utc() {
    let mut filter = start([window("Sat 00:30", "Sat 01:30")
        .prop("utc-offset", 120)
        .child(node("name").arg("a.test"))]);
    let opens = SATURDAY - 5400;
    assert_eq!(ask(&mut filter, "a.test", opens - 60), outside(MINUTE));
    assert_ne!(ask(&mut filter, "a.test", opens), outside(MINUTE));
    assert_eq!(ask(&mut filter, "a.test", opens + 3600), outside(MINUTE));
}

#[test]
fn mistakes_are_told() {
    let mistake = |node: Node| {
        test::start::<Maintenance>([node]).err().unwrap()[0]
            .message
            .clone()
    };
    let named = |window: Node| window.child(node("name").arg("a.test"));
    assert_eq!(
        mistake(named(window("Sat 22:00", "Sat 22:00"))),
        "this window is empty"
    );
    for wrong in ["Sat", "22:00", "Sat 24:00", "Sat 2:00", "sat 22:00", "Sat 22:60"] {
        assert_eq!(
            mistake(named(window(wrong, "Sun 02:00"))),
            format!("the first argument of `window` must be a day and a time, not {wrong:?}"),
            "{wrong}"
        );
    }
}
