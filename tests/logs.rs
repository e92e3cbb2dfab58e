//! Output: logs on standard error, query lines on standard output.

use crate::harness::{Proxy, Upstream, forward_once, until};

fn start(arguments: &[&str]) -> (Proxy, Upstream) {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start_with(
        &format!("zone \".\" {{ {} }}", forward_once(upstream.address)),
        arguments,
    );
    (proxy, upstream)
}

/// The start logs the listen addresses; levels are words.
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

/// An unknown level is a usage error.
#[test]
fn unknown_levels_are_refused() {
    let mut proxy = Proxy::launch(
        "zone \".\" { forward \"127.0.0.1:9\" }",
        &["--log-level", "loudly"],
    );
    assert!(!proxy.process.ended().success());
    proxy.process.logged("loudly");
}

/// Fills both pipes, which are not read, and the queues behind them: the main thread with reports of bad
/// files, the workers with a filter's lines.
fn overfill(proxy: &Proxy) {
    let dropped = |stream| {
        let metrics = proxy.metrics();
        metrics.sum("dnsweir_output_lines_dropped_total", &[("stream", stream)])
    };
    // Half a MiB of mistakes each.
    proxy.rewrite(&format!(
        "zone \".\" {{ {} }}",
        "forwart \"192.0.2.1\"; ".repeat(1000)
    ));
    until("the log to be dropped", || {
        proxy.process.signal("HUP");
        dropped("stderr") > 0.0
    });
    until("filters' lines to be dropped", || {
        for _ in 0..50 {
            proxy.query("www.example", "A");
        }
        dropped("stdout") > 0.0
    });
}

/// A long line per query.
fn talkative() -> String {
    let format = format!("{{name}} {}", "x".repeat(8000));
    format!(
        "filter \"log\" {{ module \"builtin:log\"; config {{ format \"{format}\" }} }}\n\
         filter \"table\" {{ module \"builtin:hosts\"; config {{ host \"www.example\" \"192.0.2.1\" }} }}\n\
         zone \"example\" {{ use \"log\"; use \"table\" }}"
    )
}

/// A reader that stops for good costs lines and nothing else.
#[test]
fn output_that_nobody_reads_stops_nothing() {
    let mut proxy = Proxy::launch_unread(&talkative(), &["--log-level", "trace"]);
    proxy.await_ready();
    overfill(&proxy);
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(proxy.get("/health").0, 200);
    proxy.process.signal("TERM");
    assert_eq!(proxy.process.ended().code(), Some(0));
}

/// As when a journal restarts: the log continues, and says how much is missing.
#[test]
fn a_reader_that_comes_back_is_told_what_is_missing() {
    let mut proxy = Proxy::launch_unread(&talkative(), &[]);
    proxy.await_ready();
    overfill(&proxy);
    proxy.process.read();
    for stream in ["stdout", "stderr"] {
        let line = proxy.process.logged(&format!("stream=\"{stream}\""));
        assert!(line.contains("its reader is too slow"), "{line}");
    }
    proxy.reload(&talkative());
    proxy.process.logged("reloaded");
}

/// The reason for a failed start is written however slow the reader is, without delaying the exit for long.
#[test]
fn a_failed_start_ends_with_nobody_reading() {
    let mistakes = "forwart \"192.0.2.1\"; ".repeat(1000);
    let mut proxy = Proxy::launch_unread(&format!("zone \".\" {{ {mistakes} }}"), &[]);
    assert_eq!(proxy.process.ended().code(), Some(64));
}
