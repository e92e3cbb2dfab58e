//! `dnsweir node plan | up | down | status`.

use super::world::{KubeProxy, World, place, same, sorted};

const CONFIG: &str = "listen \"169.254.20.10\" \"fd00:96::10\"\nadmin \"127.0.0.1:8080\"\n\
    zone \".\" { forward \"10.244.8.2\" }\n\
    node { interface \"nodelocaldns\"; iptables; mode \"MODE\"; cluster-dns \"10.96.0.10\" \"fd00:96::10\" }";

/// Returns node-cache's commands for one address, in its order: each rule goes to the head of its chain.
pub fn node_cache(command: &str, ip: &str) -> String {
    let skip = "-j NOTRACK -m comment --comment 'NodeLocal DNS Cache: skip conntrack'";
    let allow = "-j ACCEPT -m comment --comment 'NodeLocal DNS Cache: allow DNS traffic'";
    [
        format!("-t raw -I PREROUTING -p tcp -d {ip} --dport 53 {skip}"),
        format!("-t raw -I PREROUTING -p udp -d {ip} --dport 53 {skip}"),
        format!("-t filter -I INPUT -p tcp -d {ip} --dport 53 {allow}"),
        format!("-t filter -I INPUT -p udp -d {ip} --dport 53 {allow}"),
        format!("-t raw -I OUTPUT -p tcp -s {ip} --sport 53 {skip}"),
        format!("-t raw -I OUTPUT -p udp -s {ip} --sport 53 {skip}"),
        format!("-t filter -I OUTPUT -p tcp -s {ip} --sport 53 {allow}"),
        format!("-t filter -I OUTPUT -p udp -s {ip} --sport 53 {allow}"),
        format!("-t raw -I OUTPUT -p tcp -d {ip} --dport 53 {skip}"),
        format!("-t raw -I OUTPUT -p udp -d {ip} --dport 53 {skip}"),
        format!("-t raw -I OUTPUT -p tcp -d {ip} --dport 8080 {skip}"),
        format!("-t raw -I OUTPUT -p tcp -s {ip} --sport 8080 {skip}"),
    ]
    .map(|rule| format!("{command} -w {rule}\n"))
    .concat()
}

#[test]
fn the_deployed_configuration_plans_what_it_says() {
    let file = harness::guests::root().join("deploy/overlays/cluster-address/dnsweir.kdl");
    let mut command = std::process::Command::new(harness::proxy::program());
    command.env("KUBE_DNS_SERVICE_HOST", "10.96.0.10");
    let plan = harness::tools::output(command.args(["node", "plan", "--config"]).arg(file));
    let lines: Vec<_> = plan.lines().take(2).collect();
    assert_eq!(lines, ["link nodelocaldns-dw", "address 10.96.0.10"]);
    let switch = "iptables -t raw -I PREROUTING -p udp -d 10.96.0.10 --dport 53 -m socket -j NOTRACK";
    assert!(plan.contains(switch), "{plan}");
}

/// Others' rules in every chain that we write to, which also create the tables.
const OTHERS: &str = "for c in iptables ip6tables; do
    for h in PREROUTING OUTPUT; do $c -w -t raw -A $h -p sctp -j ACCEPT; $c -w -t nat -A $h -p sctp -j ACCEPT; done
    for h in INPUT OUTPUT; do $c -w -A $h -p sctp -m comment --comment 'somebody else' -j ACCEPT; done
    done";

#[test]
fn up_and_down_twice_leaves_no_trace() {
    let Some(_place) = place(&[]) else { return };
    for mode in ["bypass", "link-local", "fall-through"] {
        let world = World::new(KubeProxy::Iptables);
        world.script(OTHERS);
        let config = CONFIG.replace("MODE", mode);
        // In link-local mode, the cluster's own address is not ours to carry.
        let config = if mode == "link-local" {
            config.replace(" \"fd00:96::10\"\nadmin", "\nadmin")
        } else {
            config
        };
        let before = world.network();
        let node = |command| world.dnsweir(&["node", command], &config);
        for _ in 0..2 {
            assert_eq!(
                node("status").status.code(),
                Some(1),
                "{mode}: nothing is there yet"
            );
            let up = node("up");
            assert!(up.status.success(), "{mode}: {up:?}");
            let status = node("status");
            assert!(
                status.status.success(),
                "{mode}: {}",
                String::from_utf8_lossy(&status.stdout)
            );
            let there = world.network();
            assert_ne!(there, before);
            assert_eq!(node("up").stdout, b"", "{mode}: the second time changes nothing");
            same(&world.network(), &there, mode);

            assert!(node("down").status.success(), "{mode}");
            same(&world.network(), &before, mode);
            assert_eq!(node("down").stdout, b"", "{mode}: nothing is left");
            same(&world.network(), &before, mode);
        }
    }
}

#[test]
fn rules_are_node_caches_own() {
    let Some(_place) = place(&[]) else { return };
    let config = CONFIG.replace("MODE", "bypass");
    let listing = |world: &World| {
        world.script("for t in raw filter; do iptables -w -t $t -S; ip6tables -w -t $t -S; done")
    };
    let world = World::new(KubeProxy::Absent);
    world.script(&node_cache("iptables", "169.254.20.10"));
    world.script(&node_cache("ip6tables", "fd00:96::10"));
    let theirs = listing(&world);
    assert_eq!(theirs.matches("NodeLocal DNS Cache").count(), 24);

    let other = World::new(KubeProxy::Absent);
    assert!(other.dnsweir(&["node", "up"], &config).status.success());
    assert_eq!(listing(&other), theirs, "the listing equals node-cache's");

    // node-cache's rules are adopted: none is duplicated, and they go with ours.
    assert!(world.dnsweir(&["node", "up"], &config).status.success());
    assert_eq!(listing(&world), theirs, "none is doubled");
    assert!(world.dnsweir(&["node", "down"], &config).status.success());
    assert_eq!(listing(&world).matches("NodeLocal").count(), 0);
}

#[test]
fn what_is_not_ours_stays() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Absent);
    world.script(OTHERS);
    world.script("ip addr add 198.51.100.1/32 dev lo; ip addr add 2001:db8::1/128 dev lo");
    // Rules of another node cache for another address, and of an unknown author for ours.
    world.script(&node_cache("iptables", "169.254.20.11"));
    world.script("iptables -w -t raw -A PREROUTING -d 10.96.0.10 -p udp --dport 53 -j NOTRACK");
    let before = world.network();
    let config = "listen \"10.96.0.10\" \"fd00:96::10\"\nzone \".\" { forward \"10.244.8.2\" }\n\
        node { interface \"lo\"; iptables; cluster-dns \"10.96.0.10\" \"fd00:96::10\" }";
    for _ in 0..2 {
        assert!(world.dnsweir(&["node", "up"], config).status.success());
        let carried = world.script("ip -o addr show lo");
        assert!(
            carried.contains("10.96.0.10/32") && carried.contains("fd00:96::10/128"),
            "{carried}"
        );
        assert!(world.dnsweir(&["node", "down"], config).status.success());
        same(&world.network(), &before, "afterwards");
    }
}

#[test]
fn what_an_earlier_plan_wanted_goes() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Absent);
    let with = |listen: &str, mode: &str| {
        format!(
            "listen {listen}\nzone \".\" {{ forward \"10.244.8.2\" }}\n\
             node {{ interface \"nodelocaldns\"; iptables; mode \"{mode}\"; cluster-dns \"10.96.0.10\" }}"
        )
    };
    let fresh = World::new(KubeProxy::Absent);
    let wanted = with("\"10.96.0.10\"", "fall-through");
    assert!(fresh.dnsweir(&["node", "up"], &wanted).status.success());

    // A killed process leaves another mode's rules and an address that is no longer wanted.
    let earlier = with("\"10.96.0.10\" \"169.254.20.10\"", "bypass");
    assert!(world.dnsweir(&["node", "up"], &earlier).status.success());
    let status = world.dnsweir(&["node", "status"], &wanted);
    assert!(
        String::from_utf8_lossy(&status.stdout).contains("not wanted"),
        "{status:?}"
    );
    assert!(world.dnsweir(&["node", "up"], &wanted).status.success());
    same(&sorted(&world.network()), &sorted(&fresh.network()), "afterwards");
}
