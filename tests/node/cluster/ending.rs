//! An orderly end that leaves link and rules: clients lose no more than if the process were killed.

use std::fs;
use std::thread;
use std::time::Duration;

use harness::guests::root;
use harness::until;

use super::manifests::composed_of;
use super::migration::{end_dnsweir, start_dnsweir};
use super::{
    Answer, CleanUp, LOST, Load, PROXY, await_proxy, await_started, kubectl, loads, processes, rolled_out,
};

/// Applies the other tests' configuration with `skip-teardown`, which the overlays for link-local addresses
/// set.
pub(super) fn keep_the_network() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = root().join("tests/cluster/dnsweir.kdl");
    let text = fs::read_to_string(file).expect("a file");
    let kept = text.replacen("    iptables\n", "    iptables\n    skip-teardown\n", 1);
    assert_ne!(kept, text);
    fs::write(folder.path().join("dnsweir.kdl"), kept).expect("a file");
    let replace = "namespace: kube-system\n\
         configMapGenerator:\n- {name: dnsweir, behavior: replace, files: [dnsweir.kdl]}\n\
         generatorOptions: {disableNameSuffixHash: true}\n";
    composed_of("overlays/cluster-address", folder.path(), replace);
    kubectl(&["apply", "-k", &folder.path().display().to_string()]);
    // A new pod sees the changed map immediately, a running one within a minute.
    kubectl(&["-n", "kube-system", "rollout", "restart", "daemonset/dnsweir"]);
    rolled_out();
    until("the old pod's end", || processes(PROXY).len() == 1);
    await_started();
}

/// Checks that only what was in flight at the end is lost.
fn check(what: &str, loads: Vec<(String, Load)>) {
    for (name, load) in loads {
        let open = load.open_at_once();
        let fates = load.stop();
        let (lost, covered) = (fates.lost(), fates.of(Answer::Cluster));
        println!(
            "{what}, {name}: {lost} of {} lost, {covered} answered by the cluster",
            fates.count()
        );
        assert!(lost <= LOST + open, "{what}, {name}: {lost} lost");
        assert!(covered > 0, "{what}, {name}");
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn where_the_network_stays_the_cluster_answers_after_the_end() {
    await_started();
    let _dnsweir = CleanUp(|| {
        start_dnsweir();
        await_started();
    });
    keep_the_network();
    let load = loads();
    let delete = [
        "-n",
        "kube-system",
        "delete",
        "pod",
        "--selector",
        "app.kubernetes.io/name=dnsweir",
    ];
    kubectl(
        &[
            &delete[..],
            &["--field-selector", "spec.nodeName=node", "--timeout=60s"],
        ]
        .concat(),
    );
    rolled_out();
    await_proxy();
    check("a deleted pod", load);
    let load = loads();
    end_dnsweir();
    thread::sleep(Duration::from_secs(1));
    check("a deleted DaemonSet", load);
}
