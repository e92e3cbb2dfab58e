//! The proxy repairs what others break.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::falling::CONFIG;
use super::load::{Answer, Load, Protocol};
use harness::metrics::Metrics;
use harness::{PATIENCE, tools, until};

use super::world::{KubeProxy, LISTENED, World, place, same, sorted, terminate};

/// Waits until the node's network is as it was, and returns how long that took.
fn repaired(world: &World, wanted: &str) -> Duration {
    let begun = Instant::now();
    // Restored rules come first in their chains, so order is ignored.
    while sorted(&world.network()) != sorted(wanted) {
        if begun.elapsed() > PATIENCE {
            same(&sorted(&world.network()), &sorted(wanted), "not repaired");
        }
    }
    begun.elapsed()
}

/// How soon a reported change is repaired, on a busy machine.
const HEARD: Duration = Duration::from_secs(30);

#[test]
fn links_addresses_routes_and_rules_come_back_under_load() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // The next check would come in a minute: anything repaired sooner was reported by the kernel.
    let rare = CONFIG.replacen("interval \"1s\"", "interval \"60s\"", 1);
    assert_ne!(rare, CONFIG);
    let proxy = world.start(&rare);
    let wanted = world.network();
    let loads: Vec<_> = LISTENED
        .map(|server| (server, Load::start(&world.pod(), server, Protocol::Udp)))
        .into();
    for (event, script) in [
        (
            "IPv4 address removed",
            "ip addr del 10.96.0.10/32 dev nodelocaldns",
        ),
        (
            "IPv6 address removed",
            "ip addr del fd00:96::10/128 dev nodelocaldns",
        ),
        (
            "IPv4 route deleted",
            "ip route del table local local 10.96.0.10 dev nodelocaldns",
        ),
        (
            "IPv6 route deleted",
            "ip -6 route del table local local fd00:96::10 dev nodelocaldns",
        ),
        ("link set down", "ip link set nodelocaldns down"),
        ("link deleted", "ip link del nodelocaldns"),
        ("rules flushed", "iptables -w -t raw -F; ip6tables -w -t raw -F"),
        ("detours deleted", "nft delete table inet dnsweir"),
        ("one rule deleted", "iptables -w -t raw -D PREROUTING 1"),
    ] {
        world.script(script);
        let took = repaired(&world, &wanted);
        println!("{event}: repaired after {took:?}");
        assert!(took < HEARD, "{event}: {took:?}");
        thread::sleep(Duration::from_millis(300));
    }
    let after = Instant::now();
    thread::sleep(Duration::from_secs(1));
    for (server, load) in loads {
        let fates = load.stop();
        println!(
            "{server}: {} of {} lost, {} answered by the cluster, over nine events",
            fates.lost(),
            fates.count(),
            fates.of(Answer::Cluster)
        );
        let after = fates.since(after);
        assert_eq!(after.of(Answer::Proxy), after.count(), "{server}");
    }
    terminate(proxy);
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // Creates the tables beforehand: rules for the node's own queries precede its addresses.
    world.script(
        "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
    );
    let before = world.network();
    // Another program has the port and does not share it, which is noticed once the addresses are there.
    let taken = world.within("node", || {
        std::net::TcpListener::bind("0.0.0.0:53").expect("a free port")
    });
    let _taken = taken.join().expect("a socket");
    for link in ["nodelocaldns", "lo"] {
        let mut failed = world.launch(&CONFIG.replace("nodelocaldns", link));
        assert!(!failed.ended().success());
        let said = failed.logged("does not hand it over");
        // It has dropped the right to see the owner, so it says how to find out.
        assert!(
            said.contains("an unknown process of user 0") && said.contains("ss -"),
            "{said}"
        );
        same(&world.network(), &before, link);
    }
}

/// Returns how many errors of a kind the proxy has counted.
fn errors(world: &World, kind: &str) -> f64 {
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    Metrics::parse(&metrics).sum("dnsweir_node_errors_total", &[("kind", kind)])
}

/// Routes come and go with pods all the time, and the kernel reports all of them.
#[test]
fn other_news_do_not_delay_a_repair() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // No periodic check helps.
    let proxy = world.start(&CONFIG.replace("interval \"1s\"", "interval \"1h\""));
    let wanted = world.network();
    let enough = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&enough);
    // A change every 10 ms: a repair that waited for quiet would never start.
    let news = world.within("node", move || {
        while !seen.load(Ordering::Relaxed) {
            for change in ["add", "del"] {
                let mut command = std::process::Command::new("ip");
                let route = ["route", change, "blackhole", "198.51.100.0/24"];
                assert!(command.args(route).status().expect("ip").success());
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    world.script("ip addr del 10.96.0.10/32 dev nodelocaldns");
    until("the address to be back", || {
        world
            .script("ip -o addr show nodelocaldns")
            .contains("10.96.0.10/32")
    });
    assert!(!news.is_finished(), "while there are news");
    enough.store(true, Ordering::Relaxed);
    news.join().expect("routes");
    same(&sorted(&world.network()), &sorted(&wanted), "afterwards");
    terminate(proxy);
}

#[test]
fn an_iptables_that_hangs_is_killed() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let bin = world.folder().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let link = |to: &std::path::Path, name: &str| {
        let new = bin.join("new");
        std::os::unix::fs::symlink(to, &new).expect("a link");
        std::fs::rename(new, bin.join(name)).expect("a link");
    };
    let program = |name| tools::find(name).unwrap_or_else(|| panic!("no {name}"));
    for name in ["ip6tables", "nft"] {
        link(&program(name), name);
    }
    // `tail -f /dev/null` never ends.
    link(&program("tail"), "tail");
    std::fs::write(bin.join("hanging"), "#!/bin/sh\nexec tail -f /dev/null\n").expect("a script");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("hanging"), executable).expect("permissions");
    link(std::path::Path::new("hanging"), "iptables");

    let env = program("env").display().to_string();
    let proxy = world.launch_by(&[&env, &format!("PATH={}", bin.display())], CONFIG);
    proxy.logged("did not finish within 5 s and was killed");
    proxy.logged("answering queries");
    assert!(errors(&world, "deadline") > 0.0);
    assert_eq!(world.admin("/ready").map(|(status, _)| status), Some(503));
    link(&program("iptables"), "iptables");
    until("the next check", || {
        world.admin("/ready").is_some_and(|(status, _)| status == 200)
    });
    terminate(proxy);
}

/// Any process on the host's network may take an abstract address.
#[test]
fn a_stranger_with_our_name_is_no_obstacle() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // Creates the tables beforehand: empty ones stay.
    world.script(
        "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
    );
    let before = world.network();
    let stranger = world.within("node", || {
        // SAFETY: the bare system call changes this thread's user only, and takes numbers.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, 12345, 12345, 12345) };
        assert_eq!(changed, 0);
        let name = SocketAddr::from_abstract_name("dnsweir-node").expect("a name");
        UnixListener::bind_addr(&name).expect("nobody has it")
    });
    let held = stranger.join().expect("a stranger");
    let proxy = world.start(CONFIG);
    assert!(errors(&world, "turn") > 0.0);
    assert_eq!(world.admin("/ready").map(|(status, _)| status), Some(200));
    let wanted = world.network();
    world.script("iptables -w -t raw -F PREROUTING");
    repaired(&world, &wanted);

    // Nor when its backlog is so full that its owner cannot be looked up.
    let full = world.within("node", || {
        let name = SocketAddr::from_abstract_name("dnsweir-node").expect("a name");
        (0..=128)
            .map(|_| UnixStream::connect_addr(&name).expect("room"))
            .collect::<Vec<_>>()
    });
    let _full = full.join().expect("who wait");
    terminate(proxy);
    same(&world.network(), &before, "afterwards");
    drop(held);
}
