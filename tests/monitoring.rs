//! Dashboards and alerts in `deploy/monitoring`: a real Prometheus accepts every query and rule, and all
//! metrics in them exist.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::harness::guests::root;
use crate::harness::process::Process;
use crate::harness::tools::{command, output};
use crate::harness::{Proxy, Upstream, address, eventually, forward_once, needs, proxy, until};

fn monitoring() -> PathBuf {
    root().join("deploy/monitoring")
}

/// All queries of all panels and variables, with their places.
fn queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for entry in fs::read_dir(monitoring().join("dashboards")).expect("dashboards") {
        let path = entry.expect("a dashboard").path();
        let text = fs::read_to_string(&path).expect("a dashboard");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().expect("a title");
            for target in panel["targets"].as_array().expect("targets") {
                let query = target["expr"].as_str().expect("a query");
                queries.push((format!("{name}, {title}"), query.to_owned()));
            }
        }
        for variable in dashboard["templating"]["list"].as_array().expect("variables") {
            let Some(query) = variable["definition"].as_str() else {
                continue;
            };
            let metric = query.trim_start_matches("label_values(").split(',').next();
            queries.push((
                format!("{name}, {}", variable["name"]),
                metric.expect("a metric").to_owned(),
            ));
        }
    }
    assert!(queries.len() > 60, "{} queries", queries.len());
    queries
}

/// The metrics named in a text, such as docs/reference/metrics.md.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics = words.filter(|word| word.starts_with("dnsweir_") || word.starts_with("coredns_"));
    metrics
        .map(|word| {
            let suffix = ["_bucket", "_sum", "_count"]
                .into_iter()
                .find_map(|suffix| word.strip_suffix(suffix));
            suffix.unwrap_or(word).to_owned()
        })
        .collect()
}

/// Another test compares the documented metrics with the served ones.
#[test]
fn queries_and_alerts_name_metrics_that_there_are() {
    let documented =
        metrics(&fs::read_to_string(root().join("docs/reference/metrics.md")).expect("a document"));
    for (place, query) in queries() {
        assert!(metrics(&query).is_subset(&documented), "{place}: {query}");
    }
    let alerts = fs::read_to_string(monitoring().join("alerts.yaml")).expect("alerts");
    let unknown: Vec<_> = metrics(&alerts).difference(&documented).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Each alert fires when it should, and not before. promtool reads the cases from a file.
#[test]
fn alerts_fire() {
    if !needs(&["promtool"]) {
        return;
    }
    output(
        command("promtool")
            .arg("check")
            .arg("rules")
            .arg(monitoring().join("alerts.yaml")),
    );
    let tests = root().join("tests/monitoring/alerts.yaml");
    output(command("promtool").args(["test", "rules"]).arg(&tests));
    let text = fs::read_to_string(monitoring().join("alerts.yaml")).expect("alerts");
    let tested = fs::read_to_string(tests).expect("tests");
    for line in text.lines() {
        let Some(alert) = line.trim().strip_prefix("- alert: ") else {
            continue;
        };
        assert!(
            tested.contains(&format!("alertname: {alert}\n")),
            "no test of {alert}"
        );
    }
}

/// DnsweirNobodyAsks may only fire where there are rules.
#[test]
fn packets_are_counted_only_with_rules() {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start(&format!("zone \".\" {{ {} }}", forward_once(upstream.address)));
    let metrics = proxy.metrics();
    assert!(metrics.has("dnsweir_node_repairs_total", &[]));
    assert!(!metrics.has("dnsweir_node_rule_packets_total", &[]));
}

/// A real Prometheus scrapes a proxy and evaluates all of them.
#[test]
fn prometheus_takes_every_query_and_rule() {
    if !needs(&["prometheus"]) {
        return;
    }
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start(&format!(
        "filter \"table\" {{ module \"builtin:hosts\"; config {{ host \"a.test\" \"192.0.2.7\" }} }}\n\
         zone \".\" {{ use \"table\"; cache; {} }}",
        forward_once(upstream.address)
    ));
    proxy.query("www.example", "A");
    let server = SocketAddr::new(address::fresh().into(), 9090);
    let file = proxy.folder().join("prometheus.yml");
    let text = format!(
        "global: {{evaluation_interval: 200ms}}\nrule_files: [\"{}\"]\nscrape_configs:\n- job_name: dnsweir\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  \
         static_configs:\n  - targets: [\"{}\"]\n",
        monitoring().join("alerts.yaml").display(),
        proxy.admin
    );
    fs::write(&file, text).expect("a file");
    let mut prometheus = command("prometheus");
    prometheus
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            proxy.folder().join("tsdb").display()
        ))
        .arg(format!("--web.listen-address={server}"));
    let _prometheus = Process::start(&mut prometheus);
    let ask = |query: &str| -> Option<serde_json::Value> {
        let (_, body) = proxy::try_get(server, &format!("/api/v1/query?query={}", encoded(query)))?;
        serde_json::from_str(&body).ok()
    };
    until("Prometheus to scrape", || {
        ask("up").is_some_and(|answer| answer["data"]["result"][0]["value"][1] == "1")
    });
    for (place, query) in queries() {
        let query = ["$node", "$to", "$filter"]
            .into_iter()
            .fold(query, |query, name| query.replace(name, ".*"));
        let query = query.replace("$__rate_interval", "1m");
        let answer = eventually(&place, || ask(&query));
        assert_eq!(answer["status"], "success", "{place}: {query}: {answer}");
    }
    // Prometheus's own metrics: every rule was evaluated, and none failed.
    let told = |name: &str| -> Option<f64> {
        let (_, page) = proxy::try_get(server, "/metrics")?;
        let mut lines = page
            .lines()
            .filter(|line| line.starts_with(name) && line.contains("alerts.yaml;dnsweir"));
        lines.next()?.split_whitespace().last()?.parse().ok()
    };
    until("every rule to be evaluated", || {
        told("prometheus_rule_evaluations_total").is_some_and(|count| count >= 12.0)
    });
    let failures = eventually("its failures", || {
        told("prometheus_rule_evaluation_failures_total")
    });
    assert_eq!(failures, 0.0);
}

/// Percent-encodes a query for a URL (RFC 3986 section 2.1).
fn encoded(query: &str) -> String {
    let octet = |octet: u8| match octet.is_ascii_alphanumeric() {
        true => char::from(octet).to_string(),
        false => format!("%{octet:02X}"),
    };
    query.bytes().map(octet).collect()
}
