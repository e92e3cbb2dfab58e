//! Obstacles are reported before they do harm.

use std::net::IpAddr;
use std::process::Command;

use harness::metrics::Metrics;
use harness::tools::output;
use harness::until;

use super::falling::CONFIG;
use super::load::{Answer, Protocol, ask};
use super::world::{KubeProxy, World, place, terminate};

/// Returns what `dnsweir node plan` prints to stderr.
fn said(world: &World, config: &str) -> String {
    let plan = world.dnsweir(&["node", "plan"], config);
    assert!(plan.status.success(), "{plan:?}");
    assert!(String::from_utf8_lossy(&plan.stdout).contains("link nodelocaldns"));
    String::from_utf8_lossy(&plan.stderr).into_owned()
}

fn obstacles(world: &World) -> f64 {
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    Metrics::parse(&metrics).sum("dnsweir_node_obstacles", &[])
}

#[test]
fn where_all_is_well_nothing_is_said() {
    let Some(_place) = place(&[]) else { return };
    for kube_proxy in [KubeProxy::Iptables, KubeProxy::Nftables] {
        let world = World::new(kube_proxy);
        let before = world.network();
        assert_eq!(said(&world, CONFIG), "", "{kube_proxy:?}");
        assert_eq!(world.network(), before, "{kube_proxy:?}: nothing is changed");
        let proxy = world.launch_with(CONFIG, &["--log-level", "debug"]);
        proxy.logged("node: looked for obstacles obstacles=0");
        assert_eq!(obstacles(&world), 0.0, "{kube_proxy:?}");
        terminate(proxy);
    }
}

#[test]
fn a_link_that_has_the_address_is_named() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // A bridge, since the test's kernel may lack dummy links.
    world.script(
        "ip link add kube-ipvs0 type bridge; ip addr add 10.96.0.10/32 dev kube-ipvs0; ip addr add 169.254.20.10/32 dev lo",
    );
    let said = said(&world, CONFIG);
    assert!(
        said.contains("10.96.0.10 is on kube-ipvs0: kube-proxy is in IPVS mode"),
        "{said}"
    );
    assert!(said.contains("169.254.20.10 is on the link lo already"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_node_without_kube_proxy_is_named_until_it_is_there() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Absent);
    let said = said(&world, CONFIG);
    for ip in ["10.96.0.10", "fd00:96::10"] {
        assert!(
            said.contains(&format!("no rule of kube-proxy's translates {ip}")),
            "{said}"
        );
    }
    assert!(
        said.contains("If kube-proxy has not started yet, this passes"),
        "{said}"
    );
    let proxy = world.start(CONFIG);
    proxy.logged("no rule of kube-proxy's translates 10.96.0.10");
    assert_eq!(obstacles(&world), 2.0);
    let (_, status) = world.admin("/status").expect("an answer");
    assert!(
        status.contains("2 problems keep its network from being set up as configured"),
        "{status}"
    );
    world.translate("iptables", "ip6tables");
    until("the next check", || obstacles(&world) == 0.0);
    terminate(proxy);

    let world = World::new(KubeProxy::Absent);
    world.script("ip link add cilium_host type bridge");
    assert!(self::said(&world, CONFIG).contains("Cilium is here"));
}

#[test]
fn who_listens_there_is_named() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    let said = said(&world, CONFIG);
    assert!(
        said.contains("another program listens on 10.96.0.10:53"),
        "{said}"
    );
    terminate(proxy);
}

/// The node's own address is reached not only by pods: a `node` section does not open it to strangers.
#[test]
fn only_what_our_link_alone_carries_is_for_everybody() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let (own, kept) = ("198.51.100.53", "198.51.100.54");
    world.script(&format!(
        "ip addr add {own}/32 dev lo; ip route add 203.0.113.7/32 via 10.244.7.2"
    ));
    let stranger = format!("--net={}", world.pod().0.display());
    let route = format!(
        "ip addr add 203.0.113.7/32 dev lo; for to in {own} {kept}; do ip route add $to via 10.244.7.1 src 203.0.113.7; done"
    );
    output(Command::new("nsenter").args([&stranger, "sh", "-ec", &route]));
    let config = CONFIG.replace(
        "listen \"10.96.0.10\"",
        &format!("listen \"{own}\" \"{kept}\" \"10.96.0.10\""),
    );
    let proxy = world.start(&config);
    let asked = world.within("pod", move || {
        [own, kept].map(|ip| {
            ask(
                (ip.parse::<IpAddr>().expect("an address"), 53).into(),
                Protocol::Udp,
            )
        })
    });
    assert_eq!(
        asked.join().expect("a client"),
        [Answer::Nobody, Answer::Proxy],
        "a stranger at the node's own address, and at one of the link's"
    );
    terminate(proxy);
}
