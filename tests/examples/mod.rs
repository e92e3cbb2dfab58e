//! The Rust filters of `examples/`: runs the configuration in each README, and each option end to end. Their
//! answers are tested in detail next to their source.

mod big_block_list;
mod block_list;
mod canary;
mod cname_uncloak;
pub mod country;
mod dns_lists;
mod egress_names;
mod fetched_block_list;
mod maintenance;
mod namespace_answers;
mod policy_zones;
mod rate_limit;
mod search_path;
mod services;
mod split_horizon;
mod tenants;
mod traffic;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::harness::guests::{EXAMPLES, example, root};
use crate::harness::proxy;
use crate::harness::{Proxy, Upstream, forward_once};

/// The server in a README that stands for the reader's own.
const FORWARD: &str = "forward \"192.0.2.53\"";

/// The configuration in an example's README, adapted to run here: with the built module, free addresses, the
/// test's upstream, and generous timeouts. The test replaces what exists only at the reader's site.
#[track_caller]
fn documented(name: &str, upstream: SocketAddr, replaced: &[(&str, &str)]) -> String {
    let module = format!("module \"example_{}.wasm\"", name.replace('-', "_"));
    let path = format!("module \"{}\"", example(name).display());
    let file = format!("examples/{name}/README.md");
    configuration_in(&file, upstream, replaced, (&module, &path))
}

/// The same for a README with this path, module name and module path.
#[track_caller]
pub fn configuration_in(
    file: &str,
    upstream: SocketAddr,
    replaced: &[(&str, &str)],
    (module, path): (&str, &str),
) -> String {
    let readme = fs::read_to_string(root().join(file)).expect("a README");
    let mut text = readme
        .split("```kdl\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .find(|text| text.starts_with("listen "))
        .expect("a whole configuration")
        .to_owned();
    for (from, to) in replaced {
        assert!(text.contains(from), "{file} has no {from}");
        text = text.replace(from, to);
    }
    for needed in [FORWARD, module] {
        assert!(text.contains(needed), "{file} has no {needed}");
    }
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.push(match line.split(' ').next() {
            Some("listen") => "listen \"$LISTEN\"".to_owned(),
            Some("admin") => "admin \"$ADMIN\"".to_owned(),
            _ => line.replace(FORWARD, &forward_once(upstream)),
        });
    }
    let text = lines.join("\n").replace(module, path);
    if text.contains("limits ") {
        text.replace("limits ", "limits time=\"1s\" ")
    } else {
        text.replace(path, &format!("{path}\nlimits time=\"1s\""))
    }
}

/// Each example gives the recorded answers, with whole responses, to the recorded questions.
#[test]
fn recorded_questions_get_the_recorded_answers() {
    for name in EXAMPLES {
        let cases = root().join("examples").join(name).join("test-cases.kdl");
        let module = example(name).display().to_string();
        recorded(&module, &cases);
    }
    for name in ["dns64", "rebinding", "rotation"] {
        let cases = root().join("filters").join(name).join("test-cases.kdl");
        recorded(&format!("builtin:{name}"), &cases);
    }
}

/// Asks a module the questions recorded for it.
#[track_caller]
fn recorded(module: &str, cases: &Path) {
    let mut test = proxy::command();
    test.args(["filter", "test", module]);
    let output = test
        .arg("--test-cases")
        .arg(cases)
        .output()
        .expect("dnsweir filter test");
    let report = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{module}: {report}{error}");
    assert!(!report.contains("warning:"), "{module}: {report}");
}

/// A proxy with an example above the cache of its only zone.
#[track_caller]
fn start(name: &str, config: &str, upstream: &Upstream) -> Proxy {
    Proxy::start(&configured(name, config, upstream))
}

fn configured(name: &str, config: &str, upstream: &Upstream) -> String {
    format!(
        "filter \"f\" {{\n    module \"{}\"\n    limits time=\"1s\"\n    config {{\n{config}\n    }}\n}}\n\
         zone \".\" {{\n    use \"f\"\n    cache\n    {}\n}}\n",
        example(name).display(),
        forward_once(upstream.address)
    )
}

/// An upstream that knows every name.
fn anything() -> Upstream {
    Upstream::start(|asked| match asked.is("A") {
        true => asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]),
        false => asked.denial("NOERROR", Some("test. 300 SOA ns.test. root.test. 1 2 3 4 300")),
    })
}

/// The answer of [`anything`] for a name.
fn upstream_says(name: &str) -> [String; 1] {
    [format!("{name}. A 192.0.2.1")]
}

/// A loopback client; loopback is a whole /8.
fn client(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
