//! One process takes over from another without a lost query.

use std::thread;
use std::time::Duration;

use harness::process::Process;
use harness::{proxy, until};

use super::falling::CONFIG;
use super::load::{Answer, Load, Protocol};
use super::neighbours::asked;
use super::world::{CLUSTER, KubeProxy, LISTENED, World, place, same, terminate};

fn handovers(config: &str, servers: &[&str]) {
    let world = World::new(KubeProxy::Iptables);
    let mut running = world.start(config);
    let mut loads = Vec::new();
    for &server in servers {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            loads.push((
                format!("{protocol:?} {server}"),
                Load::start(&world.pod(), server, protocol),
            ));
        }
    }
    let rules = world.network();
    for _ in 0..20 {
        let successor = world.start(config);
        terminate(running);
        running = successor;
        // Some load for this generation.
        thread::sleep(Duration::from_millis(100));
    }
    for (name, load) in loads {
        let fates = load.stop();
        println!(
            "{name}: {} of {} lost over 20 handovers",
            fates.lost(),
            fates.count()
        );
        assert!(fates.count() > 250, "{name}");
        assert_eq!(
            fates.of(Answer::Proxy),
            fates.count(),
            "{name}: {} lost",
            fates.lost()
        );
    }
    same(&world.network(), &rules, "nothing was added or taken away");
    terminate(running);
}

#[test]
fn twenty_handovers_lose_nothing_in_fall_through_mode() {
    let Some(_place) = place(&[]) else { return };
    handovers(CONFIG, &LISTENED);
}

#[test]
fn twenty_handovers_lose_nothing_in_bypass_mode() {
    let Some(_place) = place(&[]) else { return };
    let config = "listen \"169.254.20.10\" \"10.96.0.10\" \"fd00:96::10\"\nworkers 2\nadmin \"127.0.0.1:9253\"\n\
        zone \".\" { cache; forward \"10.244.8.2:5301\" }\n\
        node { interface \"nodelocaldns\"; iptables; mode \"bypass\" }";
    handovers(config, &["169.254.20.10", "10.96.0.10", "fd00:96::10"]);
}

#[test]
fn the_last_one_takes_everything_away_and_hands_over_to_the_cluster() {
    let Some(_place) = place(&[]) else { return };
    for mode in ["bypass", "fall-through"] {
        let world = World::new(KubeProxy::Iptables);
        // Creates the tables beforehand.
        world.script("for c in iptables ip6tables; do $c -w -t raw -S; $c -w -t filter -S; $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done");
        let before = world.network();
        let config = CONFIG.replace("iptables;", &format!("iptables; mode \"{mode}\";"));
        let (first, second) = (world.start(&config), world.start(&config));
        let load = Load::start(&world.pod(), CLUSTER[0], Protocol::Udp);
        terminate(first);
        assert_ne!(world.network(), before, "the second one needs it");
        terminate(second);
        same(&world.network(), &before, mode);
        thread::sleep(Duration::from_millis(200));
        let fates = load.stop();
        println!("{mode}: {} of {} lost at the end", fates.lost(), fates.count());
        assert_eq!(fates.lost(), 0, "{mode}");
        assert!(fates.of(Answer::Cluster) > 0 && fates.of(Answer::Proxy) > 0);
    }
}

/// Connection tracking remembers ports. A reply that it takes for the first packet of a new connection gets
/// another port if the client's was translated before. What the client later sends from that port then counts
/// as replies, which are not translated.
#[test]
fn clients_that_keep_their_ports_are_answered_before_and_after() {
    let Some(_place) = place(&[]) else { return };
    for (mode, upstream) in [
        ("bypass", "5301"),
        ("bypass", "5302"),
        ("fall-through", "5301"),
        ("fall-through", "5302"),
    ] {
        let world = World::new(KubeProxy::Iptables);
        let config = CONFIG
            .replace("iptables;", &format!("iptables; mode \"{mode}\";"))
            .replace("5301", upstream);
        for server in CLUSTER {
            until("the cluster to answer", || {
                asked(&world, server) == Answer::Cluster
            });
        }
        let start = |server| (server, Load::from_kept_ports(&world.pod(), server));
        let mut loads = Vec::from(CLUSTER.map(start));
        for cycle in 0..2 {
            let proxy = world.start(&config);
            if cycle == 0 {
                // These have never asked the cluster's DNS.
                loads.extend(CLUSTER.map(start));
            }
            // Some load for each state.
            thread::sleep(Duration::from_millis(500));
            terminate(proxy);
            thread::sleep(Duration::from_millis(500));
        }
        for (server, load) in loads {
            let fates = load.stop();
            let (lost, count) = (fates.lost(), fates.count());
            println!("{mode}, {upstream}, {server}: {lost} of {count} lost");
            assert_eq!(lost, 0, "{mode}, {upstream}, {server}");
            assert!(fates.of(Answer::Cluster) > 0 && fates.of(Answer::Proxy) > 0);
        }
    }
}

/// A link named `dnsweir` gets a name that Calico and MetalLB expect of such links. Of two links with the
/// same addresses, the old one goes with its process or, if that was killed, at the new process's next check.
#[test]
fn a_link_gets_another_name_without_a_gap() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let new = CONFIG.replace("interface \"nodelocaldns\"", "interface \"nodelocaldns-dw\"");
    let old = new.replace("nodelocaldns-dw", "dnsweir");
    assert_ne!(new, old);
    let links = || {
        let all = world.script("ip -o link");
        ["dnsweir", "nodelocaldns-dw"].map(|name| all.contains(&format!(" {name}: ")))
    };
    let first = world.start(&old);
    let loads = LISTENED.map(|server| (server, Load::start(&world.pod(), server, Protocol::Udp)));
    assert_eq!(links(), [true, false]);
    // From its own file, or the first process would take the new name from the shared one.
    let file = world.folder().join("successor.kdl");
    std::fs::write(&file, &new).expect("a configuration file");
    let mut command = world.on_node(&proxy::program().display().to_string());
    command.args(["run", "--config"]).arg(file);
    let second = Process::start(proxy::with_own_cache(&mut command));
    second.logged("answering queries");
    assert_eq!(links(), [true, true], "each looks after its own");
    terminate(first);
    assert_eq!(links(), [false, true]);
    // Some load for this state.
    thread::sleep(Duration::from_millis(200));
    for (server, load) in loads {
        let fates = load.stop();
        assert_eq!(
            fates.of(Answer::Proxy),
            fates.count(),
            "{server}: {} lost",
            fates.lost()
        );
    }
    terminate(second);
    let mut killed = world.start(&old);
    killed.signal("KILL");
    killed.ended();
    assert_eq!(links(), [true, false], "left behind");
    let third = world.start(&new);
    until("the old link to go", || links() == [false, true]);
    terminate(third);
    assert_eq!(links(), [false, false]);
}

/// Each takes the other for its successor.
#[test]
fn two_that_end_at_once_leave_nothing() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    world.script(
        "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
    );
    let before = world.network();
    for _ in 0..5 {
        let mut both = [world.start(CONFIG), world.start(CONFIG)];
        both.iter().for_each(|proxy| proxy.signal("TERM"));
        assert!(both.iter_mut().all(|proxy| proxy.ended().success()));
        same(&world.network(), &before, "afterwards");
    }
}
