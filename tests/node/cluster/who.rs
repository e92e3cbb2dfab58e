//! Client identity: pods of two namespaces, reported by a real API server and addressed by a real network.

use std::fs;
use std::path::Path;

use harness::guests::{example, root};
use harness::until;

use super::manifests::composed;
use super::{CleanUp, await_started, kubectl, rolled_out, script, state};

/// What each namespace answers for `same.example`.
const SAID: [(&str, &str); 2] = [("red", "192.0.2.10"), ("blue", "192.0.2.20")];

/// A filter that answers by namespace, and a log of clients, before the other tests' configuration.
const FILTERS: &str = "pods { node (env)\"NODE_NAME\" }
filter \"names\" {
    module \"/var/lib/dnsweir/filters/names.wasm\"
    config { annotation \"example.com/answers\" }
}
filter \"log\" {
    module \"builtin:log\"
    config { format \"{identity} asks {name}\" }
}
";

fn start(folder: &Path) {
    let module = example("namespace-answers");
    let file = format!("--from-file=names.wasm={}", module.display());
    let create = ["create", "configmap", "dnsweir-filters", &file];
    kubectl(&[&["-n", "kube-system"], &create[..]].concat());
    let cluster = fs::read_to_string(root().join("tests/cluster/dnsweir.kdl")).expect("a file");
    let with = cluster.replacen("use \"table\"", "use \"log\"; use \"names\"; use \"table\"", 1);
    assert_ne!(with, cluster);
    fs::write(folder.join("dnsweir.kdl"), format!("{FILTERS}{with}")).expect("a file");
    let components = "[DEPLOY/components/filters-config-map, DEPLOY/components/pods]";
    composed(
        folder,
        &format!(
            "components: {components}\nnamespace: kube-system\n\
             configMapGenerator:\n- {{name: dnsweir, behavior: replace, files: [dnsweir.kdl]}}\n\
             generatorOptions: {{disableNameSuffixHash: true}}\n"
        ),
    );
    apply(folder);
}

/// Applies a folder, and waits until it is rolled out to each node.
fn apply(folder: &Path) {
    let folder = folder.display().to_string();
    kubectl(&["apply", "--validate=strict", "-k", &folder]);
    rolled_out();
}

fn end() {
    apply(&root().join("tests/cluster"));
    let delete = |what: &[&str]| kubectl(&[&["delete", "--ignore-not-found"], what].concat());
    delete(&["-n", "kube-system", "configmap", "dnsweir-filters"]);
    delete(&["clusterrole/dnsweir-pods", "clusterrolebinding/dnsweir-pods"]);
    delete(&["-n", "kube-system", "serviceaccount/dnsweir"]);
    delete(&["namespace", "red", "blue", "--wait=false"]);
    await_started();
}

/// Creates a pod that queries `same.example` from its start to its end.
fn create(namespace: &str, name: &str) {
    let ask = "while :; do /bin/busybox nslookup -type=a same.example. 169.254.20.10; /bin/busybox usleep 20000; done";
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  nodeName: node\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n  - {{name: box, image: \"docker.io/local/box:1\", \
         imagePullPolicy: Never, command: [/bin/busybox, sh, -c, \"{ask}\"]}}\n"
    );
    let file = state().join(format!("{name}.yaml"));
    fs::write(&file, manifest).expect("a file");
    kubectl(&["apply", "-f", &file.display().to_string()]);
}

/// Returns all answers that a pod has had so far.
fn answered(namespace: &str, name: &str) -> String {
    kubectl(&["-n", namespace, "logs", name])
}

/// Waits until a pod gets its namespace's answer.
fn await_answer(namespace: &str, name: &str, address: &str) {
    until(&format!("{namespace}/{name} to be answered"), || {
        let status = ["get", "pod", name, "-o", "jsonpath={.status.phase}"];
        let running = kubectl(&[&["-n", namespace], &status[..]].concat()) == "Running";
        running && answered(namespace, name).contains(address)
    });
}

fn address_of(namespace: &str, name: &str) -> String {
    let path = "jsonpath={.status.podIP}";
    kubectl(&["-n", namespace, "get", "pod", name, "-o", path])
}

/// Makes the node's IPAM assign this address next, as it would after a full round.
fn give_next(address: &str) {
    let place = state().join("node/ipam/pods");
    until("the address to be free", || !place.join(address).exists());
    let (network, last) = address.rsplit_once('.').expect("an address");
    let before = last.parse::<u8>().expect("an address") - 1;
    fs::write(place.join("last_reserved_ip.0"), format!("{network}.{before}")).expect("a file");
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn pods_get_what_their_namespace_says() {
    await_started();
    let _expected = CleanUp(end);
    let folder = tempfile::tempdir().expect("a folder");
    for (namespace, address) in SAID {
        kubectl(&["create", "namespace", namespace]);
        let answer = format!("example.com/answers=same.example {address}");
        kubectl(&["annotate", "namespace", namespace, &answer]);
    }
    start(folder.path());
    let [(red, reds), (blue, blues)] = SAID;
    create(red, "one");
    create(blue, "two");
    await_answer(red, "one", reds);
    await_answer(blue, "two", blues);
    let log = [
        "logs",
        "--selector",
        "app.kubernetes.io/name=dnsweir",
        "--tail=-1",
    ];
    let log = kubectl(&[&["-n", "kube-system"], &log[..]].concat());
    for line in ["red/one asks same.example.", "blue/two asks same.example."] {
        assert!(log.lines().any(|logged| logged == line), "{line}");
    }
    let metrics = script("curl -s http://127.0.0.1:9253/metrics");
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("dnsweir_pod_queries_total{") && line.contains("namespace=\"red\""));
    assert!(counted.is_some(), "{metrics}");

    // An address moves from one namespace to the other, and no answer of the one reaches the other.
    let address = address_of(red, "one");
    kubectl(&["-n", red, "delete", "pod", "one"]);
    give_next(&address);
    create(blue, "three");
    await_answer(blue, "three", blues);
    assert_eq!(address_of(blue, "three"), address, "the same address");
    for (namespace, name) in [(blue, "two"), (blue, "three")] {
        let answered = answered(namespace, name);
        assert!(!answered.contains(reds), "{namespace}/{name}: {answered}");
    }
}
