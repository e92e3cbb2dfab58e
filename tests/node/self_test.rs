//! The proxy knows whether a pod would get an answer.

use harness::metrics::Metrics;
use harness::process::Process;
use harness::until;

use super::falling::CONFIG;
use super::standing_still::LINK_LOCAL;
use super::world::{KubeProxy, World, place, same, terminate};

const BYPASS: &str = "listen \"169.254.20.10\" \"fd00:96::10\"\nadmin \"127.0.0.1:9253\"\n\
    zone \".\" { cache; forward \"10.244.8.2:5301\" }\n\
    node { interface \"nodelocaldns\"; iptables; interval \"1s\"; mode \"bypass\" }";

/// Returns the configuration with a self-test from the pods' network.
fn from_pods(config: &str) -> String {
    config.replace(
        "interval \"1s\"",
        "interval \"1s\"; self-test \"10.244.255.254\" \"fd00:244::fffe\"",
    )
}

fn metric(world: &World, name: &str, labels: &[(&str, &str)]) -> f64 {
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    Metrics::parse(&metrics).sum(name, labels)
}

fn tested(world: &World, result: &str) -> f64 {
    metric(world, "dnsweir_node_selftests_total", &[("result", result)])
}

fn ready(world: &World) -> (u16, String) {
    world.admin("/ready").expect("an answer")
}

/// Waits until the proxy reports this failure for each of these addresses.
fn await_failures(world: &World, ips: &[&str], why: &str) {
    until("a self-test that fails", || {
        let (status, body) = ready(world);
        let told = |ip: &&str| {
            let from = format!("a pod would not get an answer from {ip}");
            body.lines()
                .any(|line| line.contains(&from) && line.contains(why))
        };
        status == 503 && ips.iter().all(told)
    });
}

fn await_ready(world: &World) {
    until("a self-test that is answered", || ready(world).0 == 200);
}

/// Creates all tables by writing rules, and returns the node's network.
fn with_tables(world: &World) -> String {
    world.script(
        "for c in iptables ip6tables; do for t in raw filter; do $c -w -t $t -A OUTPUT -p sctp; done
        for h in PREROUTING POSTROUTING; do $c -w -t nat -A $h -p sctp; done; done",
    );
    world.network()
}

/// Checks that a proxy's self-tests are answered, and that its end leaves everything as before.
fn answers(kube_proxy: KubeProxy, config: &str, listeners: f64) {
    let world = World::new(kube_proxy);
    let before = with_tables(&world);
    let proxy = world.start(config);
    await_ready(&world);
    assert_eq!(metric(&world, "dnsweir_node_selftest_listeners", &[]), listeners);
    let first = tested(&world, "answered");
    assert!(first >= listeners, "{first}");
    until("the next self-test", || tested(&world, "answered") > first);
    assert_eq!(tested(&world, "diverted") + tested(&world, "unanswered"), 0.0);
    assert_eq!(metric(&world, "dnsweir_node_selftest_failures", &[]), 0.0);
    assert_eq!(
        metric(&world, "dnsweir_node_rule_packets_total", &[]),
        0.0,
        "nobody else has asked"
    );
    let status = world.dnsweir(&["node", "status"], config);
    let text = String::from_utf8_lossy(&status.stdout);
    let shown = text.lines().filter(|line| line.contains("self-test of")).count();
    assert!(status.status.success() && shown as f64 == listeners, "{text}");
    terminate(proxy);
    same(&world.network(), &before, "afterwards");
}

#[test]
fn in_fall_through_mode_a_pod_would_get_an_answer() {
    let Some(_place) = place(&[]) else { return };
    answers(KubeProxy::Iptables, CONFIG, 4.0);
    answers(KubeProxy::Nftables, &from_pods(CONFIG), 4.0);
}

#[test]
fn in_link_local_mode_a_pod_would_get_an_answer() {
    let Some(_place) = place(&[]) else { return };
    answers(KubeProxy::Absent, LINK_LOCAL, 2.0);
}

#[test]
fn in_bypass_mode_a_pod_would_get_an_answer() {
    let Some(_place) = place(&["conntrack"]) else {
        return;
    };
    answers(KubeProxy::Iptables, BYPASS, 2.0);
}

/// Rules like those of NetworkPolicy implementations and firewalls: they drop queries or replies, anywhere.
#[test]
fn what_drops_queries_of_pods_is_noticed_and_so_is_its_end() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(&from_pods(CONFIG));
    await_ready(&world);
    let table = "nft 'table inet network-policy { chain input { type filter hook input priority -10; \
        ip saddr 10.244.0.0/16 udp dport 53 drop; ip6 saddr fd00:244::/64 udp dport 53 drop; }; }'";
    let in_chain = "for c in iptables ip6tables; do \
        $c -w -N POLICY; $c -w -A POLICY -p udp --dport 53 -j DROP; $c -w -I INPUT -i dnsweir-test -j POLICY; done";
    let out_of_chain = "for c in iptables ip6tables; do \
        $c -w -D INPUT -i dnsweir-test -j POLICY; $c -w -F POLICY; $c -w -X POLICY; done";
    for (drop, undo) in [
        (
            "iptables -w -I INPUT -s 10.244.0.0/16 -j DROP; ip6tables -w -I INPUT -s fd00:244::/64 -j DROP",
            "iptables -w -D INPUT 1; ip6tables -w -D INPUT 1",
        ),
        (
            "iptables -w -t raw -I PREROUTING -s 10.244.0.0/16 -j DROP; ip6tables -w -t raw -I PREROUTING -s fd00:244::/64 -j DROP",
            "iptables -w -t raw -D PREROUTING 1; ip6tables -w -t raw -D PREROUTING 1",
        ),
        (
            "iptables -w -I OUTPUT -d 10.244.0.0/16 -j DROP; ip6tables -w -I OUTPUT -d fd00:244::/64 -j DROP",
            "iptables -w -D OUTPUT 1; ip6tables -w -D OUTPUT 1",
        ),
        (in_chain, out_of_chain),
        (table, "nft delete table inet network-policy"),
    ] {
        world.script(drop);
        await_failures(
            &world,
            &["10.96.0.10", "[fd00:96::10]", "169.254.20.10", "[fd00:20::10]"],
            "a rule drops queries or replies",
        );
        assert_eq!(metric(&world, "dnsweir_node_selftest_failures", &[]), 4.0);
        let status = world.dnsweir(&["node", "status"], &from_pods(CONFIG));
        assert_eq!(status.status.code(), Some(1), "{drop}: {status:?}");
        assert!(
            String::from_utf8_lossy(&status.stdout).contains("no answer"),
            "{drop}: {status:?}"
        );
        world.script(undo);
        await_ready(&world);
    }
    proxy.logged("the self-test is answered again");
    // Forwarded packets are others' traffic.
    world.script("iptables -w -I FORWARD -j DROP");
    let before = tested(&world, "answered");
    until("the next self-test", || tested(&world, "answered") > before);
    assert_eq!(ready(&world).0, 200);
    terminate(proxy);
}

#[test]
fn a_start_behind_a_drop_is_not_ready() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // Written before our rules, which go to the head of their chains.
    world.script("iptables -w -t mangle -I PREROUTING -p udp --dport 53 ! -i lo -j DROP");
    let proxy = world.start(CONFIG);
    await_failures(&world, &["10.96.0.10", "169.254.20.10"], "a rule drops");
    assert!(!ready(&world).1.contains("fd00"), "the other family is well");
    assert_eq!(world.admin("/health").map(|(status, _)| status), Some(200));
    world.script("iptables -w -t mangle -D PREROUTING 1");
    await_ready(&world);
    terminate(proxy);
}

/// The packet bypasses our rules, and kube-proxy's lead it to the cluster's DNS.
#[test]
fn an_answer_of_another_server_is_none() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    await_ready(&world);
    world.script(
        "iptables -w -t raw -I PREROUTING -d 10.96.0.10 -j ACCEPT; ip6tables -w -t raw -I PREROUTING -d fd00:96::10 -j ACCEPT",
    );
    await_failures(&world, &["10.96.0.10", "[fd00:96::10]"], "another server answers");
    assert!(!ready(&world).1.contains("169.254"), "the others are well");
    world.script("iptables -w -t raw -D PREROUTING 1; ip6tables -w -t raw -D PREROUTING 1");
    await_ready(&world);
    terminate(proxy);
}

#[test]
fn without_root_it_is_tested_as_well() {
    let Some(_place) = place(&["setpriv"]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.launch_without_root(CONFIG);
    proxy.logged("answering queries");
    await_ready(&world);
    assert_eq!(metric(&world, "dnsweir_node_selftest_listeners", &[]), 4.0);
    terminate(proxy);
}

/// A client that may not ask gets our refusal, which is an answer.
#[test]
fn a_client_that_may_not_ask_is_answered() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(&format!("{CONFIG}\nclients {{ allow \"10.244.0.0/16\" }}"));
    await_ready(&world);
    assert!(tested(&world, "answered") >= 4.0);
    terminate(proxy);
}

fn links(world: &World) -> usize {
    let text = world.script("ip -o link");
    let names = text.split_ascii_whitespace().map(|word| word.split('@').next());
    let ours = [Some("dnsweir-test"), Some("dnsweir-pod")];
    names.filter(|name| ours.contains(name)).count()
}

fn kill(mut proxy: Process) {
    proxy.signal("KILL");
    proxy.ended();
}

#[test]
fn links_come_back_and_what_a_killed_process_left_goes() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let before = with_tables(&world);
    kill(world.start(CONFIG));
    assert_eq!(links(&world), 2, "left behind");
    // With other addresses; nothing of the old ones stays.
    let proxy = world.start(&from_pods(CONFIG));
    await_ready(&world);
    assert!(!world.script("ip route").contains("192.0.0.8"));
    world.script("ip link del dnsweir-test");
    until("the next check", || links(&world) == 2);
    world.script("ip route flush dev dnsweir-test; ip link set dnsweir-pod down");
    until("the next check", || {
        world
            .script("ip route")
            .contains("10.244.255.254 dev dnsweir-test")
    });
    await_ready(&world);
    kill(proxy);
    let down = world.dnsweir(&["node", "down"], CONFIG);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    same(&world.network(), &before, "afterwards");
}

/// Two concurrent processes use the same links, and the last one removes them.
#[test]
fn links_are_handed_over() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let first = world.start(CONFIG);
    let second = world.start(CONFIG);
    terminate(first);
    assert_eq!(links(&world), 2);
    await_ready(&world);
    terminate(second);
    assert_eq!(links(&world), 0);
}

#[test]
fn where_it_is_not_possible_or_off_the_proxy_is_ready_without() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // A foreign link of that name.
    world.script("ip link add dnsweir-test type bridge");
    let proxy = world.start(CONFIG);
    proxy.logged("no self-test");
    await_ready(&world);
    assert_eq!(metric(&world, "dnsweir_node_selftest_listeners", &[]), 0.0);
    let off = CONFIG.replace("interval \"1s\"", "interval \"1s\"; self-test #false");
    terminate(proxy);
    world.script("ip link del dnsweir-test");
    let proxy = world.start(CONFIG);
    assert_eq!(links(&world), 2);
    world.write(&off);
    until("a reload", || links(&world) == 0);
    await_ready(&world);
    terminate(proxy);
}
