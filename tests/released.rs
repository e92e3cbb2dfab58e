//! Filters built for earlier releases of the interface: each still works completely.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::guests::root;
use crate::harness::message::EXTENDED_ERROR;
use crate::harness::{Message, Proxy, Upstream, flags, forward_once, unanswered};

#[test]
fn filters_of_every_release_still_work() {
    let kept = root().join("tests/released");
    let sums = fs::read_to_string(kept.join("SHA256SUMS")).expect("the list of what is kept");
    let mut count = 0;
    for line in sums.lines() {
        let (digest, name) = line.split_once("  ").expect("a digest and a name");
        uses_everything(&kept.join(name), &format!("sha256 \"{digest}\""));
        count += 1;
    }
    let files = fs::read_dir(&kept).expect("a folder").filter(|entry| {
        let path = entry.as_ref().expect("an entry").path();
        path.extension().is_some_and(|extension| extension == "wasm")
    });
    assert_eq!(files.count(), count, "each has its digest");
    assert!(count > 0);
}

/// The answer for a name: rcode, AA, TTL, the records of each section, and the extended error.
const TOLD: [(&str, &str); 21] = [
    ("pass", "NOERROR 300 pass.test. A 192.0.2.1"),
    (
        "answer",
        "NOERROR AA 300 answer.test. A 192.0.2.7 | answer.test. NS target.test. | target.test. A 192.0.2.7 | told to (4)",
    ),
    ("rename", "NOERROR 300 rename.test. A 192.0.2.1"),
    (
        "alias",
        "NOERROR 300 alias.test. CNAME target.test., target.test. A 192.0.2.1",
    ),
    ("refuse", "REFUSED | told to (18)"),
    ("edit", "NOERROR 7 edit.test. A 192.0.2.1"),
    (
        "records",
        "NOERROR 300 records.test. A 192.0.2.8, records.test. A 192.0.2.2, records.test. A 192.0.2.7 | target.test. A 192.0.2.9",
    ),
    ("shuffle", "NOERROR 300 shuffle.test. A 192.0.2.1"),
    ("mark", "NOERROR AA | told to (17)"),
    ("mark", "NOERROR AA | told to (17)"),
    ("route", "NOERROR 300 route.test. A 192.0.2.2"),
    ("skip", "NOERROR 300 skip.test. A 192.0.2.1"),
    ("ask", "NOERROR 300 ask.test. A 192.0.2.7"),
    ("table", "NOERROR 300 table.test. A 192.0.2.7"),
    ("data", "NOERROR 300 data.test. A 192.0.2.7"),
    ("details", "NOERROR 300 details.test. A 192.0.2.7"),
    ("shorten", "NOERROR 9 shorten.test. A 192.0.2.1"),
    ("reask", "NOERROR 300 reask.test. A 192.0.2.7"),
    ("replace", "NOERROR 300 replace.test. A 192.0.2.7"),
    ("trap", "SERVFAIL"),
    ("last", "NOERROR 300 last.test. A 192.0.2.1"),
];

/// Uses each feature of a filter once: of `tests/filters/released`, or of one in `tests/languages`.
#[track_caller]
pub fn uses_everything(module: &Path, options: &str) {
    let address = |asked: &crate::harness::upstream::Asked, lasts: &[u8]| {
        let records = lasts
            .iter()
            .map(|last| format!("{} 300 A 192.0.2.{last}", asked.name()));
        let records: Vec<String> = records.collect();
        asked.answer(&records.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let upstream = Upstream::start(move |asked| match asked.name().as_str() {
        "mark.test." => asked.denial("NXDOMAIN", None),
        "records.test." => address(asked, &[1, 2, 3]),
        _ => address(asked, &[1]),
    });
    let other = Upstream::start(move |asked| address(asked, &[2]));
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("list");
    fs::write(&list, "key value\n").expect("a list");
    let proxy = Proxy::start(&format!(
        "workers 1\n\
         filter \"released\" {{\n    module {module:?}\n    {options}\n    on-error \"servfail\"; limits time=\"1s\"\n    \
         config {{ address \"192.0.2.7\"; target \"target.test\"; list (data){list:?} }}\n    \
         refresh {{ source \"list\" {list:?}; wait \"1m\" }}\n}}\n\
         source \"other\" {{ {} }}\nzone \"test\" {{ use \"released\"; cache; {} }}",
        forward_once(other.address),
        forward_once(upstream.address),
    ));
    proxy.process.logged("released is configured for [test.]");
    for label in ["drop", "silence"] {
        unanswered(
            proxy.address,
            &Message::query(&format!("{label}.test"), "A").encode(),
        );
    }
    let drops = [("filter", "released"), ("reason", "told to")];
    proxy.await_metric("dnsweir_filter_drops_total", &drops, 2.0);
    for label in ["late", "later"] {
        let begin = Instant::now();
        let answer = proxy.query(&format!("{label}.test"), "A");
        assert_eq!(answer.rcode(), "NOERROR", "{answer}");
        assert!(begin.elapsed() >= Duration::from_millis(20), "{label}");
    }
    for (label, expected) in TOLD {
        let query = Message::query(&format!("{label}.test"), "A").option(65001, b"told");
        assert_eq!(told(&proxy.ask(&query)), expected);
    }
    assert_eq!(
        (upstream.count("rename.test"), upstream.count("mark.test")),
        (0, 2)
    );
    let subnet = other.asked("route.test")[0]
        .message
        .find_option(8)
        .map(<[u8]>::to_vec);
    assert_eq!(subnet.as_deref(), Some(&[0, 1, 24, 0, 192, 0, 2][..]));
    leaves_its_traces(&proxy);
}

fn told(answer: &Message) -> String {
    let mut told = answer.rcode();
    if answer.has(flags::AA) {
        told += " AA";
    }
    for (section, separator) in [
        (&answer.answers, " "),
        (&answer.authority, " | "),
        (&answer.additional, " | "),
    ] {
        let records: Vec<String> = section.iter().map(|record| record.without_ttl()).collect();
        if separator == " " && !section.is_empty() {
            told += &format!(" {}", answer.ttl());
        }
        if !records.is_empty() {
            told += &format!("{separator}{}", records.join(", "));
        }
    }
    if let Some([_, code, text @ ..]) = answer.find_option(EXTENDED_ERROR)
        && !text.is_empty()
    {
        told += &format!(" | {} ({code})", String::from_utf8_lossy(text));
    }
    told
}

/// Checks what it logged, printed and counted.
#[track_caller]
fn leaves_its_traces(proxy: &Proxy) {
    proxy.process.logged("told to panic at trap.test");
    let heard = |line: &str| line.contains("heard of last.test");
    proxy.process.printed("an event", heard);
    let lines = proxy.process.stdout().join("\n");
    assert!(lines.contains("heard of shorten.test"), "{lines}");
    // The events that it asked for: no errors, and none of the proxy's own queries.
    assert!(
        !lines.contains("trap.test") && !lines.contains("a part"),
        "{lines}"
    );
    let counted = |name: &str, labels: &[(&str, &str)]| {
        let labels = [&[("filter", "released")], labels].concat();
        proxy.metrics().sum(name, &labels)
    };
    let queries = [("name", "queries")];
    assert!(counted("dnsweir_filter_counter_total", &queries) >= 9.0);
    let labelled = [("name", "labels"), ("label", "answer")];
    assert_eq!(counted("dnsweir_filter_counter_total", &labelled), 1.0);
    let shown = [("table", "numbers"), ("key", "asked")];
    assert_eq!(counted("dnsweir_filter_table_value", &shown), 2.0);
}
