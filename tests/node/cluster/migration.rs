//! From node-cache to dnsweir and back, with node-cache's own program and manifest.

use std::thread;
use std::time::{Duration, Instant};

use super::{
    Answer, CleanUp, DNS, LOST, Load, PROXY, Protocol, await_started, client, kubectl, processes, rolled_out,
    script, state,
};

/// The start of node-cache's command line.
pub(super) const NODE_CACHE: &str = "/bin/node-cache\0";

/// node-cache writes its rules a minute after its start.
const RULES: Duration = Duration::from_secs(90);

/// Returns Kubernetes' manifest with this image, and the addresses and the domain that an installer would
/// write. The cluster's DNS is the upstream of everything, since the world outside has none.
pub(super) fn stock_manifest(image: &str) -> String {
    let file = std::env::var("NODE_CACHE_MANIFEST")
        .expect("node-cache's manifest, which tests/cluster/run.sh knows");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut text = text
        .replace("__PILLAR__LOCAL__DNS__", "169.254.20.10")
        .replace("__PILLAR__DNS__SERVER__", "10.96.0.10")
        .replace("__PILLAR__DNS__DOMAIN__", "cluster.local")
        .replace("__PILLAR__UPSTREAM__SERVERS__", "__PILLAR__CLUSTER__DNS__");
    let start = text.find("image: ").expect("an image");
    let end = start + text[start..].find('\n').expect("a line");
    text.replace_range(start..end, image);
    text
}

pub(super) fn await_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < limit, "waited {limit:?} for {what}");
        // Between two checks.
        thread::sleep(Duration::from_millis(200));
    }
}

pub(super) fn start_node_cache() {
    // This kernel may have no dummy links; node-cache accepts an existing link of that name.
    for name in ["node", "other"] {
        let link = "link add nodelocaldns type";
        let namespace = format!("ip -n dnsweir-{name}");
        script(&format!(
            "{namespace} {link} dummy 2> /dev/null || {namespace} {link} bridge 2> /dev/null || true"
        ));
    }
    let file = state().join("node-cache.yaml");
    let manifest = stock_manifest(
        "image: docker.io/local/node-cache:1\n        imagePullPolicy: Never\n        command: [/bin/node-cache]",
    );
    std::fs::write(&file, manifest).expect("a manifest");
    let file = file.display().to_string();
    // The service comes first: a pod learns only of existing ones.
    kubectl(&["apply", "-f", &file, "--selector", "k8s-app=kube-dns"]);
    kubectl(&["apply", "-f", &file]);
    let status = ["rollout", "status", "daemonset/node-local-dns", "--timeout=90s"];
    kubectl(&[&["-n", "kube-system"], &status[..]].concat());
    // That manifest has no readiness probe, so a pod is ready before it listens: see docs/migration.md.
    await_within(RULES, "node-cache to listen on both nodes", || {
        let logs = ["logs", "--selector", "k8s-app=node-local-dns", "--tail=-1"];
        let logs = kubectl(&[&["-n", "kube-system"], &logs[..]].concat());
        logs.lines().filter(|line| line.starts_with("CoreDNS-")).count() == 2
    });
}

pub(super) fn await_rules() {
    await_within(RULES, "node-cache's rules", || {
        DNS.iter()
            .filter(|ip| !ip.contains(':'))
            .all(|ip| has_node_caches_rules(ip))
    });
}

fn has_node_caches_rules(ip: &str) -> bool {
    let rules = script("iptables -w -t raw -S PREROUTING; iptables -w -t raw -S OUTPUT");
    let theirs = |line: &&str| line.contains(ip) && line.contains("NodeLocal DNS Cache");
    rules.lines().filter(theirs).count() >= 6
}

pub(super) fn end_node_cache() {
    kubectl(&[
        "-n",
        "kube-system",
        "delete",
        "--ignore-not-found",
        "daemonset/node-local-dns",
        "--timeout=60s",
    ]);
    await_within(RULES, "node-cache's end", || processes(NODE_CACHE).is_empty());
}

pub(super) fn start_dnsweir() {
    let folder = harness::guests::root().join("tests/cluster");
    kubectl(&["apply", "-k", &folder.display().to_string()]);
    rolled_out();
}

pub(super) fn end_dnsweir() {
    kubectl(&[
        "-n",
        "kube-system",
        "delete",
        "daemonset/dnsweir",
        "--timeout=60s",
    ]);
    await_within(RULES, "the proxy's end", || processes(PROXY).is_empty());
}

/// Starts loads of cache misses to the addresses that node-cache serves, IPv4 only.
fn loads() -> Vec<(Protocol, &'static str, Load)> {
    let client = client();
    let start = |server, protocol| (protocol, server, Load::of_misses(&client, server, protocol));
    DNS.into_iter()
        .filter(|server| !server.contains(':'))
        .flat_map(|server| [Protocol::Udp, Protocol::Tcp].map(|protocol| start(server, protocol)))
        .collect()
}

fn note(what: &str, begun: Instant) {
    println!("{what} after {:.1} s", begun.elapsed().as_secs_f32());
}

/// Checks that only what node-cache had read and not answered at its end is lost, or reset in mid-handshake.
fn check(when: &str, begun: Instant, loads: Vec<(Protocol, &'static str, Load)>) {
    let mut most = 0;
    for (protocol, server, load) in loads {
        let fates = load.stop();
        let (lost, count) = (fates.lost(), fates.count());
        let at: Vec<_> = fates
            .times_of(Answer::Nobody)
            .map(|at| (at - begun).as_secs_f32())
            .collect();
        println!("{when}, {protocol:?} {server}: {lost} of {count} lost, after seconds {at:.1?}");
        most = most.max(lost);
    }
    assert!(most <= LOST, "{when}: {most} lost");
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn from_node_cache_and_back() {
    if std::env::var_os("NODE_CACHE").is_none() {
        println!("without NODE_CACHE=PATH: neighbours::from_node_cache_and_back_under_load has a stand-in");
        return;
    }
    await_started();
    let _dnsweir = CleanUp(|| {
        start_dnsweir();
        await_started();
    });
    let _node_cache = CleanUp(end_node_cache);
    end_dnsweir();
    start_node_cache();
    await_rules();
    let (begun, load) = (Instant::now(), loads());
    start_dnsweir();
    note("the proxy is ready", begun);
    end_node_cache();
    note("node-cache has ended", begun);
    thread::sleep(Duration::from_secs(2));
    check("to dnsweir", begun, load);

    let (begun, load) = (Instant::now(), loads());
    start_node_cache();
    note("node-cache listens", begun);
    end_dnsweir();
    note("the proxy has ended", begun);
    await_rules();
    note("node-cache has its rules", begun);
    thread::sleep(Duration::from_secs(2));
    check("and back", begun, load);
    let left = script("ip -o addr; iptables-save");
    assert!(!left.contains("dnsweir"), "{left}");
}
