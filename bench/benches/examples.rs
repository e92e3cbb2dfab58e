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
use harness::pods::{Cluster, annotate, put_pod};
use harness::tools::dnsperf;
use harness::{Proxy, Upstream, forward_once};

#[path = "../../examples/country/tests/maker/mod.rs"]
mod maker;

/// Names asked for: more than the verdicts that the host remembers, so that the filter is called for nearly
/// every query.
const NAMES: usize = 20_000;

/// A filter to measure.
struct Case {
    name: &'static str,
    config: String,
    /// The question, with `NUMBER` for another number each time; for type A unless given.
    asked: &'static str,
    /// Other options in the filter's block.
    block: String,
    /// The annotation of a namespace, if the client is to be one of its pods.
    annotation: Option<(&'static str, &'static str)>,
}

fn case(name: &'static str, config: impl Into<String>, asked: &'static str) -> Case {
    Case {
        name,
        config: config.into(),
        asked,
        block: String::new(),
        annotation: None,
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    println!(
        "{:<20}{:>10}{:>12}{:>10}{:>10}{:>10}",
        "", "module", "memory", "entered", "at once", "ns each"
    );
    let upstream = upstream();
    for case in cases(folder.path()) {
        let named = only.is_empty() || only.iter().any(|only| only == case.name);
        // All others are compared with it.
        if named || case.name == "hosts" {
            run(&case, &upstream);
        }
    }
}

fn cases(folder: &Path) -> Vec<Case> {
    let first = vec![
        case(
            "hosts",
            "zone \"test\"; host \"a.test\" \"192.0.2.1\"",
            "NUMBER.test",
        ),
        case("rotation", "order \"affinity\"", "NUMBER.test"),
        case("dns64", "", "NUMBER.test AAAA"),
    ];
    [first, with_data(folder), with_pods(), with_words()]
        .into_iter()
        .flatten()
        .collect()
}

/// Filters that read files.
fn with_data(folder: &Path) -> Vec<Case> {
    let list = list(folder);
    let refresh = format!(
        "limits time=\"1s\" data=\"64MiB\" refresh-memory=\"256MiB\"; refresh {{ source \"ads\" \"{list}\" }}"
    );
    vec![
        case(
            "block-list",
            format!("list (file)\"{list}\""),
            "a.host-NUMBER.ads-7.example",
        ),
        case("big-block-list", sorted(folder), "a.host-NUMBER.ads.example"),
        Case {
            block: refresh,
            ..case(
                "fetched-block-list",
                "at-least 100000",
                "a.host-NUMBER.ads-7.example",
            )
        },
        case("country", steered(folder), "a.test"),
        case("policy-zones", policies(folder), "NUMBER.test"),
    ]
}

/// Filters that decide by the client.
fn with_pods() -> Vec<Case> {
    let egress = "annotation \"example.com/egress\"; always \"cluster.local\"";
    let answers = "annotation \"example.com/answers\"";
    vec![
        Case {
            annotation: Some(("example.com/egress", "api.example *.pkg.example *.test")),
            ..case("egress-names", egress, "NUMBER.test")
        },
        Case {
            annotation: Some((
                "example.com/answers",
                "db.example 10.0.0.7 fd00::7; api.example mock.test",
            )),
            ..case("namespace-answers", answers, "NUMBER.test")
        },
    ]
}

/// Filters that need only their configuration.
fn with_words() -> Vec<Case> {
    vec![
        case("rate-limit", "rate 1000000; clients 10000", "NUMBER.test"),
        case(
            "search-path",
            "search \"corp.example\"",
            "a.NUMBER.shop.svc.cluster.local",
        ),
        case(
            "split-horizon",
            "view \"127.0.0.0/8\" { host \"a.test\" \"192.0.2.7\" }",
            "a.test",
        ),
        case("canary", "canary \"a.test\" \"192.0.2.9\" share=50", "a.test"),
        case("services", "service \"*.test\" \"240.0.0.7\"", "NUMBER.test"),
        case("rebinding", "allow \"home.arpa\"", "NUMBER.test"),
        case(
            "tenants",
            "tenant \"t\" \"127.0.0.0/8\" { block \"a.test\" }",
            "NUMBER.test",
        ),
        case(
            "maintenance",
            "window \"Mon 00:00\" \"Thu 00:00\" { name \"test\"; }",
            "NUMBER.test",
        ),
        case("dns-lists", "names \"dbl.example\"", "NUMBER.test"),
        case("cname-uncloak", "", "alias-NUMBER.test"),
        case("traffic", "prefix ipv4=24 ipv6=64", "NUMBER.test"),
    ]
}

/// Starts an upstream that has every name: `alias-` names through an alias, and none with an IPv6 address.
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

/// Returns the configuration of a policy zone with 20 000 policies.
fn policies(folder: &Path) -> String {
    let zone = folder.join("rpz.zone");
    let policy = |number| format!("host-{number}.ads-{}.example CNAME .\n", number % 1000);
    let text: String = (0..20_000).map(policy).collect();
    fs::write(&zone, format!("$TTL 60\n{text}")).expect("a zone");
    format!("zone \"rpz.example\" (file)\"{}\"", zone.display())
}

/// Returns the configuration of a sorted list of 3 000 000 names.
fn sorted(folder: &Path) -> String {
    let list = folder.join("sorted.txt");
    let mut names: Vec<String> = (0..3_000_000)
        .map(|number| format!("host-{number}.ads.example"))
        .collect();
    names.sort_unstable();
    fs::write(&list, names.join("\n")).expect("a list");
    format!("list (data)\"{}\"", list.display())
}

/// Writes a list of 100 000 names, none of which is asked for.
fn list(folder: &Path) -> String {
    let list = folder.join("list.txt");
    let text: String = (0..100_000)
        .map(|number| format!("host-{number}.ads-{}.example\n", number % 1000))
        .collect();
    fs::write(&list, text).expect("a list");
    list.display().to_string()
}

/// Returns the configuration of a name steered by a database of 20 000 networks.
fn steered(folder: &Path) -> String {
    let file = folder.join("networks.mmdb");
    let networks: Vec<String> = (0..20_000)
        .map(|number| format!("::127.{}.{}.0", number / 256, number % 256))
        .collect();
    let networks: Vec<(&str, u32, &str, &str)> = networks
        .iter()
        .map(|network| (network.as_str(), 96 + 24, "DE", "EU"))
        .collect();
    fs::write(&file, maker::database(28, &networks)).expect("a database");
    format!(
        "database (data)\"{}\"; steer \"a.test\" {{ country \"b.test\" \"AT\"; continent \"c.test\" \"EU\" }}",
        file.display()
    )
}

/// Queries a proxy with the filter, and prints figures from its metrics.
fn run(case: &Case, upstream: &Upstream) {
    let Case {
        name, config, asked, ..
    } = case;
    let (module, size) = match ["hosts", "rebinding", "rotation", "dns64"].contains(name) {
        true => (format!("builtin:{name}"), 0),
        false => {
            let module = example(name);
            let size = fs::metadata(&module).map_or(0, |module| module.len());
            (module.display().to_string(), size)
        }
    };
    let block = match case.block.as_str() {
        "" => "limits time=\"1s\"",
        block => block,
    };
    let text = format!(
        "workers 1\nfilter \"f\" {{ module \"{module}\"; {block}; config {{ {config} }} }}\n\
         zone \".\" {{ use \"f\"; cache; {} }}",
        forward_once(upstream.address)
    );
    // The client is at 127.0.0.1.
    let cluster = case.annotation.map(|(annotation, value)| {
        Cluster::start(&format!("pods {{ node \"worker-1\" }}\n{text}"), |server| {
            annotate(server, "shop", annotation, value);
            put_pod(server, "shop/web", "127.0.0.1", 1);
        })
    });
    let alone = cluster.is_none().then(|| Proxy::start(&text));
    let proxy = cluster.as_ref().map(|cluster| &cluster.proxy).or(alone.as_ref());
    let proxy = proxy.expect("either of them");
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
    println!(
        "{name:<20}{size:>10}{:>12}{items:>10}{:>10.1}{:>10.0}",
        metrics.sum("dnsweir_filter_memory_bytes", &[("filter", "f")]),
        items / calls,
        seconds / items * 1e9
    );
}
