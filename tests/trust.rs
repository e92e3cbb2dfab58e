//! What the documents say of trust: that each sentence has its test, and tests that nothing else needed.

use std::collections::BTreeMap;
use std::fs;

use crate::harness::guests::{guest, root};
use crate::harness::{Proxy, Upstream};

#[test]
fn every_sentence_has_a_test_that_exists() {
    let page = fs::read_to_string(root().join("docs/trust.md")).expect("docs/trust.md");
    let mut sources = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut named = 0;
    for sentence in items(&page) {
        let tests: Vec<(&str, &str)> = sentence
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|code| code.split_once(".rs::"))
            .collect();
        if tests.is_empty() {
            wrong.push(format!("no test: {sentence}"));
        }
        for (file, test) in tests {
            named += 1;
            let source = sources.entry(file.to_owned()).or_insert_with(|| {
                fs::read_to_string(root().join(file).with_extension("rs")).unwrap_or_default()
            });
            if !has_test(source, test) {
                wrong.push(format!("no such test: {file}.rs::{test}"));
            }
        }
    }
    assert!(named > 30, "only {named}: is this the right page?");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Whether a source file has a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let begin = format!("fn {name}(");
    lines.windows(2).any(|pair| {
        let is_test = ["#[test]", "#[tokio::test]"].contains(&pair[0]);
        is_test && pair[1].trim_start_matches("async ").starts_with(&begin)
    })
}

/// The items of a document's lists.
fn items(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(item) = line.strip_prefix("- ") {
            items.push(item.to_owned());
            open = true;
        } else if let (true, Some(more), Some(item)) = (open, line.strip_prefix("  "), items.last_mut()) {
            item.push(' ');
            item.push_str(more);
        } else {
            open = false;
        }
    }
    items
}

#[test]
fn a_filter_sees_its_own_zones_only() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let proxy = Proxy::start(&format!(
        "filter \"curious\" {{ module \"{module}\"; on-error \"servfail\"; limits time=\"1s\" }}\n\
         zone \"seen.test\" {{ use \"curious\"; forward \"{upstream}\" }}\n\
         zone \".\" {{ forward \"{upstream}\" }}",
        module = guest("trap").display(),
        upstream = upstream.address,
    ));
    // This one would trap at the name if it saw it.
    assert_eq!(proxy.query("trap.unseen.test", "A").rcode(), "NOERROR");
    assert_eq!(proxy.query("a.seen.test", "A").rcode(), "NOERROR");
    proxy.await_metric(
        "dnsweir_filter_items_total",
        &[("filter", "curious"), ("phase", "query")],
        1.0,
    );
}
