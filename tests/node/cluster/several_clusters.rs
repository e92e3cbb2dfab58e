//! Compares CoreDNS and the proxy for services of several clusters: every name below their domain, every
//! type.

use std::collections::BTreeSet;
use std::process::Command;

use harness::guests::root;
use harness::process::Process;
use harness::until;

use super::beside::{Said, await_ready, compare, kubeconfig, start};
use super::service_entries::apply_schema;
use super::{delete_afterwards, node, state};

const TYPES: [&str; 9] = ["A", "AAAA", "SRV", "TXT", "CNAME", "PTR", "MX", "SOA", "NS"];

const SERVICES: [&str; 5] = ["shared", "six", "peers", "none", "nosuch"];

/// Prefixes of a service's name.
const FRONTS: [&str; 15] = [
    "",
    "_http._tcp.",
    "_dns._udp.",
    "_x._tcp.",
    "_tcp.",
    "east.",
    "west.",
    "north.",
    "peer-0.",
    "peer-0.east.",
    "peer-0.west.",
    "unready.east.",
    "10-99-1-2.east.",
    "10-99-1-2.west.",
    "a.peer-0.east.",
];

const OTHERS: [&str; 11] = [
    "",
    "svc.",
    "pod.",
    "dns.",
    "ns.dns.",
    "dns-version.",
    "nosuch.",
    "joined.svc.",
    "nosuch.svc.",
    "shared.nosuch.svc.",
    "10-99-1-1.joined.pod.",
];

fn names() -> BTreeSet<String> {
    let services = SERVICES.into_iter();
    let below = services.flat_map(|service| FRONTS.map(|front| format!("{front}{service}.joined.svc.")));
    let all = below.chain(OTHERS.map(str::to_owned));
    all.map(|name| format!("{name}clusterset.local.")).collect()
}

/// Returns why the two may differ: a row of the table in docs/reference/differences.md.
fn reason(name: &str, qtype: &str, [theirs, ours]: &[Said; 2]) -> Option<&'static str> {
    let front = name.strip_suffix("clusterset.local.")?;
    let exists = ["", "svc.", "joined.svc.", "ns.dns.", "dns-version."].contains(&front);
    let above = front == "dns." || front.starts_with("_tcp.");
    let cluster = ["east.peers.", "west.peers."]
        .iter()
        .any(|cluster| front.starts_with(cluster));
    match () {
        () if exists && theirs.denies("NXDOMAIN") && ours.denies("NOERROR") => {
            Some("a name exists for all types")
        }
        () if qtype == "SOA" && theirs.denies("NOERROR") && ours.denies("NXDOMAIN") => {
            Some("a name that does not exist has no SOA")
        }
        () if above && theirs.denies("NXDOMAIN") && ours.denies("NOERROR") => {
            Some("a name above another exists")
        }
        () if cluster && theirs.denies("NXDOMAIN") && ours.denies("NOERROR") => {
            Some("a cluster above its endpoints")
        }
        () if front.is_empty() && qtype == "NS" => Some("who answers for several clusters"),
        () if (front == "pod." || front.ends_with(".pod.")) && ours.denies("NXDOMAIN") => {
            Some("no pods of several clusters")
        }
        () => None,
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn coredns_and_the_proxy_say_the_same_of_several_clusters() {
    let _namespace = delete_afterwards(&["namespace", "joined", "--wait=false"]);
    let _schema = apply_schema("serviceimports.yaml", "serviceimports.multicluster.x-k8s.io");
    let objects = root()
        .join("tests/cluster/several-clusters.yaml")
        .display()
        .to_string();
    until("the API server to take imports", || {
        let mut apply = Command::new(state().join("kubectl"));
        apply.args(["apply", "--validate=strict", "-f", &objects]);
        apply.output().is_ok_and(|output| output.status.success())
    });
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = kubeconfig();
    let corefile = format!(
        "cluster.local:5301 clusterset.local:5301 {{
            kubernetes cluster.local clusterset.local {{
                kubeconfig {kubeconfig}
                pods verified
                multicluster clusterset.local
            }}
        }}"
    );
    let zones = format!(
        "zone \"cluster.local\" \"clusterset.local\" {{ kubernetes {{ \
         kubeconfig \"{kubeconfig}\"; pods \"verified\"; multicluster \"clusterset.local\" }} }}"
    );
    let mut servers = start(&corefile, &zones, folder.path());
    let compared = node("node").within(|| {
        await_ready("peer-0.west.peers.joined.svc.clusterset.local.", "AAAA");
        compare(&names(), &TYPES, reason)
    });
    let (wrong, reasons) = compared.join().expect("a client");
    println!("{reasons:#?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    servers.iter_mut().for_each(Process::stop);
}
