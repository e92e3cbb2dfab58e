//! Every option of the README, and every kind of line.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Answer, Level, NameBuf, Rcode, Rdata, Soa, Type, Verdict};
use example_block_list::BlockList;

const HOUR: Duration = Duration::from_secs(3600);

fn start(config: impl IntoIterator<Item = Node>) -> Running<BlockList> {
    test::start::<BlockList>(config).unwrap()
}

fn list(text: &str) -> Node {
    node("list").arg(text)
}

fn ask(filter: &mut Running<BlockList>, name: &str) -> Verdict {
    filter.query(&test::query(name, Type::A))
}

fn blocked() -> Verdict {
    Verdict::refuse(Rcode::NXDOMAIN).remember(HOUR)
}

fn pass() -> Verdict {
    Verdict::pass().remember(HOUR)
}

/// The messages of the mistakes in a list.
fn wrong(text: &str) -> Vec<String> {
    let mistakes = test::start::<BlockList>([list(text), node("block").arg("x.test")]).unwrap_err();
    mistakes.into_iter().map(|mistake| mistake.message).collect()
}

#[test]
fn a_hosts_file_blocks_the_names_in_it() {
    let mut filter = start([list(
        "# Title: a hosts file\r\n\
         127.0.0.1 localhost\r\n\
         ::1 localhost ip6-loopback\r\n\
         fe80::1%lo0 localhost\r\n\
         255.255.255.255 broadcasthost\r\n\
         0.0.0.0 0.0.0.0\r\n\
         \r\n\
         0.0.0.0 Ads.Example # seen in 2019\r\n\
         \t0.0.0.0\ttrack.example metrics.example\r\n\
         ::1 six.example\r\n",
    )]);
    for name in ["ads.example", "track.example", "metrics.example", "six.example"] {
        assert_eq!(ask(&mut filter, name), blocked(), "{name}");
    }
    // A hosts file blocks no names below those it lists.
    for name in ["x.ads.example", "example", "localhost", "broadcasthost"] {
        assert_eq!(ask(&mut filter, name), pass(), "{name}");
    }
}

#[test]
fn lists_of_domains_block_what_is_below() {
    let mut filter = start([list("\u{feff}ads.example\n*.track.example\n_x.odd_one.example\n")]);
    for name in [
        "ads.example",
        "a.b.ads.example",
        "track.example",
        "x.track.example",
        "_x.odd_one.example",
    ] {
        assert_eq!(ask(&mut filter, name), blocked(), "{name}");
    }
    assert_eq!(ask(&mut filter, "notads.example"), pass());
}

#[test]
fn adblock_rules_have_exceptions() {
    let mut filter = start([list(
        "[Adblock Plus 2.0]\n! Title: rules\n||ads.example^\n@@||good.ads.example^\n",
    )]);
    for name in ["ads.example", "x.ads.example", "bad.ads.example"] {
        assert_eq!(ask(&mut filter, name), blocked(), "{name}");
    }
    for name in ["good.ads.example", "very.good.ads.example"] {
        assert_eq!(ask(&mut filter, name), pass(), "{name}");
    }
}

#[test]
fn names_may_be_blocked_and_allowed_one_by_one() {
    let mut filter = start([
        node("block").arg("ads.example").arg("bad.test"),
        node("allow").arg("fine.ads.example"),
        list("worse.fine.ads.example\n0.0.0.0 x.fine.ads.example"),
    ]);
    assert_eq!(ask(&mut filter, "x.bad.test"), blocked());
    assert_eq!(ask(&mut filter, "ads.example"), blocked());
    // An allowed name passes, whatever other lists say.
    for name in [
        "fine.ads.example",
        "x.fine.ads.example",
        "a.worse.fine.ads.example",
    ] {
        assert_eq!(ask(&mut filter, name), pass(), "{name}");
    }
}

#[test]
fn the_answer_is_what_is_written() {
    let records = |addresses: &[&str], ttl: u64| {
        let name: NameBuf = "ads.example".parse().unwrap();
        let answer = addresses.iter().fold(Answer::noerror(), |answer, address| {
            let address: IpAddr = address.parse().unwrap();
            answer.record(&name, Duration::from_secs(ttl), Rdata::address(address))
        });
        Verdict::answer(answer).remember(HOUR)
    };
    let block = || node("block").arg("ads.example");
    let mut explicit = start([block(), node("answer").arg("nxdomain")]);
    assert_eq!(ask(&mut explicit, "ads.example"), blocked());

    let mut null = start([block(), node("answer").arg("null"), node("ttl").arg("5m")]);
    assert_eq!(ask(&mut null, "ads.example"), records(&["0.0.0.0"], 300));
    let aaaa = null.query(&test::query("ads.example", Type::AAAA));
    assert_eq!(aaaa, records(&["::"], 300));

    let mut page = start([block(), node("answer").arg("192.0.2.1").arg("192.0.2.2")]);
    assert_eq!(
        ask(&mut page, "ads.example"),
        records(&["192.0.2.1", "192.0.2.2"], 3600)
    );
    let nodata = Answer::nodata(&Soa::new("ads.example".parse().unwrap(), HOUR));
    for qtype in [Type::AAAA, Type::TXT, Type::HTTPS] {
        let verdict = page.query(&test::query("ads.example", qtype));
        assert_eq!(verdict, Verdict::answer(nodata.clone()).remember(HOUR), "{qtype}");
    }

    let both = [block(), node("answer").arg("null").arg("192.0.2.1")];
    let mistakes = test::start::<BlockList>(both).unwrap_err();
    assert_eq!(mistakes[0].message, "a word stands alone, or there are addresses");
    let neither = [block(), node("answer").arg("nil")];
    assert_eq!(
        test::start::<BlockList>(neither).unwrap_err()[0].help,
        "\"nxdomain\", \"null\", or addresses"
    );
}

#[test]
fn wrong_lines_are_told_by_number() {
    assert_eq!(
        wrong(
            "ads.example\n\n# fine\n||ads.example/banner.js\nads..example\n192.0.2.1 ads.example\nb\u{fc}cher.example"
        ),
        [
            "line 4: of Adblock's rules, those for names end in ^: ||NAME^, not \"||ads.example/banner.js\"",
            "line 5: \"ads..example\" is not a domain name: there is nothing between two dots, or before the first",
            "line 6: a blocked name has the address 0.0.0.0, 127.0.0.1, :: or ::1, not 192.0.2.1",
            "line 7: \"b\u{fc}cher.example\" is not the name of a host",
        ]
    );
    assert_eq!(wrong("0.0.0.0"), ["line 1: there is no name after the address"]);
    assert_eq!(
        wrong("ads example"),
        ["line 1: the text before a name must be an address, not \"ads\""]
    );
    assert_eq!(
        wrong("example.com##.banner"),
        ["line 1: \"example.com##.banner\" is not the name of a host"]
    );
    let many = wrong(&"?\n".repeat(1000));
    assert_eq!((many.len(), &*many[10]), (11, "and 990 more lines"));
    // The place is the argument in the configuration that names the file.
    let mistakes = test::start::<BlockList>([list("fine.example").arg("?")]).unwrap_err();
    assert_eq!(
        (mistakes[0].node.as_deref(), mistakes[0].argument),
        (Some("list"), Some(1))
    );
}

#[test]
fn unknown_lines_can_be_skipped() {
    let text = "ads.example\n/banner[0-9]+/\n||track.example^$third-party\n";
    let mut filter = start([list(text).prop("unknown", "skip")]);
    let logged = filter.logged();
    assert_eq!(logged[0].0, Level::Warn);
    assert!(
        logged[0]
            .1
            .starts_with("2 lines of a list skipped; the first is line 2: "),
        "{logged:?}"
    );
    assert_eq!(ask(&mut filter, "ads.example"), blocked());
    assert_eq!(ask(&mut filter, "track.example"), pass());
    assert!(test::start::<BlockList>([list(text).prop("unknown", "error")]).is_err());
    assert!(test::start::<BlockList>([list("a.test").prop("unknown", "maybe")]).is_err());
}

/// A list that is empty by accident must not replace the old one.
#[test]
fn nothing_to_block_is_a_mistake() {
    for config in [
        vec![],
        vec![list("# nothing today\n")],
        vec![node("allow").arg("a.test")],
    ] {
        assert_eq!(
            test::start::<BlockList>(config).unwrap_err()[0].message,
            "nothing is blocked"
        );
    }
    assert!(test::start::<BlockList>([node("list")]).is_err());
}

#[test]
fn a_hundred_thousand_names_are_found() {
    let text: String = (0..100_000)
        .map(|number| format!("host-{number}.ads.example\n"))
        .collect();
    let mut filter = start([list(&text)]);
    for number in [0, 4711, 99_999] {
        assert_eq!(
            ask(&mut filter, &format!("a.host-{number}.ads.example")),
            blocked()
        );
    }
    assert_eq!(ask(&mut filter, "host-100000.ads.example"), pass());
}
