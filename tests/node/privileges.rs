//! The capabilities that the process keeps.

use harness::{process::Process, until};

use super::falling::CONFIG;
use super::world::{KubeProxy, World, place, same, sorted, terminate};

/// NET_BIND_SERVICE, NET_ADMIN and NET_RAW.
const THREE: &str = "0000000000003400";

/// NET_BIND_SERVICE.
const ONE: &str = "0000000000000400";

const NONE: &str = "0000000000000000";

/// Returns one field of every thread's status.
fn of_each_thread(proxy: &Process, name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", proxy.id())).expect("threads");
    tasks
        .flatten()
        .filter_map(|task| {
            // A thread that has ended has none.
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(value.trim_matches([':', '\t']).to_string())
        })
        .collect()
}

fn keeps_the_network(world: &World, proxy: &Process) {
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        let sets = of_each_thread(proxy, set);
        assert!(sets.len() > 4, "{sets:?}");
        if set != "CapBnd" || of_each_thread(proxy, "Uid")[0].starts_with('0') {
            assert!(sets.iter().all(|set| set == THREE), "{set}: {sets:?}");
        }
    }
    let wanted = world.network();
    world.script("iptables -w -t raw -D PREROUTING 1; ip6tables -w -t raw -D PREROUTING 1; ip addr del 10.96.0.10/32 dev nodelocaldns");
    until("the network to be as it was", || {
        sorted(&world.network()) == sorted(&wanted)
    });
}

#[test]
fn root_keeps_three_capabilities() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    keeps_the_network(&world, &proxy);
    terminate(proxy);
}

fn have(proxy: &Process, expected: &str) {
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd"] {
        let sets = of_each_thread(proxy, set);
        assert!(
            !sets.is_empty() && sets.iter().all(|set| set == expected),
            "{set}: {sets:?}"
        );
    }
}

/// Without a network to keep, only a port must be bound. A change that needs more needs a restart.
#[test]
fn without_a_node_section_one_is_kept() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Absent);
    let config = "listen \"127.0.0.1\"\nadmin \"127.0.0.1:9253\"\nzone \".\" { forward \"10.244.8.2\" }\n";
    let proxy = world.start(config);
    have(&proxy, ONE);
    world.write(&format!("{config}node {{ interface \"nodelocaldns\" }}\n"));
    proxy.logged("restart dnsweir");
    terminate(proxy);
}

/// `dnsweir dev` keeps no capabilities, not even those of root.
#[test]
fn tools_keep_none() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Absent);
    let config = "listen \"127.0.0.1:15353\"\nzone \".\" { forward \"10.244.8.2\" }\n";
    let mut dev = world.on_node(&harness::proxy::program().display().to_string());
    dev.args(["dev", "--config"]).arg(world.write(config));
    let dev = Process::start(harness::proxy::with_own_cache(&mut dev));
    dev.printed("an answering proxy", |line| line.contains("answering on"));
    have(&dev, NONE);
    terminate(dev);
}

/// A port is handed over only to the same user's processes; others get an error that says so.
#[test]
fn another_user_gets_no_handover() {
    let Some(_place) = place(&["setpriv"]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    let network = world.network();
    let mut other = world.launch_without_root(CONFIG);
    assert_eq!(other.ended().code(), Some(71));
    let said = other.logged("among processes of one user only");
    // It may not see the owner's descriptors.
    assert!(said.contains("an unknown process of user 0"), "{said}");
    same(&world.network(), &network, "as if nobody had tried");
    terminate(proxy);
}

#[test]
fn it_runs_without_root() {
    let Some(_place) = place(&["setpriv"]) else {
        return;
    };
    let world = World::new(KubeProxy::Iptables);
    // Creates the tables beforehand.
    world.script(
        "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
    );
    let before = world.network();
    let proxy = world.launch_without_root(CONFIG);
    proxy.logged("answering queries");
    let status = world.dnsweir(&["node", "status"], CONFIG);
    assert!(
        status.status.success(),
        "{}",
        String::from_utf8_lossy(&status.stdout)
    );
    keeps_the_network(&world, &proxy);
    terminate(proxy);
    same(&world.network(), &before, "afterwards");
}
