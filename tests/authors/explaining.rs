//! `dnsweir explain`: the trace of a query, which matches what the proxy does and counts.

use std::fs;

use super::said;
use crate::harness::guests::example;
use crate::harness::{Proxy, Upstream};

/// A pipeline that rewrites, caches and forwards.
fn pipeline(upstream: &Upstream) -> String {
    format!(
        r#"filter "names" {{
               module "builtin:rewrite"
               config {{ name "exact" "db.example" "db.real.example" }}
           }}
           filter "policy" {{
               module "builtin:nodecache"
               config {{ ttl "real.example" max="10s" }}
           }}
           zone "example" {{ use "names"; cache; use "policy"; forward "{}" }}
           zone "." {{ forward "127.0.0.1:9" }}"#,
        upstream.address
    )
}

fn upstream() -> Upstream {
    Upstream::zone(&[
        "db.real.example. 300 A 192.0.2.1",
        "example. 300 SOA ns.example. root.example. 1 2 3 4 5",
    ])
}

/// Runs it on a file, and returns a JSON value per query.
fn explain(text: &str, arguments: &[&str]) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dnsweir.kdl");
    fs::write(&file, format!("listen \"127.0.0.1\"\n{text}")).expect("a configuration");
    let file = file.to_str().expect("a path in UTF-8");
    let output = said(
        folder.path(),
        &[&["explain"], arguments, &["--config", file, "--json"]].concat(),
    );
    let lines = output.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The stage, the way and the first words of each step.
fn steps(trace: &serde_json::Value) -> Vec<String> {
    let steps = trace["steps"].as_array().expect("steps").iter();
    steps
        .map(|step| {
            let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
            let did = step["did"][0].as_str().unwrap_or_default();
            format!("{} {} {}: {did}", text("direction"), text("stage"), text("saw"))
        })
        .collect()
}

#[test]
fn every_stage_says_what_it_saw_and_did() {
    let upstream = upstream();
    let told = explain(&pipeline(&upstream), &["db.example", "A", "--times", "2"]);
    assert_eq!(told.len(), 2);
    let (first, second) = (steps(&told[0]), steps(&told[1]));
    for (step, begins) in first.iter().zip([
        "in zone db.example. A: example. owns the name",
        "in use names db.example. A: rewrite \"db.real.example.\"",
        "in cache db.real.example. A: miss",
        "in use policy db.real.example. A: ",
        "in forward db.real.example. A: 127.",
        "out use policy NOERROR, 1 answer, TTL 300: as decided on the way in, now db.real.example. A: NOERROR, 1 answer, TTL 10",
        "out cache db.real.example. A: kept as success for 10 s",
        "out use names NOERROR, 1 answer, TTL 10: as decided on the way in, now db.example. A: NOERROR, 1 answer, TTL 10",
    ]) {
        assert!(step.starts_with(begins), "{step}\ninstead of\n{begins}\nin {first:#?}");
    }
    assert_eq!(first.len(), 8, "{first:#?}");
    assert!(
        second[2].starts_with("in cache db.real.example. A: hit: NOERROR, 1 answer, TTL "),
        "{second:#?}"
    );
    assert_eq!(second.len(), 4, "{second:#?}");
    let reply = &told[0]["reply"];
    assert_eq!(reply["source"], "upstream");
    assert_eq!(reply["answers"][0], "db.example. 10 IN A 192.0.2.1");
    assert_eq!(told[1]["reply"]["source"], "cache");
    for trace in &told {
        let call = &trace["steps"][1];
        let called = call["did"].as_array().is_some_and(|did| did.len() == 1);
        assert!(
            !called || call["took_microseconds"].as_f64() > Some(0.0),
            "{call}"
        );
    }
}

/// The traces of two queries match the metrics of a running proxy for the same two.
#[test]
fn the_story_is_what_the_metrics_count() {
    let upstream = upstream();
    let text = pipeline(&upstream);
    let told = explain(&text, &["db.example", "A", "--times", "2"]);
    let all: Vec<String> = told.iter().flat_map(steps).collect();
    let count = |part: &str| all.iter().filter(|step| step.contains(part)).count() as f64;

    let proxy = Proxy::start(&format!("workers 1\n{text}"));
    for _ in 0..2 {
        assert_eq!(
            proxy.query_edns("db.example", "A").answers(),
            ["db.example. A 192.0.2.1"]
        );
    }
    proxy.await_metric("dnsweir_responses_total", &[("rcode", "NOERROR")], 2.0);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum("dnsweir_cache_misses_total", &[]), count(": miss"));
    assert_eq!(metrics.sum("dnsweir_cache_hits_total", &[]), count(": hit"));
    assert_eq!(
        metrics.sum("dnsweir_forward_requests_total", &[]),
        count("in forward")
    );
    let remembered = told
        .iter()
        .flat_map(|trace| trace["steps"].as_array().expect("steps"))
        .filter(|step| step["did"].to_string().contains("(remembered"))
        .count() as f64;
    assert_eq!(metrics.sum("dnsweir_filter_remembered_total", &[]), remembered);
    let asked = [("phase", "query")];
    let calls = count("in use ") - remembered;
    assert_eq!(
        metrics.sum("dnsweir_filter_calls_total", &asked),
        calls,
        "{all:#?}"
    );
}

#[test]
fn failures_refusals_and_foreign_names_have_stories_too() {
    let upstream = upstream();
    let text = pipeline(&upstream);
    let dead = &explain(&text, &["other.test", "AAAA", "--client", "2001:db8::7"])[0];
    assert_eq!(dead["client"], "2001:db8::7");
    assert_eq!(dead["reply"]["rcode"], "SERVFAIL");
    assert!(dead["reply"]["extended_error"].is_u64(), "{dead}");
    assert!(
        steps(dead)[1].contains("in forward other.test. AAAA: no answer: "),
        "{dead}"
    );

    let only = "zone \"example\" { forward \"127.0.0.1:9\" }";
    let foreign = &explain(only, &["other.test"])[0];
    assert_eq!(foreign["reply"]["rcode"], "REFUSED");
    assert_eq!(steps(foreign).len(), 1, "{foreign}");
}

/// The output for people: the same in words, with what filters printed.
#[test]
fn it_reads_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dnsweir.kdl");
    fs::write(
        &file,
        r#"listen "127.0.0.1"
           filter "table" { module "builtin:hosts"; config { host "a.example" "192.0.2.1" } }
           filter "lines" { module "builtin:log" }
           zone "." { use "lines"; use "table"; forward "127.0.0.1:9" }"#,
    )
    .expect("a configuration");
    let file = file.to_str().expect("a path in UTF-8");
    let text = said(folder.path(), &["explain", "A.example", "--config", file]);
    for part in [
        "a.example. A asked by 127.0.0.1\n",
        "not asked: it takes no part in queries",
        "answer \"NOERROR\" authoritative=#true {",
        "reply: NOERROR from filter",
        "a.example. 3600 IN A 192.0.2.1",
        "filters printed\n127.0.0.1:",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// As in the proxy, refreshed data is available before the first query.
#[test]
fn filters_have_the_data_of_their_refresh() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("ads.txt");
    fs::write(&list, "ads.example\n").expect("a list");
    let upstream = upstream();
    let text = format!(
        "filter \"lists\" {{\n    module {:?}\n    limits data=\"1MiB\"\n    refresh {{ source \"ads\" {list:?} }}\n}}\n\
         zone \".\" {{ use \"lists\"; forward \"{}\" }}",
        example("fetched-block-list"),
        upstream.address
    );
    let told = explain(&text, &["banner.ads.example", "A"]);
    let steps = steps(&told[0]);
    assert!(
        steps[1].starts_with("in use lists banner.ads.example. A: refuse \"NXDOMAIN\""),
        "{steps:#?}"
    );
}
