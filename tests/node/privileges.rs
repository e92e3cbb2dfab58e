//! What the process may do.

use harness::{process::Process, until};

use super::falling::CONFIG;
use super::world::{KubeProxy, World, alone, same, sorted, terminate};

/// NET_BIND_SERVICE, NET_ADMIN and NET_RAW.
const THREE: &str = "0000000000003400";

/// A line of every thread's status.
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
    let Some(_alone) = alone(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    keeps_the_network(&world, &proxy);
    terminate(proxy);
}

#[test]
fn it_runs_without_root() {
    let Some(_alone) = alone(&["setpriv"]) else {
        return;
    };
    let world = World::new(KubeProxy::Iptables);
    // The tables exist before.
    world.script(
        "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
    );
    let before = world.network();
    let three = "+net_bind_service,+net_admin,+net_raw";
    let proxy = world.launch_by(
        &[
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            &format!("--inh-caps={three}"),
            &format!("--ambient-caps={three}"),
        ],
        CONFIG,
    );
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
