//! What the filters of `examples/` cost in a running proxy.
//! `cargo bench --workspace --bench examples`

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement ends where something cannot be set up, and prints its table"
)]

use std::fs;
use std::path::Path;

use harness::guests::example;
use harness::tools::dnsperf;
use harness::{Proxy, Upstream, forward_once};

/// Names asked for: more than the host remembers verdicts, so that the filter is entered for nearly each query.
const NAMES: usize = 20_000;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("list.txt");
    let text: String = (0..100_000)
        .map(|number| format!("||host-{number}.ads-{}.example^\n", number % 1000))
        .collect();
    fs::write(&list, text).expect("a list");
    let upstream = upstream();
    println!(
        "{:<16}{:>10}{:>12}{:>10}{:>10}{:>10}",
        "", "module", "memory", "entered", "at once", "ns each"
    );
    let hosts = "zone \"test\"; host \"a.test\" \"192.0.2.1\"";
    for (name, config, asked) in [
        ("hosts", hosts, "NUMBER.test"),
        ("rotation", "order \"affinity\"", "NUMBER.test"),
        ("dns64", "", "NUMBER.test AAAA"),
    ] {
        run(name, &format!("builtin:{name}"), config, asked, &upstream);
    }
    let block = format!("list (file)\"{}\"", list.display());
    let policies = policies(folder.path());
    let sorted = sorted(folder.path());
    for (name, config, asked) in [
        ("block-list", block.as_str(), "a.host-NUMBER.ads-7.example"),
        ("big-block-list", sorted.as_str(), "a.host-NUMBER.ads.example"),
        ("rate-limit", "rate 1000000; clients 10000", "NUMBER.test"),
        (
            "search-path",
            "search \"corp.example\"",
            "a.NUMBER.shop.svc.cluster.local",
        ),
        (
            "split-horizon",
            "view \"127.0.0.0/8\" { host \"a.test\" \"192.0.2.7\" }",
            "a.test",
        ),
        ("canary", "canary \"a.test\" \"192.0.2.9\" share=50", "a.test"),
        ("services", "service \"*.test\" \"240.0.0.7\"", "NUMBER.test"),
        ("rebinding", "allow \"home.arpa\"", "NUMBER.test"),
        ("policy-zones", policies.as_str(), "NUMBER.test"),
        (
            "tenants",
            "tenant \"t\" \"127.0.0.0/8\" { block \"a.test\" }",
            "NUMBER.test",
        ),
        (
            "maintenance",
            "window \"Mon 00:00\" \"Thu 00:00\" { name \"test\"; }",
            "NUMBER.test",
        ),
        ("dns-lists", "names \"dbl.example\"", "NUMBER.test"),
        ("cname-uncloak", "", "alias-NUMBER.test"),
    ] {
        let module = example(name).display().to_string();
        run(name, &module, config, asked, &upstream);
    }
}

/// An upstream that knows every name: `alias-` by way of another, and none has an address for IPv6.
fn upstream() -> Upstream {
    Upstream::start(|asked| match asked.is("A") {
        true if asked.name().starts_with("alias-") => asked.answer(&[
            &format!("{} 300 CNAME edge.test.", asked.name()),
            "edge.test. 300 A 192.0.2.1",
        ]),
        true => asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]),
        false => asked.denial("NOERROR", Some("test. 300 SOA ns.test. root.test. 1 2 3 4 300")),
    })
}

/// The configuration of a policy zone with 20 000 policies.
fn policies(folder: &Path) -> String {
    let zone = folder.join("rpz.zone");
    let policy = |number| format!("host-{number}.ads-{}.example CNAME .\n", number % 1000);
    let text: String = (0..20_000).map(policy).collect();
    fs::write(&zone, format!("$TTL 60\n{text}")).expect("a zone");
    format!("zone \"rpz.example\" (file)\"{}\"", zone.display())
}

/// The configuration of a sorted list of 3 000 000 names.
fn sorted(folder: &Path) -> String {
    let list = folder.join("sorted.txt");
    let mut names: Vec<String> = (0..3_000_000)
        .map(|number| format!("host-{number}.ads.example"))
        .collect();
    names.sort_unstable();
    fs::write(&list, names.join("\n")).expect("a list");
    format!("list (data)\"{}\"", list.display())
}

fn run(name: &str, module: &str, config: &str, asked: &str, upstream: &Upstream) {
    let proxy = Proxy::start(&format!(
        "workers 1\nfilter \"f\" {{ module \"{module}\"; limits time=\"1s\"; config {{ {config} }} }}\n\
         zone \".\" {{ use \"f\"; cache; {} }}",
        forward_once(upstream.address)
    ));
    let questions: String = (0..NAMES)
        .map(|number| asked.replace("NUMBER", &number.to_string()))
        .map(|asked| format!("{asked}{}\n", if asked.contains(' ') { "" } else { " A" }))
        .collect();
    dnsperf(proxy.address, &questions, 10_000, 4);
    let metrics = proxy.metrics();
    let sum = |metric: &str| {
        let labels = [("filter", "f")];
        metrics.sum(&format!("dnsweir_filter_{metric}_total"), &labels)
    };
    let (calls, items, seconds) = (sum("calls"), sum("items"), sum("seconds"));
    let size = fs::metadata(module).map_or(0, |module| module.len());
    println!(
        "{name:<16}{size:>10}{:>12}{items:>10}{:>10.1}{:>10.0}",
        metrics.sum("dnsweir_filter_memory_bytes", &[("filter", "f")]),
        items / calls,
        seconds / items * 1e9
    );
}
