//! A dead process does not silence the node.

use std::thread;
use std::time::{Duration, Instant};

use harness::metrics::Metrics;
use harness::until;

use super::load::{Answer, Load, Protocol, ask, ask_for};
use super::world::{CLUSTER, KubeProxy, LISTENED, World, alone, place, terminate};

pub const CONFIG: &str = "listen \"10.96.0.10\" \"fd00:96::10\" \"169.254.20.10\" \"fd00:20::10\"\nworkers 2\n\
    admin \"127.0.0.1:9253\"\n\
    zone \".\" { cache; forward \"10.244.8.2:5301\" }\n\
    node { interface \"nodelocaldns\"; iptables; interval \"1s\"; cluster-dns \"10.96.0.10\" \"fd00:96::10\" }";

/// The longest silence of a process or worker before clients go elsewhere.
pub const NOTICED: Duration = Duration::from_secs(1);

/// How long before the end a query may arrive and still go unanswered.
pub const TAKEN: Duration = Duration::from_millis(100);

/// How many of 250 queries/s a killed process may have read but not answered: 40 ms' worth. On an idle
/// machine it is none or one; here, others may use the CPU while it dies.
pub const LOST: usize = 10;

/// Starts a load over both protocols to every address.
pub fn loads(world: &World, servers: &[&str]) -> Vec<(String, Load)> {
    let mut loads = Vec::new();
    for &server in servers {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            loads.push((
                format!("{protocol:?} {server}"),
                Load::start(&world.pod(), server, protocol),
            ));
        }
    }
    loads
}

pub fn settle() {
    // Lets the load run in this state.
    thread::sleep(Duration::from_secs(2));
}

/// Whether the proxy answers the pod at an address.
pub fn proxy_answers(world: &World, server: &str, protocol: Protocol) -> bool {
    let server = std::net::SocketAddr::new(server.parse().expect("an address"), 53);
    let asked = world.pod().within(move || ask(server, protocol));
    asked.join().expect("a client") == Answer::Proxy
}

/// Waits until the proxy answers promptly at every address. A process that is then killed leaves unanswered
/// only what arrives while it dies, not the backlog of a busy machine.
pub fn await_prompt(world: &World, servers: &[&str]) {
    let answered = |server: &&str| proxy_answers(world, server, Protocol::Udp);
    until("prompt answers", || {
        let begun = Instant::now();
        servers.iter().all(answered) && begun.elapsed() < TAKEN / 2
    });
}

fn killed(kube_proxy: KubeProxy) {
    let world = World::new(kube_proxy);
    let mut proxy = world.start(CONFIG);
    let loads = loads(&world, &LISTENED);
    settle();
    await_prompt(&world, &LISTENED);
    let killing = Instant::now();
    proxy.stop();
    let killed = Instant::now();
    for (_, load) in &loads {
        load.await_answers(200);
    }
    let starting = Instant::now();
    let _proxy = world.start(CONFIG);
    let started = Instant::now();
    settle();
    for (name, load) in loads {
        let open = load.open_at_once();
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
        let reset = fates.between(starting, started).lost();
        assert!(reset <= open, "{name}: {reset} lost during the restart");
        // Besides resets, only queries that the dead process had read are lost.
        let taken = fates.between(killing - TAKEN, killed).lost();
        assert_eq!(fates.lost(), taken + reset, "{name}");
        assert!(taken <= LOST, "{name}: {taken} lost");
    }
}

#[test]
fn killed_under_load_beside_iptables() {
    let Some(_place) = alone(&[]) else { return };
    killed(KubeProxy::Iptables);
}

#[test]
fn killed_under_load_beside_nftables() {
    let Some(_place) = alone(&[]) else { return };
    killed(KubeProxy::Nftables);
}

/// An orderly end that leaves the network as it is loses no datagram: the last one that a socket has received is
/// answered, and the next goes to the cluster's DNS.
fn ended(kube_proxy: KubeProxy) {
    let world = World::new(kube_proxy);
    let proxy = world.start(&CONFIG.replace("iptables;", "iptables; skip-teardown;"));
    let loads = loads(&world, &LISTENED);
    settle();
    await_prompt(&world, &LISTENED);
    let ending = Instant::now();
    terminate(proxy);
    let ended = Instant::now();
    for (_, load) in &loads {
        load.await_answers(200);
    }
    for (name, load) in loads {
        let open = load.open_at_once();
        let fates = load.stop();
        let lost: Vec<_> = fates
            .times_of(Answer::Nobody)
            .map(|at| at.saturating_duration_since(ending))
            .collect();
        println!(
            "{kube_proxy:?} {name}: lost {lost:?}, ended after {:?}",
            ended - ending
        );
        assert!(lost.len() <= open, "{name}: {} lost", lost.len());
        assert!(fates.of(Answer::Cluster) > 100, "{name}");
    }
}

#[test]
fn ended_under_load_beside_iptables() {
    let Some(_place) = alone(&[]) else { return };
    ended(KubeProxy::Iptables);
}

#[test]
fn ended_under_load_beside_nftables() {
    let Some(_place) = alone(&[]) else { return };
    ended(KubeProxy::Nftables);
}

/// A stub resolver asks again when an answer does not come, but gives up when a port is closed, though the next
/// process may be there before its second try.
#[test]
fn an_end_that_removes_the_link_refuses_no_datagram() {
    let Some(_place) = alone(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    let servers = ["169.254.20.10", "fd00:20::10"];
    let loads = servers.map(|server| Load::start(&world.pod(), server, Protocol::Udp));
    settle();
    await_prompt(&world, &servers);
    terminate(proxy);
    for (server, load) in servers.iter().zip(loads) {
        let fates = load.stop();
        println!("{server}: {} of {} lost", fates.lost(), fates.count());
        assert_eq!(fates.refused(), 0, "{server}");
    }
}

#[test]
fn a_client_on_the_node_gets_the_cluster_dns() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let mut proxy = world.start(CONFIG);
    for server in CLUSTER {
        assert_eq!(asked(&world, server), [Answer::Cluster, Answer::Proxy], "alive");
    }
    proxy.stop();
    for server in CLUSTER {
        assert_eq!(asked(&world, server), [Answer::Cluster; 2], "dead");
    }
}

/// Returns who answers a client on the node, and one in a pod.
pub fn asked(world: &World, server: &str) -> [Answer; 2] {
    let server = std::net::SocketAddr::new(server.parse().expect("an address"), 53);
    ["node", "pod"].map(|client| {
        let asked = world.within(client, move || {
            // Stub resolvers retry as well.
            let mut tries = (0..3).map(|_| ask(server, Protocol::Udp));
            tries.find(|answer| *answer != Answer::Nobody)
        });
        asked.join().expect("a client").unwrap_or(Answer::Nobody)
    })
}

#[test]
fn a_client_on_the_node_gets_nobody_over_ipv4_at_a_dead_link_local_address() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let mut proxy = world.start(CONFIG);
    for server in ["169.254.20.10", "fd00:20::10"] {
        assert_eq!(asked(&world, server), [Answer::Proxy; 2], "alive");
    }
    proxy.stop();
    let asked = |server| asked(&world, server);
    assert_eq!(asked("169.254.20.10"), [Answer::Nobody, Answer::Cluster], "dead");
    // Once heartbeats stop, packets to it are tracked as they arrive over loopback, and led on. The same
    // happens over IPv4, but there the kernel forwards nothing whose source is one of its own addresses.
    until("the cluster's DNS to answer", || {
        asked("fd00:20::10") == [Answer::Cluster; 2]
    });
    assert_eq!(asked("169.254.20.10"), [Answer::Nobody, Answer::Cluster], "dead");
}

#[test]
fn bypass_falls_silent() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let mut proxy = world.start(&CONFIG.replace("iptables;", "iptables; mode \"bypass\";"));
    for server in LISTENED {
        assert_eq!(asked(&world, server), [Answer::Proxy; 2], "alive");
    }
    proxy.stop();
    for server in LISTENED {
        assert_eq!(asked(&world, server), [Answer::Nobody; 2], "dead");
    }
}

/// Why fall-through mode does not do what link-local mode does.
#[test]
fn a_dnat_leads_nowhere_beside_kube_proxys() {
    let Some(_place) = place(&[]) else { return };
    for kube_proxy in [KubeProxy::Iptables, KubeProxy::Nftables] {
        let world = World::new(kube_proxy);
        let config = CONFIG.replace("listen \"10.96.0.10\" \"fd00:96::10\"", "listen");
        let mut proxy = world.start(&config.replace("iptables;", "iptables; mode \"link-local\";"));
        let server = "169.254.20.10";
        assert_eq!(asked(&world, server), [Answer::Proxy; 2], "{kube_proxy:?}: alive");
        proxy.stop();
        assert!(
            world
                .script("iptables -w -t nat -S PREROUTING")
                .contains("-j DNAT --to-destination 10.96.0.10:53")
        );
        assert_eq!(asked(&world, server), [Answer::Nobody; 2], "{kube_proxy:?}: dead");
    }
}

/// One of two servers behind the cluster's DNS address is gone, so every other query is refused. The query
/// then leaves from another port and reaches the other server.
#[test]
fn a_server_of_the_cluster_that_has_gone_costs_no_query() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Absent);
    world.script(
        "ip route add 10.96.0.10 via 10.244.8.2
        for p in udp tcp; do
            iptables -w -t nat -A OUTPUT -d 10.96.0.10 -p $p --dport 53 -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination 10.244.8.2:5399
            iptables -w -t nat -A OUTPUT -d 10.96.0.10 -p $p --dport 53 -j DNAT --to-destination 10.244.8.2:53
        done",
    );
    let config = "listen \"127.0.0.1:5300\"\nworkers 1\nadmin \"127.0.0.1:9253\"\nzone \".\" { cache; forward \"10.96.0.10\" }";
    let _proxy = world.start(config);
    let asked = world.within("node", || {
        let server = "127.0.0.1:5300".parse().expect("an address");
        let answers = (0..40).map(|number| {
            ask_for(
                &format!("miss-{number}"),
                server,
                Protocol::Udp,
                Duration::from_secs(5),
            )
        });
        answers.collect::<Vec<_>>()
    });
    let answers = asked.join().expect("a client");
    let lost = answers
        .iter()
        .filter(|answer| **answer != Answer::Cluster)
        .count();
    assert_eq!(lost, 0, "of {}", answers.len());
}

/// What the node itself drops, for a full conntrack table or by a rule, is not the upstream's fault. It is
/// logged once.
#[test]
fn what_the_node_drops_is_named() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Absent);
    let config = "listen \"127.0.0.1:5300\"\nworkers 1\nadmin \"127.0.0.1:9253\"\nzone \".\" { cache; forward \"10.244.8.2\" }";
    let proxy = world.start(config);
    let ask = || {
        let asked = world.within("node", || {
            let server = "127.0.0.1:5300".parse().expect("an address");
            ask_for("www", server, Protocol::Udp, Duration::from_secs(5))
        });
        asked.join().expect("a client")
    };
    world.script("iptables -w -A OUTPUT -d 10.244.8.2 -p udp --dport 53 -j DROP");
    for _ in 0..3 {
        assert_eq!(ask(), Answer::Nobody);
    }
    let said = proxy.logged("this node drops queries to upstreams: a rule of its packet filter forbids them");
    assert!(said.contains("upstream=10.244.8.2:53"), "{said}");
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    let denied = Metrics::parse(&metrics).sum("dnsweir_forward_failures_total", &[("reason", "denied")]);
    assert!(denied >= 3.0, "{denied}");
    let (_, status) = world.admin("/status").expect("an answer");
    assert!(
        status.contains("upstream 10.244.8.2:53 (zone .)")
            && status.contains("this node drops queries to it"),
        "{status}"
    );
    // It is not cached as a failure of the name.
    world.script("iptables -w -D OUTPUT -d 10.244.8.2 -p udp --dport 53 -j DROP");
    assert_eq!(ask(), Answer::Cluster);
}
