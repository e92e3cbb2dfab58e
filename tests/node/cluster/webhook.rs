//! The admission webhook of `deploy/webhook`: pods of a labelled namespace query their node's address, and
//! start whatever happens to the webhook.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::guests::root;
use harness::until;

use super::{CleanUp, delete_afterwards, kubectl, processes, signal, state};

/// How the webhook's command line begins, of the program that `dnsweir webhook` runs in its place.
const WEBHOOK: &str = "/usr/bin/dnsweir-webhook\0";

/// The longest that creating a pod may take while the webhook hangs: `timeoutSeconds`, and the creation
/// itself.
const HANGING: Duration = Duration::from_secs(4);

const IN_KUBE_SYSTEM: [&str; 2] = ["-n", "kube-system"];

fn system(words: &[&str]) -> String {
    kubectl(&[&IN_KUBE_SYSTEM, words].concat())
}

/// Applies or deletes `deploy/webhook`.
fn deploy(verb: &[&str]) {
    let folder = root().join("deploy/webhook").display().to_string();
    kubectl(&[verb, &["-k", &folder]].concat());
}

fn rolled_out() {
    let status = [
        "rollout",
        "status",
        "deployment/dnsweir-webhook",
        "--timeout=120s",
    ];
    system(&status);
}

/// Returns the manifest of a sleeping pod in the namespace `injected`.
fn pod(name: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: injected, {more}}}\n\
         spec:\n  nodeName: node\n  terminationGracePeriodSeconds: 0\n  containers:\n  \
         - {{name: box, image: \"docker.io/local/box:1\", imagePullPolicy: Never, command: [/bin/busybox, sleep, \"3600\"]}}\n"
    )
}

/// Creates a pod; returns how long the API server took.
fn create(name: &str, more: &str) -> Duration {
    let file = state().join(format!("{name}.yaml"));
    std::fs::write(&file, pod(name, more)).expect("a file");
    let begun = Instant::now();
    kubectl(&["apply", "-f", &file.display().to_string()]);
    begun.elapsed()
}

/// Waits until a pod runs.
fn await_running(name: &str) {
    let condition = "--for=condition=Ready";
    kubectl(&[
        "-n",
        "injected",
        "wait",
        condition,
        &format!("pod/{name}"),
        "--timeout=60s",
    ]);
}

fn inside(name: &str, words: &[&str]) -> String {
    kubectl(&[&["-n", "injected", "exec", name, "--", "/bin/busybox"], words].concat())
}

fn policy(name: &str) -> String {
    let path = "jsonpath={.spec.dnsPolicy}";
    kubectl(&["-n", "injected", "get", "pod", name, "-o", path])
}

/// Returns the CA bundle that the API server trusts, as written.
fn bundle() -> String {
    let path = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    kubectl(&[
        "get",
        "mutatingwebhookconfiguration",
        "dnsweir-webhook",
        "-o",
        path,
    ])
}

/// Waits until pods are changed, which is when every replica presents what the API server trusts.
fn await_changes(name: &str) {
    until("a pod to be changed", || {
        let mut run = Command::new(state().join("kubectl"));
        let image = "--image=docker.io/local/box:1";
        run.args(["-n", "injected", "run", name, image, "--dry-run=server", "-o"])
            .arg("jsonpath={.spec.dnsPolicy}")
            .stdin(Stdio::null());
        run.output().is_ok_and(|said| said.stdout == b"None")
    });
}

/// Checks that a pod of the labelled namespace resolves through its node, and one that opted out through the
/// cluster.
fn pods_are_pointed_at_the_node() {
    await_changes("trial");
    create("pointed", "labels: {app: web}");
    create("aside", "labels: {node-local-dns-injection: disabled}");
    await_running("pointed");
    await_running("aside");
    let resolver = inside("pointed", &["cat", "/etc/resolv.conf"]);
    let lines: Vec<&str> = resolver.lines().collect();
    assert_eq!(
        lines,
        [
            "search injected.svc.cluster.local svc.cluster.local cluster.local",
            "nameserver 169.254.20.10",
            "nameserver 10.96.0.10",
            "options ndots:5",
        ],
    );
    let found = inside("pointed", &["nslookup", "kubernetes.default.svc.cluster.local"]);
    assert!(
        found.contains("169.254.20.10") && found.contains("10.96.0.1"),
        "{found}"
    );
    assert_eq!(
        (policy("pointed").as_str(), policy("aside").as_str()),
        ("None", "ClusterFirst")
    );
    let resolver = inside("aside", &["cat", "/etc/resolv.conf"]);
    assert!(!resolver.contains("169.254.20.10"), "{resolver}");
}

/// Checks that a foreign `caBundle` and an emptied Secret are repaired.
fn certificates_are_kept_right() {
    let right = bundle();
    let patch = r#"[{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="}]"#;
    let configuration = ["patch", "mutatingwebhookconfiguration", "dnsweir-webhook"];
    kubectl(&[&configuration[..], &["--type=json", "-p", patch]].concat());
    let begun = Instant::now();
    until("caBundle to be right again", || bundle() == right);
    println!("caBundle is right again after {:?}", begun.elapsed());
    let patch = r#"[{"op": "remove", "path": "/data"}]"#;
    system(&["patch", "secret", "dnsweir-webhook", "--type=json", "-p", patch]);
    until("a new certificate", || bundle() != right);
    // The old one, which is served for a while, and the new one.
    assert!(bundle().len() > right.len());
    await_changes("renewed");
}

/// Checks that pods start while the webhook hangs, and while it is gone.
fn pods_start_without_it() {
    for stopped in [true, false] {
        if stopped {
            for node in ["node", "other"] {
                for id in all(node) {
                    signal(id, libc::SIGSTOP);
                }
            }
        } else {
            system(&["scale", "deployment/dnsweir-webhook", "--replicas=0"]);
            until("its end", || all("node").is_empty() && all("other").is_empty());
        }
        let name = if stopped { "hanging" } else { "gone" };
        let took = create(name, "labels: {app: web}");
        println!("a pod is created in {took:?} while the webhook is {name}");
        assert!(took < HANGING, "{name}: {took:?}");
        await_running(name);
        assert_eq!(policy(name), "ClusterFirst");
    }
}

/// The webhook's processes on a node.
fn all(node: &str) -> Vec<libc::pid_t> {
    super::processes_of(node, WEBHOOK)
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn pods_ask_the_node_and_start_without_the_webhook() {
    super::await_started();
    let _webhook = CleanUp(|| deploy(&["delete", "--ignore-not-found"]));
    let _namespace = delete_afterwards(&["namespace", "injected", "--wait=false"]);
    deploy(&["apply", "--validate=strict"]);
    rolled_out();
    kubectl(&["create", "namespace", "injected"]);
    kubectl(&[
        "label",
        "namespace",
        "injected",
        "node-local-dns-injection=enabled",
    ]);
    pods_are_pointed_at_the_node();
    certificates_are_kept_right();
    pods_start_without_it();
    assert_eq!(processes(super::PROXY).len(), 1);
}
