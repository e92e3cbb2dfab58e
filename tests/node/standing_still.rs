//! A process or worker that hangs does not silence the node.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::metrics::Metrics;
use harness::process::Process;
use harness::{tools, until};

use super::falling::{CONFIG, NOTICED, TAKEN, asked, await_prompt, loads, proxy_answers, settle};
use super::load::{Answer, Load, Protocol};
use super::world::{CLUSTER, KubeProxy, LISTENED, World, place, terminate};

/// Without kube-proxy's rules in the way, a DNAT leads from a link-local address to the cluster's DNS, as it
/// does beside IPVS.
pub const LINK_LOCAL: &str = "listen \"169.254.20.10\" \"fd00:20::10\"\nworkers 2\nadmin \"127.0.0.1:9253\"\n\
    zone \".\" { cache; forward \"10.244.8.2:5301\" }\n\
    node { interface \"nodelocaldns\"; iptables; interval \"1s\"; mode \"link-local\"; cluster-dns \"10.244.8.2\" \"fd00:8::2\" }";

/// Waits until the proxy answers the pod at every address, over both protocols.
fn await_proxy(world: &World, servers: &[&str]) {
    for server in servers {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            until("the proxy to answer", || proxy_answers(world, server, protocol));
        }
    }
}

/// Starts clients with a short timeout at every address.
fn impatient(world: &World, servers: &[&str]) -> Vec<(String, Load)> {
    let start = |server| {
        (
            format!("Udp {server}"),
            Load::impatient(&world.pod(), server, Protocol::Udp),
        )
    };
    servers.iter().copied().map(start).collect()
}

/// What was lost and who answered, while pods kept asking and the proxy stalled.
pub struct Course {
    loads: Vec<(String, Load)>,
    /// These measure the silence.
    impatient: Vec<(String, Load)>,
    stopped: Instant,
    resumed: Instant,
    back: Instant,
}

impl Course {
    /// Stalls the proxy with `stop`, whose value resumes it when dropped.
    pub fn of<Stopped>(world: &World, servers: &[&str], stop: impl FnOnce() -> Stopped) -> Course {
        await_proxy(world, servers);
        let (loads, impatient) = (loads(world, servers), impatient(world, servers));
        settle();
        await_prompt(world, servers);
        let stopped = Instant::now();
        let still = stop();
        settle();
        for (_, load) in &loads {
            load.await_answers(200);
        }
        let resumed = Instant::now();
        drop(still);
        await_proxy(world, servers);
        let back = Instant::now();
        settle();
        Course {
            loads,
            impatient,
            stopped,
            resumed,
            back,
        }
    }

    pub fn check(self, what: &str) {
        for (name, load) in self.impatient {
            let silence = load.stop().until(self.resumed).silence();
            println!("{what}, {name}: {silence:?} of silence");
            assert!(silence < NOTICED, "{what}, {name}: {silence:?}");
        }
        for (name, load) in self.loads {
            let open = load.open_at_once();
            let fates = load.stop();
            println!(
                "{what}, {name}: {} of {} lost, {} answered by the cluster",
                fates.lost(),
                fates.count(),
                fates.of(Answer::Cluster)
            );
            assert_eq!(
                fates.until(self.stopped - TAKEN).lost(),
                0,
                "{what}, {name}: before"
            );
            let fallen = fates.between(self.stopped + NOTICED, self.resumed);
            assert!(fallen.count() > 100, "{what}, {name}");
            assert_eq!(
                fallen.of(Answer::Cluster),
                fallen.count(),
                "{what}, {name}: while it stands still"
            );
            let reset = fates.between(self.resumed, self.back).lost();
            assert!(reset <= open, "{what}, {name}: {reset} lost on the way back");
            let after = fates.since(self.back);
            assert_eq!(after.lost(), 0, "{what}, {name}: after it is back");
            assert!(after.of(Answer::Proxy) > 0, "{what}, {name}: after it is back");
        }
    }
}

/// A process that is stopped until dropped.
pub struct Stopped<'a>(&'a Process);

impl Stopped<'_> {
    pub fn new(proxy: &Process) -> Stopped<'_> {
        proxy.signal("STOP");
        Stopped(proxy)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

fn stopped(kube_proxy: KubeProxy, config: &str, servers: &[&str]) {
    let world = World::new(kube_proxy);
    let proxy = world.start(config);
    Course::of(&world, servers, || Stopped::new(&proxy)).check(&format!("SIGSTOP beside {kube_proxy:?}"));
}

#[test]
fn stopped_beside_iptables() {
    let Some(_place) = place(&[]) else { return };
    stopped(KubeProxy::Iptables, CONFIG, &LISTENED);
}

#[test]
fn stopped_beside_legacy_iptables() {
    let Some(_place) = place(&["iptables-legacy", "ip6tables-legacy"]) else {
        return;
    };
    stopped(KubeProxy::Legacy, CONFIG, &LISTENED);
}

#[test]
fn stopped_beside_nftables() {
    let Some(_place) = place(&[]) else { return };
    stopped(KubeProxy::Nftables, CONFIG, &LISTENED);
}

#[test]
fn stopped_in_link_local_mode() {
    let Some(_place) = place(&[]) else { return };
    stopped(KubeProxy::Absent, LINK_LOCAL, &["169.254.20.10", "fd00:20::10"]);
}

/// A control group that is frozen until dropped.
pub struct Frozen(PathBuf);

impl Frozen {
    /// Puts a process into its own group and freezes it.
    pub fn new(process: u32) -> Frozen {
        let name = format!("dnsweir-{process}");
        // The freezer of cgroup v1 has its own hierarchy.
        let first = PathBuf::from("/sys/fs/cgroup/freezer");
        let group = if first.exists() {
            first
        } else {
            "/sys/fs/cgroup".into()
        }
        .join(name);
        // A killed run may have left one for this PID.
        std::fs::create_dir_all(&group).expect("a control group");
        let frozen = Frozen(group);
        frozen.write("cgroup.procs", &process.to_string());
        frozen.freeze(true);
        frozen
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    fn freeze(&self, frozen: bool) {
        if self.0.join("freezer.state").exists() {
            self.write("freezer.state", if frozen { "FROZEN" } else { "THAWED" });
        } else {
            self.write("cgroup.freeze", if frozen { "1" } else { "0" });
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.freeze(false);
        let processes = std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines() {
            let _ = std::fs::write(self.0.join("../cgroup.procs"), process);
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// With the capabilities of the container in `deploy/`, and not as root.
#[test]
fn frozen_with_three_capabilities() {
    let Some(_place) = place(&["setpriv"]) else {
        return;
    };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.launch_without_root(CONFIG);
    proxy.logged("answering queries");
    Course::of(&world, &LISTENED, || Frozen::new(proxy.id())).check("frozen");
}

/// Stops single threads of a process, as a fault in a worker would.
struct Hanging(Vec<libc::pid_t>);

impl Hanging {
    fn workers(proxy: &Process, names: &[&str]) -> Hanging {
        let tasks = format!("/proc/{}/task", proxy.id());
        let mut threads = Vec::new();
        for task in std::fs::read_dir(tasks).expect("threads").flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if !names.contains(&name.trim()) {
                continue;
            }
            let id: libc::pid_t = task.file_name().to_string_lossy().parse().expect("a number");
            // SAFETY: these requests take a thread ID and no memory; the thread belongs to another process,
            // which only stops.
            let stopped = unsafe {
                libc::ptrace(libc::PTRACE_SEIZE, id, 0, 0) == 0
                    && libc::ptrace(libc::PTRACE_INTERRUPT, id, 0, 0) == 0
                    && libc::waitpid(id, std::ptr::null_mut(), libc::__WALL) == id
            };
            assert!(stopped, "{}", std::io::Error::last_os_error());
            threads.push(id);
        }
        assert_eq!(threads.len(), names.len());
        Hanging(threads)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        for id in &self.0 {
            // SAFETY: as above.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, *id, 0, 0) };
        }
    }
}

#[test]
fn workers_that_hang_fall_through_and_come_back() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    let hang = || Hanging::workers(&proxy, &["worker-0", "worker-1"]);
    Course::of(&world, &LISTENED, hang).check("both workers hang");
    proxy.logged("is back");
}

/// The kernel gives half of the clients to the hung worker: all of them go elsewhere until its listeners are
/// disabled.
#[test]
fn a_worker_that_hangs_silences_nobody() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    await_proxy(&world, &LISTENED);
    let (loads, impatient) = (loads(&world, &LISTENED), impatient(&world, &LISTENED));
    settle();
    let hung = Instant::now();
    let hanging = Hanging::workers(&proxy, &["worker-1"]);
    proxy.logged("unresponsive");
    await_proxy(&world, &LISTENED);
    let alone = Instant::now();
    settle();
    let resumed = Instant::now();
    drop(hanging);
    proxy.logged("is back");
    await_proxy(&world, &LISTENED);
    settle();
    for (name, load) in impatient {
        let fates = load.stop();
        let fallen = fates.between(hung, alone);
        println!(
            "one worker hangs, {name}: {} of {} lost, {} answered by the cluster",
            fallen.lost(),
            fallen.count(),
            fallen.of(Answer::Cluster)
        );
        assert!(fallen.of(Answer::Cluster) > 0, "{name}: while it is waited for");
        let without = fates.between(alone, resumed);
        assert!(without.of(Answer::Proxy) > 0, "{name}: from the other one");
    }
    for (name, load) in loads {
        let open = load.open_at_once();
        let fates = load.stop();
        assert_eq!(
            fates.between(alone, resumed).lost(),
            0,
            "{name}: the other one has all clients"
        );
        let reset = fates.since(resumed).lost();
        assert!(reset <= open, "{name}: {reset} lost when it is back");
    }
}

/// Without nft there are no heartbeats, but the rest still works.
#[test]
fn without_nft_a_socket_is_enough() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let bin = world.folder().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    for program in ["iptables", "ip6tables"] {
        let to = tools::find(program).unwrap_or_else(|| program.into());
        std::os::unix::fs::symlink(to, bin.join(program)).expect("a link");
    }
    let env = tools::find("env").expect("env").display().to_string();
    let config = CONFIG.replace(" \"169.254.20.10\" \"fd00:20::10\"", "");
    let proxy = world.launch_by(&[&env, &format!("PATH={}", bin.display())], &config);
    proxy.logged("no heartbeats");
    proxy.logged("answering queries");
    assert_eq!(world.admin("/ready").map(|(status, _)| status), Some(200));
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    assert_eq!(Metrics::parse(&metrics).sum("dnsweir_node_heartbeats", &[]), 0.0);
    for server in CLUSTER {
        assert_eq!(asked(&world, server)[1], Answer::Proxy);
    }
}

/// Only heartbeats sent from a listener's own port count.
#[test]
fn others_cannot_beat_for_it() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    await_proxy(&world, &CLUSTER);
    let _stopped = Stopped::new(&proxy);
    let enough = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&enough);
    let forging = world.within("node", move || {
        let socket = std::net::UdpSocket::bind("10.96.0.10:0").expect("a socket");
        while !seen.load(Ordering::Relaxed) {
            let _ = socket.send_to(&[], "10.96.0.10:1");
            thread::sleep(Duration::from_millis(50));
        }
    });
    until("the cluster's DNS", || {
        asked(&world, "10.96.0.10")[1] == Answer::Cluster
    });
    enough.store(true, Ordering::Relaxed);
    forging.join().expect("a forger");
}

/// Metrics count what the rules lead to the proxy and what bypasses it, for alerts.
#[test]
fn what_comes_and_what_goes_past_is_counted() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let count = |name: &str| {
        let (_, metrics) = world.admin("/metrics").expect("an answer");
        Metrics::parse(&metrics).sum(name, &[])
    };
    let (brought, unheard) = (
        "dnsweir_node_rule_packets_total",
        "dnsweir_node_unheard_packets_total",
    );
    let proxy = world.start(CONFIG);
    assert_eq!(count("dnsweir_node_heartbeats"), 4.0);
    assert_eq!(count(brought), 0.0, "nobody has asked");
    await_proxy(&world, &LISTENED);
    // One UDP query to each address, and the packets of a connection.
    until("the next check", || count(brought) >= 8.0);
    let before = count(unheard);
    let stopped = Stopped::new(&proxy);
    until("the cluster's DNS", || {
        asked(&world, "10.96.0.10")[1] == Answer::Cluster
    });
    drop(stopped);
    until("the next check", || count(unheard) > before);
    terminate(proxy);
}
