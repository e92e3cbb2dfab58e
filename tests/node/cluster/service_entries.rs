//! Istio's service entries, accepted by the API server under Istio's own schema and served by the proxy.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use harness::guests::root;
use harness::{Message, ask, until};

use super::beside::{DNSWEIR, await_proxy, kubeconfig, start_proxy};
use super::{CleanUp, delete_afterwards, kubectl, node, state};

/// What the proxy must serve for tests/cluster/service-entries.yaml.
const TOLD: [(&str, &str, &[&str]); 9] = [
    ("api.mesh.example.", "A", &["192.0.2.10"]),
    ("api.mesh.example.", "AAAA", &["2001:db8::10"]),
    ("a.b.wild.mesh.example.", "A", &["192.0.2.10"]),
    ("wild.mesh.example.", "A", &[]),
    ("beta.mesh.example.", "A", &["192.0.2.11"]),
    ("alpha.mesh.example.", "A", &["192.0.2.12"]),
    ("x.alpha.mesh.example.", "A", &["192.0.2.12"]),
    ("network.mesh.example.", "A", &[]),
    ("private.mesh.example.", "A", &[]),
];

/// Returns the path of a schema that tests/cluster/schemas.sh fetched.
pub(super) fn schema(name: &str) -> String {
    let folder = PathBuf::from(std::env::var_os("KUBE_BIN").expect("Kubernetes"));
    folder.join("schemas").join(name).display().to_string()
}

/// Registers the kinds of objects in a file with the API server, until the end of the test. Waits for `kind`.
pub(super) fn apply_schema(file: &str, kind: &str) -> CleanUp<impl FnMut() + use<>> {
    let file = schema(file);
    let deleted = delete_afterwards(&["-f", &file]);
    kubectl(&["apply", "--server-side", "-f", &file]);
    let name = format!("crd/{kind}");
    kubectl(&["wait", "--for=condition=Established", &name, "--timeout=60s"]);
    deleted
}

/// Returns the addresses that the proxy answers.
fn told(name: &'static str, qtype: &'static str) -> Vec<String> {
    let query = move || ask(DNSWEIR.parse().expect("one"), &Message::query(name, qtype));
    let answer = node("node").within(query).join().expect("a client");
    let address = |line: String| line.rsplit(' ').next().unwrap_or_default().to_owned();
    answer.answers().into_iter().map(address).collect()
}

fn patch(version: &str, more: &[&str], patch: &str) {
    let kind = format!("serviceentries.{version}.networking.istio.io");
    kubectl(&[&["-n", "mesh", "patch", &kind, "--type=merge", "-p", patch], more].concat());
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn service_entries_of_every_version_are_told() {
    let _namespace = delete_afterwards(&["namespace", "mesh", "--wait=false"]);
    let _schema = apply_schema("serviceentries.yaml", "serviceentries.networking.istio.io");
    let entries = root()
        .join("tests/cluster/service-entries.yaml")
        .display()
        .to_string();
    until("the API server to take entries", || {
        let mut apply = Command::new(state().join("kubectl"));
        apply.args(["apply", "--validate=strict", "-f", &entries]);
        apply.output().is_ok_and(|output| output.status.success())
    });
    // Istio's schema knows which fields exist.
    let wrong = state().join("wrong.yaml");
    let text = fs::read_to_string(&entries)
        .expect("a file")
        .replace("hosts:", "host:");
    fs::write(&wrong, text).expect("a file");
    let mut apply = Command::new(state().join("kubectl"));
    apply.args(["apply", "--validate=strict", "-f"]).arg(&wrong);
    assert!(
        !apply.output().expect("kubectl").status.success(),
        "a field that is not there"
    );

    let folder = tempfile::tempdir().expect("a folder");
    let zones = format!(
        "zone \".\" {{ service-entries {{ kubeconfig \"{}\"; range \"240.240.0.0/16\" }}; forward \"10.200.0.2:9\" }}",
        kubeconfig()
    );
    let mut proxy = start_proxy(&zones, folder.path());
    node("node").within(await_proxy).join().expect("a client");
    for (name, qtype, addresses) in TOLD {
        assert_eq!(told(name, qtype), addresses, "{name} {qtype}");
    }
    for host in ["db.mesh.example.", "hashed.mesh.example."] {
        let hashed = told(host, "A");
        assert!(
            matches!(&hashed[..], [one] if one.starts_with("240.240.")),
            "{hashed:?}"
        );
    }
    changes_appear();
    kubectl(&["delete", "crd", "serviceentries.networking.istio.io"]);
    until("the entries to go", || told("beta.mesh.example.", "A").is_empty());
    proxy.stop();
}

/// Checks that addresses assigned in the status by Istio appear, and changes through a version that is not
/// watched.
fn changes_appear() {
    patch(
        "v1",
        &["assigned", "--subresource=status"],
        r#"{"status": {"addresses": [{"value": "240.0.0.7", "host": "db.mesh.example"}]}}"#,
    );
    until("the address that was assigned", || {
        told("db.mesh.example.", "A") == ["240.0.0.7"]
    });
    patch(
        "v1alpha3",
        &["exact"],
        r#"{"spec": {"addresses": ["192.0.2.20"]}}"#,
    );
    until("the change", || told("api.mesh.example.", "A") == ["192.0.2.20"]);
    assert!(told("api.mesh.example.", "AAAA").is_empty());
}
