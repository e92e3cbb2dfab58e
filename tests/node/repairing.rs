//! What others break is put right.

use std::thread;
use std::time::{Duration, Instant};

use super::falling::CONFIG;
use super::load::{Answer, Load, Protocol};
use harness::PATIENCE;

use super::world::{KubeProxy, LISTENED, World, alone, same, sorted, terminate};

/// Waits until the node's network is as it was, and says how long that took.
fn repaired(world: &World, wanted: &str) -> Duration {
    let begun = Instant::now();
    // What is put back comes first in its chain, whatever stood there before.
    while sorted(&world.network()) != sorted(wanted) {
        if begun.elapsed() > PATIENCE {
            same(&sorted(&world.network()), &sorted(wanted), "not repaired");
        }
    }
    begun.elapsed()
}

#[test]
fn links_addresses_routes_and_rules_come_back_under_load() {
    let Some(_alone) = alone(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    let wanted = world.network();
    let loads: Vec<_> = LISTENED
        .map(|server| (server, Load::start(&world.pod(), server, Protocol::Udp)))
        .into();
    for (event, script, within) in [
        (
            "IPv4 address removed",
            "ip addr del 10.96.0.10/32 dev nodelocaldns",
            1000,
        ),
        (
            "IPv6 address removed",
            "ip addr del fd00:96::10/128 dev nodelocaldns",
            1000,
        ),
        (
            "IPv4 route deleted",
            "ip route del table local local 10.96.0.10 dev nodelocaldns",
            1000,
        ),
        (
            "IPv6 route deleted",
            "ip -6 route del table local local fd00:96::10 dev nodelocaldns",
            1000,
        ),
        ("link set down", "ip link set nodelocaldns down", 1000),
        ("link deleted", "ip link del nodelocaldns", 1000),
        // The next check comes within a second.
        (
            "rules flushed",
            "iptables -w -t raw -F; ip6tables -w -t raw -F",
            2000,
        ),
        ("detours deleted", "nft delete table inet dnsweir", 2000),
        ("one rule deleted", "iptables -w -t raw -D PREROUTING 1", 2000),
    ] {
        world.script(script);
        let took = repaired(&world, &wanted);
        println!("{event}: repaired after {took:?}");
        assert!(took < Duration::from_millis(within), "{event}: {took:?}");
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
    let Some(_alone) = alone(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let before = world.network();
    // The port is another program's, which does not share. That is noticed when the addresses are there.
    let taken = world.within("node", || {
        std::net::TcpListener::bind("0.0.0.0:53").expect("a free port")
    });
    let _taken = taken.join().expect("a socket");
    for link in ["nodelocaldns", "lo"] {
        let mut failed = world.launch(&CONFIG.replace("nodelocaldns", link));
        assert!(!failed.ended().success());
        failed.logged("another program listens there");
        same(&world.network(), &before, link);
    }
}
