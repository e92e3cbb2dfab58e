//! A DaemonSet on two real Kubernetes nodes. A pod queries the cluster's DNS address, and the cluster's DNS
//! runs on the other node.

mod beside;
mod boot;
mod chart;
mod cluster_dns;
mod drop_in;
mod ending;
mod manifests;
mod migration;
mod records;
mod searches;
mod service_entries;
mod several_clusters;
mod source;
mod troubles;
mod webhook;
mod who;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::falling::{LOST, NOTICED, TAKEN};
use super::load::{Answer, Load, Protocol, ask};
use harness::guests::root;
use harness::tools::output;
use harness::{proxy, until};

use super::standing_still::Frozen;
use super::world::{ADMIN, Namespace};

/// The proxy's addresses: those of the cluster's DNS, and a link-local one.
const DNS: [&str; 3] = ["10.96.0.10", "fd00:96::10", "169.254.20.10"];

/// How the proxy's command line begins.
const PROXY: &str = "/usr/bin/dnsweir\0run";

/// Rollouts in a row, in each mode of kube-proxy: ten in all.
const ROLLOUTS: usize = 5;

fn state() -> PathBuf {
    std::env::var_os("KUBE_STATE")
        .expect("Kubernetes nodes: cargo xtask test cluster")
        .into()
}

fn kubectl(arguments: &[&str]) -> String {
    output(Command::new(state().join("kubectl")).args(arguments))
}

/// Runs when it is dropped, so also when the test fails: what that leaves behind would make later tests fail for
/// another reason.
#[must_use]
struct CleanUp<F: FnMut()>(F);

impl<F: FnMut()> Drop for CleanUp<F> {
    fn drop(&mut self) {
        let done = catch_unwind(AssertUnwindSafe(&mut self.0));
        if let Err(panic) = done
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// Deletes something at the end of a test, if it is there.
fn delete_afterwards(arguments: &[&str]) -> CleanUp<impl FnMut() + use<>> {
    let delete = [&["delete", "--ignore-not-found"], arguments].concat();
    let delete: Vec<String> = delete.into_iter().map(str::to_owned).collect();
    CleanUp(move || {
        let delete: Vec<&str> = delete.iter().map(String::as_str).collect();
        kubectl(&delete);
    })
}

/// Creates services, pods and endpoints of every kind, and waits for the members of their StatefulSet.
fn apply_zoo() -> CleanUp<impl FnMut() + use<>> {
    let zoo = root().join("tests/cluster/zoo.yaml").display().to_string();
    let deleted = delete_afterwards(&["--wait=false", "-f", &zoo]);
    kubectl(&["apply", "-f", &zoo]);
    let member = "statefulset/member";
    kubectl(&["-n", "zoo", "rollout", "status", member, "--timeout=60s"]);
    deleted
}

/// The network namespace of `node` or `other`.
fn node(name: &str) -> Namespace {
    Namespace(format!("/var/run/netns/dnsweir-{name}").into())
}

/// Runs a shell script in the network of `node`, which must succeed.
fn script(text: &str) -> String {
    let namespace = format!("--net={}", node("node").0.display());
    output(Command::new("nsenter").args([&namespace, "sh", "-ec", text]))
}

/// Returns the status code at a path of the admin address on `node`.
fn admin(path: &'static str) -> Option<u16> {
    let asked = node("node").within(move || proxy::try_get(ADMIN, path));
    asked.join().expect("a client").map(|(status, _)| status)
}

/// Returns the container processes on `node` whose command line starts with `name`.
fn processes(name: &str) -> Vec<libc::pid_t> {
    processes_of("node", name)
}

/// The same on `node` or `other`.
fn processes_of(node: &str, name: &str) -> Vec<libc::pid_t> {
    let group = format!("/dnsweir-{node}/kubepods");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if read("cgroup").contains(&group) && read("cmdline").starts_with(name) {
            found.push(id);
        }
    }
    found
}

fn signal(id: libc::pid_t, signal: libc::c_int) {
    // SAFETY: kill takes two numbers.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

/// Whether a process has ended with its last thread, and so its sockets; its parent may not have reaped it.
fn ended(id: libc::pid_t) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ") && status.contains("Threads:\t1\n")
}

/// The network namespace of the client pod, known by its unique sleep.
fn client() -> Namespace {
    let sleeping = processes("/bin/busybox\0sleep\x001000000");
    let [id] = sleeping[..] else {
        panic!("the client pod is one of {sleeping:?}")
    };
    Namespace(format!("/proc/{id}/ns/net").into())
}

/// Starts a load over both protocols to every address.
fn loads() -> Vec<(String, Load)> {
    let client = client();
    let start = |server, protocol| {
        (
            format!("{protocol:?} {server}"),
            Load::start(&client, server, protocol),
        )
    };
    DNS.into_iter()
        .flat_map(|server| [Protocol::Udp, Protocol::Tcp].map(|protocol| start(server, protocol)))
        .collect()
}

/// Waits until Kubernetes considers the proxy started, and so probes its liveness, and until the cluster's DNS
/// can answer in its place.
fn await_started() {
    rolled_out();
    await_proxy();
    await_cluster();
}

fn rolled_out() {
    let status = ["rollout", "status", "daemonset/dnsweir", "--timeout=90s"];
    kubectl(&[&["-n", "kube-system"], &status[..]].concat());
}

/// Waits until the proxy answers the pod.
fn await_proxy() {
    for server in DNS {
        let server = std::net::SocketAddr::new(server.parse().expect("an address"), 53);
        until("the proxy to answer", || {
            let asked = client().within(move || ask(server, Protocol::Udp));
            asked.join().expect("a client") == Answer::Proxy
        });
    }
}

/// Waits until the cluster's DNS answers processes on `node`, which the proxy's rules do not apply to: after a
/// test replaced it or restarted the API server, kube-proxy may not know where it is yet.
fn await_cluster() {
    for server in &DNS[..2] {
        let server = std::net::SocketAddr::new(server.parse().expect("an address"), 53);
        until("the cluster's DNS to answer", || {
            let asked = node("node").within(move || ask(server, Protocol::Udp));
            asked.join().expect("a client") == Answer::Cluster
        });
    }
}

/// Returns the proxy's process on `node`.
fn running() -> libc::pid_t {
    let found = processes(PROXY);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn a_killed_proxy_is_covered_by_the_cluster() {
    await_started();
    let loads = loads();
    thread::sleep(Duration::from_secs(2));
    let proxy = running();
    let killing = Instant::now();
    signal(proxy, libc::SIGKILL);
    until("its end", || ended(proxy));
    let killed = Instant::now();
    await_proxy();
    let restarted = Instant::now();
    thread::sleep(Duration::from_secs(1));
    for (name, load) in loads {
        let open = load.open_at_once();
        let fates = load.stop();
        println!(
            "kill -9, {name}: {} of {} lost, {} answered by the cluster in {:?}",
            fates.lost(),
            fates.count(),
            fates.of(Answer::Cluster),
            restarted - killed
        );
        let reset = fates.between(killed, restarted).lost();
        assert!(reset <= open, "{name}: {reset} lost from the kill to the restart");
        let first = fates.between(killed, killed + Duration::from_millis(100));
        assert_eq!(first.of(Answer::Cluster), first.count(), "{name}: at first");
        let after = fates.since(restarted);
        assert_eq!(after.of(Answer::Proxy), after.count(), "{name}: at last");
        let taken = fates.between(killing - TAKEN, killed).lost();
        assert_eq!(fates.lost(), taken + reset, "{name}: what it had not taken");
        assert!(taken <= LOST, "{name}: {taken} lost");
    }
}

/// Checks that no client waits long while `still` stalls the proxy, whatever Kubernetes does then.
fn stands_still(what: &str, still: impl FnOnce(libc::pid_t)) {
    await_started();
    let loads = loads();
    let client = client();
    let impatient = DNS.map(|server| (server, Load::impatient(&client, server, Protocol::Udp)));
    thread::sleep(Duration::from_secs(2));
    still(running());
    await_proxy();
    thread::sleep(Duration::from_secs(1));
    for (server, load) in impatient {
        let fates = load.stop();
        println!(
            "{what}, {server}: {:?} of silence, {} answered by the cluster",
            fates.silence(),
            fates.of(Answer::Cluster)
        );
        assert!(
            fates.silence() < NOTICED,
            "{what}, {server}: {:?}",
            fates.silence()
        );
        assert!(fates.of(Answer::Cluster) > 0, "{what}, {server}");
    }
    for (name, load) in loads {
        let open = load.open_at_once();
        let fates = load.stop();
        println!("{what}, {name}: {} of {} lost", fates.lost(), fates.count());
        // What arrived before the stall was noticed, and the connections open when the proxy was back.
        let asked = (Duration::from_secs(1).as_millis() / 4) as usize;
        assert!(
            fates.lost() <= asked + open,
            "{what}, {name}: {} lost",
            fates.lost()
        );
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn a_stopped_proxy_is_covered_by_the_cluster() {
    stands_still("SIGSTOP", |proxy| {
        signal(proxy, libc::SIGSTOP);
        // Its liveness probe fails three times.
        until("its end", || ended(proxy));
    });
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn a_frozen_proxy_is_covered_by_the_cluster() {
    stands_still("frozen", |proxy| {
        let frozen = Frozen::new(proxy.cast_unsigned());
        thread::sleep(Duration::from_secs(2));
        drop(frozen);
    });
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn rollouts_lose_nothing() {
    await_started();
    let loads = loads();
    for _ in 0..ROLLOUTS {
        kubectl(&["-n", "kube-system", "rollout", "restart", "daemonset/dnsweir"]);
        rolled_out();
        until("the old pod's end", || processes(PROXY).len() == 1);
    }
    for (name, load) in loads {
        let open = load.open_at_once();
        let fates = load.stop();
        let covered = fates.of(Answer::Cluster);
        println!(
            "{ROLLOUTS} rollouts, {name}: {} of {} lost, {covered} answered by the cluster",
            fates.lost(),
            fates.count(),
        );
        // If the machine is too busy for a heartbeat in time, the cluster's DNS answers for a moment, and the
        // connections open at the start and end of that are reset.
        let reset = if covered > 0 { open } else { 0 };
        assert!(fates.lost() <= reset, "{name}: {} lost", fates.lost());
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn what_the_proxy_does_not_know_comes_from_the_cluster() {
    await_started();
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
