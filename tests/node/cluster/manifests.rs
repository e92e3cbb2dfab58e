//! `deploy/` as an operator would apply it: the API server accepts every variant, and filters reach the node
//! each way.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::guests::{root, verdicts};
use harness::tools::output;
use harness::until;

use super::{
    Answer, CleanUp, Protocol, await_started, client, delete_afterwards, kubectl, rolled_out, script, state,
};
use crate::load::ask_for;

const OVERLAYS: [&str; 6] = [
    ".",
    "overlays/cluster-address",
    "overlays/link-local",
    "overlays/local-redirect",
    "overlays/ipvs",
    "overlays/no-kube-proxy",
];

/// A kind that an API server without Cilium does not know.
const POLICY: &str = "kind: CiliumLocalRedirectPolicy";

const COMPONENTS: [&str; 4] = [
    "filters-config-map",
    "filters-init-container",
    "filters-image-volume",
    "pods",
];

/// Components for the cluster's own DNS.
const CLUSTER_COMPONENTS: [&str; 2] = ["multicluster", "service-entries"];

/// The objects in every overlay.
pub(super) const PROXY: &[&str] = &["daemonset.apps/", "configmap/"];

/// The webhook's objects.
pub(super) const WEBHOOK: &[&str] = &[
    "deployment.apps/",
    "service/",
    "poddisruptionbudget.policy/",
    "mutatingwebhookconfiguration.admissionregistration.k8s.io/",
];

/// Returns the manifests without Cilium's policies.
fn without_policies(manifests: &str) -> String {
    let known = manifests
        .split("\n---\n")
        .filter(|object| !object.contains(POLICY));
    known.collect::<Vec<_>>().join("\n---\n")
}

/// Has the API server validate manifests strictly in a dry run. They must contain the expected objects;
/// Cilium's are left out.
#[track_caller]
pub(super) fn valid(name: &str, manifests: &str, expected: &[&str]) {
    let manifests = without_policies(manifests);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("manifests.yaml");
    fs::write(&file, manifests).expect("a file");
    let mut apply = Command::new(state().join("kubectl"));
    apply
        .args(["apply", "--dry-run=server", "--validate=strict", "-f"])
        .arg(&file);
    let said = output(&mut apply);
    for object in expected {
        assert!(said.contains(object), "{name}: {said}");
    }
}

/// Returns what `kubectl kustomize` makes of a folder.
fn rendered(folder: &Path) -> String {
    output(Command::new(state().join("kubectl")).arg("kustomize").arg(folder))
}

/// Writes a kustomization that extends an overlay, as an operator's own would. Its paths are relative.
pub(super) fn composed(folder: &Path, more: &str) {
    composed_of("overlays/cluster-address", folder, more);
}

/// The same with another folder of `deploy/`.
pub(super) fn composed_of(base: &str, folder: &Path, more: &str) {
    let folder = folder.canonicalize().expect("a folder");
    let up = "../".repeat(folder.components().count() - 1);
    let deploy = format!(
        "{up}{}/deploy",
        root().display().to_string().trim_start_matches('/')
    );
    let text = format!("resources: [{deploy}/{base}]\n{more}").replace("DEPLOY", &deploy);
    fs::write(folder.join("kustomization.yaml"), text).expect("a file");
}

/// The pods that Cilium redirects to, on plain Kubernetes: they start under the restricted pod security
/// level, and answer at their own addresses what the cluster's DNS says.
#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn a_proxy_in_a_network_of_its_own_answers() {
    let namespace = "local-redirect";
    let _namespace = delete_afterwards(&["namespace", namespace, "--timeout=60s"]);
    kubectl(&["create", "namespace", namespace]);
    let level = "pod-security.kubernetes.io/enforce=restricted";
    kubectl(&["label", "namespace", namespace, level]);
    let overlay = rendered(&root().join("deploy/overlays/local-redirect"));
    // The service's pods are in kube-system, where another proxy has the name, so its address stands in.
    let manifests = overlay
        .replace("namespace: kube-system", &format!("namespace: {namespace}"))
        .replace("(env)\"DNSWEIR_UPSTREAM_SERVICE_HOST\"", "\"10.96.0.10\"");
    let file = state().join("local-redirect.yaml");
    fs::write(&file, without_policies(&manifests)).expect("a file");
    kubectl(&["apply", "--validate=strict", "-f", &file.display().to_string()]);
    kubectl(&[
        "-n",
        namespace,
        "rollout",
        "status",
        "daemonset/dnsweir",
        "--timeout=90s",
    ]);
    let pods = [
        "-n",
        namespace,
        "get",
        "pods",
        "-o",
        "jsonpath={.items[*].status.podIP}",
    ];
    let addresses = kubectl(&pods);
    assert_eq!(
        addresses.split_whitespace().count(),
        2,
        "one on each node: {addresses}"
    );
    for address in addresses.split_whitespace() {
        let server = SocketAddr::new(address.parse().expect("an address"), 53);
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let asked = client().within(move || ask_for("www", server, protocol, Duration::from_secs(5)));
            // A node's own proxy answers in place of the cluster's DNS.
            assert_ne!(asked.join().expect("a client"), Answer::Nobody, "{server}");
        }
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn every_overlay_is_valid() {
    for overlay in OVERLAYS {
        let manifests = rendered(&root().join("deploy").join(overlay));
        // From the same registry in every overlay.
        assert!(
            manifests.contains("image: docker.io/library/dnsweir:0.1.0\n"),
            "{overlay}"
        );
        valid(overlay, &manifests, PROXY);
    }
    valid("webhook", &rendered(&root().join("deploy/webhook")), WEBHOOK);
    for component in COMPONENTS {
        let folder = tempfile::tempdir().expect("a folder");
        composed(
            folder.path(),
            &format!("components: [DEPLOY/components/{component}]\n"),
        );
        valid(component, &rendered(folder.path()), PROXY);
    }
    for component in CLUSTER_COMPONENTS {
        let folder = tempfile::tempdir().expect("a folder");
        let more = format!("components: [DEPLOY/components/{component}]\n");
        composed_of("cluster-dns", folder.path(), &more);
        let expected = ["deployment.apps/", "clusterrole.rbac.authorization.k8s.io/"];
        valid(component, &rendered(folder.path()), &expected);
    }
}

/// How filters are delivered, and a kustomization's text for it. With CONTAINERD, nodes have image volumes.
fn ways() -> Vec<(&'static str, &'static str)> {
    let image = "images: [{name: dnsweir-filters, newName: docker.io/local/filters, newTag: \"1\"}]\n";
    let mut ways = vec![("filters-config-map", ""), ("filters-init-container", image)];
    match std::env::var_os("CONTAINERD") {
        Some(_) => ways.push(("filters-image-volume", "")),
        None => println!("without CONTAINERD=FOLDER: Debian's containerd does not know image volumes"),
    }
    ways
}

/// Filters come from a config map, from an image by an init container, and from an image volume.
#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn filters_come_each_way() {
    await_started();
    let _map = delete_afterwards(&["-n", "kube-system", "configmap", "dnsweir-filters"]);
    let _expected = CleanUp(|| {
        kubectl(&[
            "apply",
            "--validate=strict",
            "-k",
            &root().join("tests/cluster").display().to_string(),
        ]);
        await_started();
    });
    let module = verdicts();
    let file = format!("--from-file=names.wasm={}", module.display());
    kubectl(&[
        "-n",
        "kube-system",
        "create",
        "configmap",
        "dnsweir-filters",
        &file,
    ]);
    images_of_filters(&module);
    let config = "filter \"names\" {\n    module \"/var/lib/dnsweir/filters/names.wasm\"\n}\n";
    for (component, more) in ways() {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = fs::read_to_string(root().join("tests/cluster/dnsweir.kdl")).expect("a file");
        let with = cluster.replacen("use \"table\"", "use \"table\"; use \"names\"", 1);
        fs::write(folder.path().join("dnsweir.kdl"), format!("{config}{with}")).expect("a file");
        composed(
            folder.path(),
            &format!(
                "components: [DEPLOY/components/{component}]\n{more}namespace: kube-system\n\
                 configMapGenerator:\n- {{name: dnsweir, behavior: replace, files: [dnsweir.kdl]}}\n\
                 generatorOptions: {{disableNameSuffixHash: true}}\n"
            ),
        );
        kubectl(&[
            "apply",
            "--validate=strict",
            "-k",
            &folder.path().display().to_string(),
        ]);
        rolled_out();
        let serving =
            || script("curl -s http://127.0.0.1:9253/status").contains("/var/lib/dnsweir/filters/names.wasm");
        until(component, serving);
    }
}

/// Gives both nodes an image with a shell and a module, and one with only the module, as an operator who
/// keeps filters in images would build.
fn images_of_filters(module: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let system = folder.path().join("system");
    let alone = folder.path().join("alone");
    fs::create_dir(&alone).expect("a folder");
    fs::copy(module, alone.join("names.wasm")).expect("a module");
    give_image(&alone, "docker.io/library/dnsweir-filters:1");
    for name in ["bin", "filters"] {
        fs::create_dir_all(system.join(name)).expect("a folder");
    }
    fs::copy(module, system.join("filters/names.wasm")).expect("a module");
    let busybox = harness::tools::find("busybox").expect("busybox");
    fs::copy(busybox, system.join("bin/busybox")).expect("busybox");
    for name in ["sh", "cp"] {
        std::os::unix::fs::symlink("busybox", system.join("bin").join(name)).expect("a link");
    }
    give_image(&system, "docker.io/local/filters:1");
}

/// Builds an image of a folder and imports it on both nodes.
fn give_image(system: &Path, name: &str) {
    let file = system.with_extension("tar");
    let mut pack = Command::new("python3");
    pack.arg(root().join("tests/cluster/image.py")).arg(system);
    output(pack.arg(name).arg(&file));
    for node in ["node", "other"] {
        let mut import = Command::new("ctr");
        import.arg("-a").arg(state().join(node).join("containerd.sock"));
        output(import.args(["-n", "k8s.io", "images", "import"]).arg(&file));
    }
}
