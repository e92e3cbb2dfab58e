//! What the proxy says: logs on standard error, query lines on standard output.

use crate::harness::{Proxy, Upstream, forward_once};

fn start(arguments: &[&str]) -> (Proxy, Upstream) {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start_with(
        &format!("zone \".\" {{ {} }}", forward_once(upstream.address)),
        arguments,
    );
    (proxy, upstream)
}

/// The start says where it listens; levels are words.
#[test]
fn logs_are_text_by_default() {
    let (proxy, _upstream) = start(&[]);
    let line = proxy.process.logged(&proxy.address.to_string());
    assert!(line.contains("INFO"), "{line}");
    assert!(!line.contains('\u{1b}'), "colours where no terminal is: {line}");
    assert_eq!(proxy.process.stdout(), Vec::<String>::new());
}

#[test]
fn logs_are_json_if_asked_for() {
    let (proxy, _upstream) = start(&["--log-format", "json"]);
    proxy.process.logged(&proxy.address.to_string());
    for line in proxy.process.stderr() {
        let json: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["timestamp", "level"] {
            assert!(json.get(key).is_some(), "no {key}: {line}");
        }
    }
}

#[test]
fn levels_are_obeyed() {
    let (quiet, _upstream) = start(&["--log-level", "error"]);
    quiet.query("www.example", "A");
    assert_eq!(quiet.process.stderr(), Vec::<String>::new());
    let (talkative, _upstream) = start(&["--log-level", "info"]);
    talkative.process.logged("INFO");
}

/// A level that is none is an error of usage.
#[test]
fn unknown_levels_are_refused() {
    let mut proxy = Proxy::launch(
        "zone \".\" { forward \"127.0.0.1:9\" }",
        &["--log-level", "loudly"],
    );
    assert!(!proxy.process.ended().success());
    proxy.process.logged("loudly");
}
