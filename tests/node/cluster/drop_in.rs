//! Kubernetes' own manifest for node-cache with our image: its arguments, Corefile and kube-dns config map
//! unchanged.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::process::Process;

use super::migration::{
    await_rules, await_within, end_dnsweir, end_node_cache, start_dnsweir, start_node_cache, stock_manifest,
};
use super::{
    Answer, CleanUp, Load, Protocol, await_started, client, kubectl, node, processes, rolled_out, state,
};
use crate::falling::NOTICED;
use crate::load::ask_for;

/// How the command line begins: the image's entry point, and the first of the manifest's arguments.
pub(super) const DROP_IN: &str = "/usr/bin/dnsweir\0-localip";

/// The kubelet delivers a changed config map within a minute or so.
const BROUGHT: Duration = Duration::from_secs(180);

/// A server in the node's network that answers names below `stub.example` and `edited.example` with
/// 192.0.2.3.
const STUB: &str = "10.200.0.2:5304";

/// The addresses in the manifest: the cluster's, where the cluster's DNS is the fallback, and the node's own.
const ADDRESSES: [&str; 2] = ["10.96.0.10", "169.254.20.10"];

/// Our image in place of the manifest's.
pub(super) const OURS: &str = "image: docker.io/library/dnsweir:0.1.0";

/// The longest silence at the node's own address while its one pod ends and the next starts.
const EXCHANGED: Duration = Duration::from_secs(20);

fn start_stub(folder: &Path) -> Process {
    let corefile = folder.join("Corefile");
    let text = "example:5304 {
        template IN A example {
            answer \"{{ .Name }} 5 IN A 192.0.2.3\"
        }
        template IN ANY example {
            rcode NOERROR
            authority \"example. 60 IN SOA ns.example. h.example. 1 2 3 4 60\"
        }
    }";
    fs::write(&corefile, text).expect("a file");
    let coredns = Path::new(&std::env::var_os("KUBE_BIN").expect("Kubernetes")).join("coredns");
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", node("node").0.display()))
        .arg(coredns)
        .arg("-conf")
        .arg(corefile);
    Process::start(&mut command)
}

/// Returns who answers the client pod for a name at the address.
fn answers(server: &str, name: &'static str) -> Answer {
    let server = SocketAddr::new(server.parse().expect("an address"), 53);
    let asked = client().within(move || ask_for(name, server, Protocol::Udp, Duration::from_secs(1)));
    asked.join().expect("a client")
}

fn apply(file: &str, text: &str) {
    let file = state().join(file);
    fs::write(&file, text).expect("a manifest");
    kubectl(&["apply", "-f", &file.display().to_string()]);
}

pub(super) fn start_drop_in(manifest: &str) {
    apply("drop-in.yaml", manifest);
    let status = ["rollout", "status", "daemonset/node-local-dns", "--timeout=90s"];
    kubectl(&[&["-n", "kube-system"], &status[..]].concat());
    await_within(BROUGHT, "the proxy to answer as node-cache would", || {
        ADDRESSES
            .iter()
            .all(|server| answers(server, "www") == Answer::Cluster)
    });
}

/// Ends whatever runs as `node-local-dns`: a test may fail before our image is in it.
pub(super) fn end_drop_in() {
    end_node_cache();
    let file = state().join("drop-in.yaml");
    if file.exists() {
        let file = file.display().to_string();
        kubectl(&["delete", "--ignore-not-found", "-f", &file, "--timeout=60s"]);
    }
    let map = ["delete", "configmap", "kube-dns", "--ignore-not-found"];
    kubectl(&[&["-n", "kube-system"], &map[..]].concat());
    await_within(BROUGHT, "its end", || processes(DROP_IN).is_empty());
}

/// Starts what the other tests expect.
fn restore() {
    start_dnsweir();
    rolled_out();
    await_started();
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn the_stock_manifest_runs_with_our_image() {
    if std::env::var_os("NODE_CACHE_MANIFEST").is_none() {
        println!("without NODE_CACHE=PATH there is no stock manifest");
        return;
    }
    await_started();
    let _dnsweir = CleanUp(restore);
    let _drop_in = CleanUp(end_drop_in);
    end_dnsweir();
    let folder = tempfile::tempdir().expect("a folder");
    let mut stub = start_stub(folder.path());
    let manifest = stock_manifest(OURS);
    start_drop_in(&manifest);
    let client = client();
    let loads: Vec<(String, Load)> = ADDRESSES
        .into_iter()
        .flat_map(|server| [Protocol::Udp, Protocol::Tcp].map(|protocol| (server, protocol)))
        .map(|(server, protocol)| {
            (
                format!("{protocol:?} {server}"),
                Load::start(&client, server, protocol),
            )
        })
        .collect();

    // Creates kube-dns' config map.
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: kube-dns, namespace: kube-system}}\n\
         data: {{stubDomains: '{{\"stub.example\": [\"{STUB}\"]}}'}}\n"
    );
    apply("kube-dns.yaml", &map);
    await_within(BROUGHT, "the stub domain", || {
        ADDRESSES
            .iter()
            .all(|server| answers(server, "www.stub") == Answer::Neighbour)
    });
    // Adds a block to the Corefile.
    let block = format!(
        "    edited.example:53 {{\n        bind 169.254.20.10 10.96.0.10\n        forward . {STUB}\n        }}\n    .:53 {{"
    );
    let edited = manifest.replacen("    .:53 {", &block, 1);
    assert_ne!(edited, manifest);
    apply("drop-in.yaml", &edited);
    await_within(BROUGHT, "the edited Corefile", || {
        ADDRESSES
            .iter()
            .all(|server| answers(server, "www.edited") == Answer::Neighbour)
    });
    for (name, load) in loads {
        let fates = load.stop();
        println!("both edited, {name}: {} of {} lost", fates.lost(), fates.count());
        assert_eq!(fates.lost(), 0, "{name}");
        assert_eq!(fates.of(Answer::Cluster), fates.count(), "{name}");
    }
    stub.stop();
}

/// As when an operator changes the image: the same DaemonSet, whose update ends a node's pod before it starts
/// the next.
#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn node_cache_becomes_dnsweir_by_its_image() {
    if std::env::var_os("NODE_CACHE").is_none() {
        println!("without NODE_CACHE=PATH there is no node-cache");
        return;
    }
    await_started();
    let _dnsweir = CleanUp(restore);
    let _drop_in = CleanUp(end_drop_in);
    end_dnsweir();
    start_node_cache();
    await_rules();
    let client = client();
    let loads = ADDRESSES.map(|server| (server, Load::impatient(&client, server, Protocol::Udp)));
    start_drop_in(&stock_manifest(OURS));
    for (server, load) in loads {
        let fates = load.stop();
        let silence = fates.silence();
        println!(
            "by its image, {server}: {} of {} lost, {silence:?} of silence",
            fates.lost(),
            fates.count()
        );
        let most = if server == ADDRESSES[0] {
            NOTICED
        } else {
            EXCHANGED
        };
        assert!(silence < most, "{server}: {silence:?}");
    }
}
