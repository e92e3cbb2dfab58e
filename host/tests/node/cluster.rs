//! A DaemonSet on a real Kubernetes node, with a pod's queries to the cluster's DNS address.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::load::{Answer, Load, Protocol, ask};
use super::world::{Namespace, PATIENCE, run};

/// The cluster's DNS address.
const DNS: &str = "10.96.0.10";

/// How long a process that is stopped is waited for: three probes that fail, a second each, and a second
/// of grace.
const STOPPED: Duration = Duration::from_secs(8);

/// Rollouts in a row.
const ROLLOUTS: usize = 5;

fn state() -> PathBuf {
    std::env::var_os("KUBE_STATE")
        .expect("a cluster: use tests/cluster/run.sh")
        .into()
}

fn kubectl(arguments: &[&str]) -> String {
    run(Command::new(state().join("kubectl")).args(arguments))
}

/// Processes of the node's containers whose command line begins like this.
fn processes(name: &str) -> Vec<libc::pid_t> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if read("cgroup").contains("kubepods") && read("cmdline").starts_with(name) {
            found.push(id);
        }
    }
    found
}

fn signal(id: libc::pid_t, signal: libc::c_int) {
    // SAFETY: kill takes two numbers.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

/// The network namespace of the pod that asks.
fn client() -> Namespace {
    let sleeping = processes("/bin/busybox\0sleep\x001000000");
    let id = sleeping.first().expect("the client pod");
    Namespace(format!("/proc/{id}/ns/net").into())
}

fn loads() -> Vec<(Protocol, Load)> {
    let client = client();
    [Protocol::Udp, Protocol::Tcp]
        .map(|protocol| (protocol, Load::start(&client, DNS, protocol)))
        .into()
}

/// Waits until the pod is answered by the proxy.
fn await_proxy() {
    let begun = Instant::now();
    let server = std::net::SocketAddr::new(DNS.parse().expect("an address"), 53);
    while client()
        .within(move || ask(server, Protocol::Udp))
        .join()
        .expect("a client")
        != Answer::Proxy
    {
        assert!(begun.elapsed() < 6 * PATIENCE, "the proxy does not answer");
    }
}

fn proxy() -> libc::pid_t {
    let running = processes("/bin/dnsweir");
    assert_eq!(running.len(), 1, "{running:?}");
    running[0]
}

#[test]
#[ignore = "needs a cluster"]
fn a_killed_proxy_is_covered_by_the_cluster() {
    await_proxy();
    let loads = loads();
    thread::sleep(Duration::from_secs(2));
    let killing = Instant::now();
    signal(proxy(), libc::SIGKILL);
    thread::sleep(Duration::from_secs(4));
    await_proxy();
    thread::sleep(Duration::from_secs(1));
    for (protocol, load) in loads {
        let fates = load.stop();
        println!(
            "kill -9, {protocol:?}: {} of {} lost, {:?} of silence, {} answered by the cluster",
            fates.lost(),
            fates.count(),
            fates.silence(),
            fates.of(Answer::Cluster)
        );
        assert!(fates.of(Answer::Cluster) > 0, "{protocol:?}");
        let taken = fates.between(
            killing - Duration::from_millis(100),
            killing + Duration::from_millis(100),
        );
        assert_eq!(
            fates.lost(),
            taken.lost(),
            "{protocol:?}: later than what the process had taken"
        );
    }
}

#[test]
#[ignore = "needs a cluster"]
fn a_stopped_proxy_is_ended_by_its_probe() {
    await_proxy();
    let loads = loads();
    thread::sleep(Duration::from_secs(2));
    signal(proxy(), libc::SIGSTOP);
    thread::sleep(STOPPED + Duration::from_secs(4));
    await_proxy();
    for (protocol, load) in loads {
        let fates = load.stop();
        println!(
            "SIGSTOP, {protocol:?}: {} of {} lost, {:?} of silence, {} answered by the cluster",
            fates.lost(),
            fates.count(),
            fates.silence(),
            fates.of(Answer::Cluster)
        );
        assert!(fates.silence() < STOPPED, "{protocol:?}: {:?}", fates.silence());
    }
}

#[test]
#[ignore = "needs a cluster"]
fn rollouts_lose_nothing() {
    await_proxy();
    let loads = loads();
    for _ in 0..ROLLOUTS {
        kubectl(&["-n", "kube-system", "rollout", "restart", "daemonset/dnsweir"]);
        kubectl(&[
            "-n",
            "kube-system",
            "rollout",
            "status",
            "daemonset/dnsweir",
            "--timeout=60s",
        ]);
    }
    for (protocol, load) in loads {
        let fates = load.stop();
        println!(
            "{ROLLOUTS} rollouts, {protocol:?}: {} of {} lost, {} answered by the cluster",
            fates.lost(),
            fates.count(),
            fates.of(Answer::Cluster)
        );
        // A container may not write the kernel's tcp_migrate_req: a connection in the middle of its handshake
        // may be reset.
        let allowed = if protocol == Protocol::Tcp { ROLLOUTS } else { 0 };
        assert!(fates.lost() <= allowed, "{protocol:?}: {} lost", fates.lost());
    }
}

#[test]
#[ignore = "needs a cluster"]
fn what_the_proxy_does_not_know_comes_from_the_cluster() {
    await_proxy();
    let answer = kubectl(&[
        "exec",
        "client",
        "--",
        "/bin/busybox",
        "nslookup",
        "kube-dns.kube-system.svc.cluster.local",
    ]);
    assert!(answer.contains("Address: 10.96.0.10"), "{answer}");
}
