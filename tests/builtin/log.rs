//! `log`: one line per query, on standard output.

use super::start;
use crate::harness::pods::{Cluster, put_pod};
use crate::harness::{Message, Proxy, Upstream, forward_once};

/// An upstream with a success, both kinds of denial, and an error.
fn upstream() -> Upstream {
    let soa = "test. 300 SOA ns.test. root.test. 1 2 3 4 5";
    Upstream::start(move |asked| match asked.name().as_str() {
        "good.test." => asked.answer(&["good.test. 300 A 192.0.2.1"]),
        "empty.test." => asked.denial("NOERROR", Some(soa)),
        "none.test." => asked.denial("NXDOMAIN", Some(soa)),
        _ => asked.denial("REFUSED", None),
    })
}

/// Asks for one name of each class, and for a last one that ends the wait.
fn ask_each(proxy: &Proxy) {
    for name in ["good.test", "empty.test", "none.test", "bad.test"] {
        proxy.query(name, "A");
    }
}

fn printed(proxy: &Proxy, what: &str) -> String {
    proxy
        .process
        .printed(&format!("a line with {what}"), |line| line.contains(what))
}

/// CoreDNS's line: `{remote}:{port} - {>id} "{type} {class} {name} {proto} {size} {>do} {>bufsize}" {rcode}
/// {>rflags} {rsize} {duration}`.
#[test]
fn the_default_line_is_the_common_log_format() {
    let upstream = upstream();
    let proxy = start("log", "", "use \"f\"; cache", &upstream);
    let query = Message::query("good.test", "A").dnssec_ok();
    let socket = crate::harness::client::socket(proxy.address);
    let client = socket.local_addr().expect("an address");
    socket.send(&query.encode()).expect("a sent query");
    let answer = crate::harness::client::receive(&socket);
    let line = printed(&proxy, "good.test.");
    let (size, rsize) = (query.encode().len(), answer.len());
    let before = format!(
        "{client} - {} \"A IN good.test. udp {size} true 1232\" NOERROR qr,rd,ra {rsize} ",
        query.id
    );
    let duration = line
        .strip_prefix(&before)
        .unwrap_or_else(|| panic!("`{line}` does not begin with `{before}`"));
    let seconds: f64 = duration
        .strip_suffix('s')
        .and_then(|text| text.parse().ok())
        .expect("a duration in seconds");
    assert!(seconds < 30.0, "{line}");
}

#[test]
fn classes_choose_what_is_logged() {
    for (classes, expected) in [
        ("", &["good", "empty", "none", "bad"][..]),
        ("class \"all\"", &["good", "empty", "none", "bad"]),
        ("class \"success\"", &["good"]),
        ("class \"denial\"", &["empty", "none"]),
        ("class \"error\"", &["bad"]),
        ("class \"denial\" \"error\"", &["empty", "none", "bad"]),
    ] {
        let upstream = upstream();
        let config = format!("format \"{{name}}\"\n{classes}");
        let mut proxy = start("log", &config, "use \"f\"", &upstream);
        ask_each(&proxy);
        // All lines are printed at the latest when the proxy has ended.
        proxy.process.signal("TERM");
        assert!(proxy.process.ended().success());
        let expected: Vec<String> = expected.iter().map(|name| format!("{name}.test.")).collect();
        crate::harness::until(&format!("{expected:?} for `{classes}`"), || {
            proxy.process.stdout().len() >= expected.len()
        });
        let mut lines = proxy.process.stdout();
        // The order between two workers is undefined.
        lines.sort_by_key(|line| expected.iter().position(|name| name == line));
        assert_eq!(lines, expected, "{classes}");
    }
}

/// The filter is not called for queries that it does not print.
#[test]
fn queries_of_other_classes_cost_no_call() {
    let upstream = upstream();
    let proxy = start("log", "class \"error\"", "use \"f\"", &upstream);
    for _ in 0..3 {
        ask_each(&proxy);
    }
    let heard = || {
        let metrics = proxy.metrics();
        ["dnsweir_filter_calls_total", "dnsweir_filter_items_total"]
            .map(|name| metrics.sum(name, &[("filter", "f"), ("phase", "event")]))
    };
    crate::harness::until("the errors to be heard of", || heard()[1] == 3.0);
    assert!(heard()[0] <= 3.0, "{:?}", heard());
}

#[test]
fn json_has_an_object_per_line() {
    let upstream = upstream();
    let proxy = start("log", "format \"json\"", "use \"f\"", &upstream);
    ask_each(&proxy);
    let line = printed(&proxy, "none.test.");
    let json: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    for (key, value) in [
        ("name", "none.test."),
        ("type", "A"),
        ("class", "IN"),
        ("proto", "udp"),
        ("rcode", "NXDOMAIN"),
        ("client", "127.0.0.1"),
        ("source", "upstream"),
    ] {
        if key != "client" {
            assert_eq!(json[key], value, "{line}");
        }
    }
    assert!(json["duration"].is_number() && json["time"].is_string(), "{line}");
}

#[test]
fn combined_and_formats_of_ones_own() {
    let upstream = upstream();
    let combined = start("log", "format \"combined\"", "use \"f\"", &upstream);
    let query = Message::query("good.test", "A");
    combined.ask(&query);
    let line = printed(&combined, "good.test.");
    assert!(
        line.contains(&format!(" - {} 0 \"A IN good.test. udp", query.id)),
        "{line}"
    );
    // Each placeholder once, over TCP and from the cache.
    let format = "{remote} {port} {time} {type} {class} {name} {proto} {size} {rcode} {rsize} {duration} {source} \
                  {>id} {>opcode} {>do} {>bufsize} {>rflags}";
    let own = start(
        "log",
        &format!("format \"{format}\""),
        "use \"f\"; cache",
        &upstream,
    );
    own.query("good.test", "A");
    own.connect().ask(&query);
    let line = printed(&own, " tcp ");
    assert!(!line.contains('{'), "{line}");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words.len(), 17, "{line}");
    assert_eq!(
        (words[6], words[8], words[11]),
        ("tcp", "NOERROR", "cache"),
        "{line}"
    );
}

/// A client cannot write lines into the log.
#[test]
fn a_client_cannot_forge_a_line() {
    let upstream = upstream();
    let proxy = start("log", "format \"{name}\"", "use \"f\"", &upstream);
    proxy.query("a\\010b\"c.test", "A");
    proxy.query("good.test", "A");
    // Each worker prints its own lines, so either may come first.
    printed(&proxy, "good.test.");
    printed(&proxy, "a\\010b");
    let lines = proxy.process.stdout();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

/// Lines are printed in batches, after the answers; none is missing.
#[test]
fn no_line_is_missing_under_load() {
    let upstream = upstream();
    let proxy = start("log", "format \"{>id}\"", "use \"f\"; cache", &upstream);
    proxy.query("good.test", "A");
    let socket = crate::harness::client::socket(proxy.address);
    for _ in 0..20 {
        for _ in 0..50 {
            socket
                .send(&Message::query("good.test", "A").encode())
                .expect("a sent query");
        }
        for _ in 0..50 {
            crate::harness::client::receive(&socket);
        }
    }
    crate::harness::until("1 001 lines", || proxy.process.stdout().len() == 1001);
}

#[test]
fn pods_are_named() {
    let upstream = upstream();
    let text = format!(
        "pods {{ node \"worker-1\" }}\n\
         filter \"lines\" {{ module \"builtin:log\"; config {{ format \"{{name}} {{identity}} {{namespace}} {{pod}}\" }} }}\n\
         zone \".\" {{ cache; use \"lines\"; {} }}",
        forward_once(upstream.address)
    );
    let cluster = Cluster::start(&text, |server| put_pod(server, "shop/web", "127.0.7.1", 1));
    for (client, line) in [
        ("127.0.7.1", "good.test. shop/web shop web"),
        ("127.0.7.1", "good.test. shop/web shop web"),
        ("127.0.0.1", "good.test. host - -"),
    ] {
        cluster.ask(client, "good.test");
        cluster.proxy.process.printed(line, |printed| printed == line);
    }
}
