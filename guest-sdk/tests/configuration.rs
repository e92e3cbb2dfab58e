//! The messages about mistakes in a filter's configuration.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, Mistake, node};
use dnsweir_filter::{Filter, Invalid, Manifest, NameBuf, Setup, Ttl};

#[derive(Debug, PartialEq)]
struct Table {
    hosts: Vec<(NameBuf, Vec<IpAddr>)>,
    ttl: Duration,
}

/// `ttl "60s" jitter=#true` and `host NAME ADDRESS… { note TEXT; }`
impl Filter for Table {
    fn configure(setup: Setup<'_>) -> Result<(Table, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.node("ttl").and_then(|node| match node {
            Some(node) => {
                let jitter = node.property::<bool>("jitter");
                let ttl = node.argument::<Ttl>(0)?;
                jitter.map(|_| ttl.into())
            }
            None => Ok(Duration::from_secs(60)),
        });
        let mut hosts = Vec::new();
        for node in config.nodes(&["host"]) {
            for note in node.nodes(&["note"]) {
                let _ = note.text(0);
            }
            let (name, addresses) = (node.argument(0), node.arguments(1));
            if let (Ok(name), Ok(addresses)) = (name, addresses) {
                hosts.push((name, addresses));
            }
        }
        Ok((Table { hosts, ttl: ttl? }, Manifest::new().queries()))
    }
}

fn mistakes(nodes: impl IntoIterator<Item = test::Node>) -> Vec<Mistake> {
    test::start::<Table>(nodes).unwrap_err()
}

fn host() -> test::Node {
    node("host").arg("a.test").arg("192.0.2.1")
}

#[test]
fn what_is_right_is_taken() {
    assert!(test::start::<Table>([]).is_ok());
    let config = [
        node("ttl").arg("5s").prop("jitter", true),
        host().arg("::1").child(node("note").arg("x")),
    ];
    assert!(test::start::<Table>(config).is_ok());
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let found = mistakes([
        node("host"),
        node("host").arg("a..test").arg("192.0.2.1").arg("192.0.2.256"),
        node("hots").arg("a.test"),
        host().prop("ttl", "5s"),
        host().child(node("note").arg("x").arg("y")).child(node("nota")),
    ]);
    let texts: Vec<_> = found
        .iter()
        .map(|mistake| {
            let Mistake {
                node,
                argument,
                property,
                message,
                help,
            } = mistake;
            (
                node.as_deref(),
                *argument,
                property.as_deref(),
                message.as_str(),
                help.as_str(),
            )
        })
        .collect();
    let name_help = "there is nothing between two dots, or before the first";
    let address_help = "such as \"192.0.2.1\" or \"2001:db8::1\", without port or prefix";
    let not_name = "the first argument of `host` must be a domain name, not \"a..test\"";
    let not_address = "the third argument of `host` must be an IP address, not \"192.0.2.256\"";
    assert_eq!(
        texts,
        [
            (
                Some("host"),
                None,
                None,
                "`host` needs a domain name as its first argument",
                ""
            ),
            (
                Some("host"),
                None,
                None,
                "`host` needs an IP address as its second argument",
                ""
            ),
            (Some("host"), Some(0), None, not_name, name_help),
            (Some("host"), Some(2), None, not_address, address_help),
            (
                Some("hots"),
                None,
                None,
                "this filter knows no `hots`",
                "valid here: `ttl`, `host`"
            ),
            (
                Some("host"),
                None,
                Some("ttl"),
                "`host` knows no `ttl=`",
                "nothing is valid here"
            ),
            (
                Some("note"),
                Some(1),
                None,
                "`note` takes one argument",
                "remove \"y\""
            ),
            (
                Some("nota"),
                None,
                None,
                "`host` knows no `nota`",
                "valid here: `note`"
            ),
        ]
    );
}

#[test]
fn nothing_is_claimed_about_what_was_not_read() {
    // `ttl` is wrong, and reading stopped before its second argument.
    let found = mistakes([node("ttl").arg(5).arg("more").prop("jitter", "yes")]);
    let messages: Vec<_> = found.iter().map(|mistake| mistake.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "`jitter` of `ttl` must be #true or #false, not \"yes\"",
            "the first argument of `ttl` must be a TTL, not 5",
        ]
    );
    let twice = mistakes([node("ttl").arg("5s"), node("ttl").arg("6s")]);
    assert_eq!(twice.len(), 1);
    assert_eq!(twice[0].message, "`ttl` is here twice");
}

#[derive(Debug)]
struct Idle;

impl Filter for Idle {
    fn configure(_: Setup<'_>) -> Result<(Idle, Manifest), Invalid> {
        Ok((Idle, Manifest::new()))
    }
}

#[test]
fn a_filter_must_take_part_in_something() {
    let found = test::start::<Idle>([]).unwrap_err();
    assert_eq!(
        found[0].message,
        "this filter takes part in no phase; its manifest must name one"
    );
    assert_eq!(found[0].node, None);
    let zones = test::start_in::<Idle>(&["a..b"], []).unwrap_err();
    assert!(
        zones[0].message.starts_with("the zone `a..b` has no valid name"),
        "{}",
        zones[0].message
    );
}

#[test]
fn ten_thousand_nodes_are_read_in_passing() {
    let hosts = (0..10_000).map(|number| node("host").arg(&*format!("h{number}.test")).arg("192.0.2.1"));
    assert!(test::start::<Table>(hosts).is_ok());
}
