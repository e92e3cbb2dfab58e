//! A dead process does not silence the node.

use std::thread;
use std::time::{Duration, Instant};

use super::load::{Answer, Load, Protocol, ask};
use super::world::{CLUSTER, KubeProxy, Proxy, World};

pub const CONFIG: &str = "listen \"10.96.0.10\" \"fd00:96::10\"\nworkers 2\n\
    admin \"127.0.0.1:9253\"\n\
    zone \".\" { cache; forward \"10.244.8.2:5301\" }\n\
    node { interface \"nodelocaldns\"; iptables; interval \"1s\"; cluster-dns \"10.96.0.10\" \"fd00:96::10\" }";

/// How long after the first beat is missed a hanging worker's sockets are off: a second, a beat, a look.
const NOTICED: Duration = Duration::from_millis(1500);

/// How long before the end a query may have come that is not answered any more.
const TAKEN: Duration = Duration::from_millis(100);

/// Both protocols to both families at once.
fn loads(world: &World) -> Vec<(String, Load)> {
    let mut loads = Vec::new();
    for server in CLUSTER {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            loads.push((
                format!("{protocol:?} {server}"),
                Load::start(&world.pod(), server, protocol),
            ));
        }
    }
    loads
}

fn settle() {
    // How long the load goes on in this state.
    thread::sleep(Duration::from_secs(2));
}

fn killed(kube_proxy: KubeProxy) {
    let world = World::new(kube_proxy);
    let proxy = world.start(CONFIG);
    let loads = loads(&world);
    settle();
    let killing = Instant::now();
    proxy.kill();
    let killed = Instant::now();
    settle();
    let starting = Instant::now();
    let _proxy = world.start(CONFIG);
    let started = Instant::now();
    settle();
    for (name, load) in loads {
        let fates = load.stop();
        println!(
            "{kube_proxy:?} {name}: {} of {} lost",
            fates.lost(),
            fates.count()
        );
        let before = fates.until(killing - TAKEN);
        assert_eq!(before.of(Answer::Proxy), before.count(), "{name}: before");
        let between = fates.between(killed, starting);
        assert!(between.count() > 100, "{name}");
        assert_eq!(
            between.of(Answer::Cluster),
            between.count(),
            "{name}: while it is dead"
        );
        let after = fates.since(started);
        assert_eq!(
            after.of(Answer::Proxy),
            after.count(),
            "{name}: after the restart"
        );
        assert_eq!(
            fates.between(starting, started).lost(),
            0,
            "{name}: during the restart"
        );
        // Lost is what the dead process had taken and not answered yet, and nothing else.
        let taken = fates.between(killing - TAKEN, killed).lost();
        assert_eq!(fates.lost(), taken, "{name}");
        assert!(taken <= 20, "{name}: {taken} lost, more than there are clients");
    }
}

#[test]
#[ignore = "needs root"]
fn killed_under_load_beside_iptables() {
    killed(KubeProxy::Iptables);
}

#[test]
#[ignore = "needs root"]
fn killed_under_load_beside_nftables() {
    killed(KubeProxy::Nftables);
}

#[test]
#[ignore = "needs root"]
fn a_client_on_the_node_gets_the_cluster_dns() {
    let world = World::new(KubeProxy::Iptables);
    let asked = |world: &World| {
        CLUSTER.map(|ip| {
            let server = std::net::SocketAddr::new(ip.parse().expect("an address"), 53);
            world
                .within("node", move || ask(server, Protocol::Udp))
                .join()
                .expect("a client")
        })
    };
    let proxy = world.start(CONFIG);
    assert_eq!(asked(&world), [Answer::Cluster; 2], "alive");
    proxy.kill();
    assert_eq!(asked(&world), [Answer::Cluster; 2], "dead");
}

/// Stops single threads of a process, as a fault in a worker would.
struct Hanging(Vec<libc::pid_t>);

impl Hanging {
    fn workers(proxy: &Proxy) -> Hanging {
        let tasks = format!("/proc/{}/task", proxy.id());
        let mut threads = Vec::new();
        for task in std::fs::read_dir(tasks).expect("threads").flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if !name.starts_with("worker-") {
                continue;
            }
            let id: libc::pid_t = task.file_name().to_string_lossy().parse().expect("a number");
            // SAFETY: these requests take a thread's number and no memory; the thread is another
            // process's, which only stops.
            let stopped = unsafe {
                libc::ptrace(libc::PTRACE_SEIZE, id, 0, 0) == 0
                    && libc::ptrace(libc::PTRACE_INTERRUPT, id, 0, 0) == 0
                    && libc::waitpid(id, std::ptr::null_mut(), libc::__WALL) == id
            };
            assert!(stopped, "{}", std::io::Error::last_os_error());
            threads.push(id);
        }
        assert_eq!(threads.len(), 2);
        Hanging(threads)
    }

    fn resume(self) {
        for id in self.0 {
            // SAFETY: as above.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, id, 0, 0) };
        }
    }
}

#[test]
#[ignore = "needs root"]
fn workers_that_hang_fall_through_and_come_back() {
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    let loads = loads(&world);
    settle();
    let hung = Instant::now();
    let hanging = Hanging::workers(&proxy);
    settle();
    settle();
    let resumed = Instant::now();
    hanging.resume();
    proxy.logged("is back");
    let back = Instant::now() + Duration::from_millis(200);
    settle();
    for (name, load) in loads {
        let fates = load.stop();
        let silence = fates.silence();
        println!(
            "{name}: {} of {} lost, {silence:?} of silence",
            fates.lost(),
            fates.count()
        );
        let fallen = fates.between(hung + NOTICED, resumed);
        assert!(fallen.count() > 100, "{name}");
        assert_eq!(
            fallen.of(Answer::Cluster),
            fallen.count(),
            "{name}: while they hang"
        );
        let after = fates.since(back);
        assert_eq!(
            after.of(Answer::Proxy),
            after.count(),
            "{name}: after they are back"
        );
        assert!(silence < NOTICED, "{name}: {silence:?}");
    }
}
