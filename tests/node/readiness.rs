//! The proxy reports that it is ready when it is, and only then.

use std::os::unix::fs::symlink;

use harness::metrics::Metrics;
use harness::process::Process;
use harness::{tools, until};

use super::falling::CONFIG;
use super::world::{KubeProxy, World, place};

/// Starts a proxy that finds no iptables yet: its PATH is a folder that is still empty.
fn without_iptables(world: &World) -> Process {
    let bin = world.folder().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let env = tools::find("env").expect("env");
    let path = format!("PATH={}", bin.display());
    let proxy = world.launch_by(&[&env.display().to_string(), &path], CONFIG);
    proxy.logged("answering queries");
    proxy
}

fn ready(world: &World) -> Option<u16> {
    world.admin("/ready").map(|(status, _)| status)
}

#[test]
fn without_its_rules_the_proxy_is_not_ready() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let _proxy = without_iptables(&world);
    let (status, body) = world.admin("/ready").expect("an answer");
    assert_eq!((status, body.contains("network")), (503, true), "{body}");
    let (status, _) = world.admin("/health").expect("an answer");
    assert_eq!(status, 200, "it lives, and a restart would not help");
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    let errors = Metrics::parse(&metrics).sum("dnsweir_node_errors_total", &[("kind", "iptables")]);
    assert!(errors > 0.0, "{metrics}");

    for program in ["iptables", "ip6tables", "nft"] {
        let to = tools::find(program).unwrap_or_else(|| program.into());
        symlink(to, world.folder().join("bin").join(program)).expect("a link");
    }
    until("the next check", || ready(&world) == Some(200));
}

/// Two processes share the admin address during an update. A probe that is meant for the successor must
/// not be answered by the predecessor.
#[test]
fn of_two_processes_the_successor_answers_probes() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let asked = || -> Vec<_> { (0..32).map(|_| ready(&world)).collect() };
    let mut first = world.start(CONFIG);
    until("an upstream's answer", || ready(&world) == Some(200));
    assert_eq!(asked(), [Some(200); 32]);
    let mut second = without_iptables(&world);
    assert_eq!(asked(), [Some(503); 32]);
    second.stop();
    assert_eq!(asked(), [Some(200); 32], "the first is alone again");

    // The same with three, whichever ends first.
    let mut second = world.start(CONFIG);
    until("an upstream's answer", || ready(&world) == Some(200));
    assert_eq!(asked(), [Some(200); 32], "the second is ready");
    let _third = without_iptables(&world);
    assert_eq!(asked(), [Some(503); 32]);
    first.stop();
    assert_eq!(asked(), [Some(503); 32]);
    second.stop();
    assert_eq!(asked(), [Some(503); 32]);
}
