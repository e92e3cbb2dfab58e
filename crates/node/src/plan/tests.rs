use std::path::Path;

use super::*;
use crate::config;

fn plan(text: &str) -> Plan {
    let text = format!("{text}\nzone \".\" {{ forward \"192.0.2.1\" }}");
    let config = config::parse("test", &text, Path::new("/"), &[]);
    Plan::of(&config.unwrap_or_else(|report| panic!("{}", report.render(false))))
}

fn typed(plan: &Plan) -> Vec<String> {
    plan.rules.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_is_wanted_unless_written() {
    assert!(plan("listen \"10.96.0.10\"").is_empty());
}

#[test]
fn bypass_is_what_node_cache_does() {
    let plan = plan(
        "listen \"169.254.20.10\"\nadmin \"127.0.0.1:8080\"\n\
         node { interface \"nodelocaldns\"; iptables; mode \"bypass\" }",
    );
    assert_eq!(
        plan.link,
        Some(Link {
            name: "nodelocaldns".into(),
            addresses: vec!["169.254.20.10".parse().unwrap()]
        })
    );
    let skip = "-j NOTRACK -m comment --comment \"NodeLocal DNS Cache: skip conntrack\"";
    let allow = "-j ACCEPT -m comment --comment \"NodeLocal DNS Cache: allow DNS traffic\"";
    let expected = [
        format!("iptables -t filter -I INPUT -p tcp -d 169.254.20.10 --dport 53 {allow}"),
        format!("iptables -t filter -I INPUT -p udp -d 169.254.20.10 --dport 53 {allow}"),
        format!("iptables -t filter -I OUTPUT -p tcp -s 169.254.20.10 --sport 53 {allow}"),
        format!("iptables -t filter -I OUTPUT -p udp -s 169.254.20.10 --sport 53 {allow}"),
        format!("iptables -t raw -I OUTPUT -p tcp -s 169.254.20.10 --sport 53 {skip}"),
        format!("iptables -t raw -I OUTPUT -p udp -s 169.254.20.10 --sport 53 {skip}"),
        format!("iptables -t raw -I PREROUTING -p tcp -d 169.254.20.10 --dport 53 {skip}"),
        format!("iptables -t raw -I PREROUTING -p udp -d 169.254.20.10 --dport 53 {skip}"),
        format!("iptables -t raw -I OUTPUT -p tcp -d 169.254.20.10 --dport 53 {skip}"),
        format!("iptables -t raw -I OUTPUT -p udp -d 169.254.20.10 --dport 53 {skip}"),
        format!("iptables -t raw -I OUTPUT -p tcp -d 169.254.20.10 --dport 8080 {skip}"),
        format!("iptables -t raw -I OUTPUT -p tcp -s 169.254.20.10 --sport 8080 {skip}"),
    ];
    assert_eq!(typed(&plan), expected);
    assert!(
        plan.leaving().is_empty(),
        "the node's own queries are ours to answer"
    );
    let closing: Vec<_> = plan.closing().iter().map(ToString::to_string).collect();
    assert_eq!(closing, [expected[3].as_str(), &expected[5]], "replies over UDP");
}

#[test]
fn both_families_are_one_plan() {
    let plan = plan(
        "listen \"10.96.0.10\" \"fd00::10\" \"127.0.0.1\" \"[::1]:8053\"\n\
         node { interface \"dns0\"; iptables; mode \"bypass\" }",
    );
    let addresses = plan.link.unwrap().addresses;
    assert_eq!(
        addresses,
        [
            "10.96.0.10".parse::<IpAddr>().unwrap(),
            "fd00::10".parse().unwrap()
        ]
    );
    let count = |family| plan.rules.iter().filter(|rule| rule.family() == family).count();
    assert_eq!(
        (count(Family::V4), count(Family::V6)),
        (10, 10),
        "no probes without `admin`"
    );
}

#[test]
fn fall_through_leaves_the_switch_to_the_socket() {
    let plan = plan(
        "listen \"10.96.0.10\" \"fd00::10\"\n\
         node { interface \"lo\"; iptables; cluster-dns \"10.96.0.10\" \"fd00::10\" }",
    );
    let lines = typed(&plan);
    assert_eq!(lines.len(), 24);
    for line in [
        "iptables -t raw -I PREROUTING -p udp -d 10.96.0.10 --dport 53 -m socket -j NOTRACK",
        "iptables -t raw -I PREROUTING -p tcp -d 10.96.0.10 --dport 53 -m socket -j NOTRACK",
        "ip6tables -t raw -I PREROUTING -p udp -d fd00::10 --dport 53 -m socket -j NOTRACK",
        "ip6tables -t raw -I OUTPUT -p tcp -s fd00::10 --sport 53 -j NOTRACK",
        "iptables -t raw -I OUTPUT -p udp -d 10.96.0.10 --dport 53 -j ACCEPT",
        "ip6tables -t nat -I POSTROUTING -p tcp -s fd00::10 ! -o lo ! --sport 53 -j MASQUERADE",
    ] {
        assert!(
            lines.iter().any(|rule| rule.starts_with(line)),
            "{line}: {lines:#?}"
        );
    }
    // Queries from the node to the cluster's DNS: no rule may keep kube-proxy from translating them.
    assert!(
        !lines
            .iter()
            .any(|rule| rule.contains("OUTPUT -p udp -d") && rule.contains("NOTRACK")),
        "{lines:#?}"
    );
}

#[test]
fn fall_through_takes_a_detour_where_no_service_stands() {
    let plan = plan(
        "listen \"10.96.0.10\" \"169.254.20.10\" \"fd00:20::10\"\n\
         node { iptables; cluster-dns \"10.96.0.10\" }",
    );
    let [detour] = plan.detours.as_slice() else {
        panic!("one has a cluster DNS of its family: {:?}", plan.detours);
    };
    assert_eq!(detour.from, "169.254.20.10:53".parse().unwrap());
    assert_eq!(detour.to, "10.96.0.10".parse::<IpAddr>().unwrap());
    // Only tracked packets are translated.
    let lines = typed(&plan);
    let switch = |ip: &str| {
        let query = format!("PREROUTING -p udp -d {ip} --dport 53");
        lines
            .iter()
            .any(|rule| rule.contains(&query) && rule.contains("-m socket"))
    };
    assert!(switch("169.254.20.10") && switch("10.96.0.10"), "{lines:#?}");
    // Nothing else would answer there: no answer costs less than a socket lookup.
    assert!(!switch("fd00:20::10"), "{lines:#?}");
}

#[test]
fn link_local_hands_over_to_ipvs() {
    let plan = plan(
        "listen \"169.254.20.10\" \"10.96.0.10\"\n\
         node { interface \"nodelocaldns\"; iptables; mode \"link-local\"; cluster-dns \"10.96.0.10\" }",
    );
    let lines = typed(&plan);
    let dnat = "iptables -t nat -I PREROUTING -p udp -d 169.254.20.10 --dport 53 -j DNAT --to-destination 10.96.0.10:53";
    assert!(lines.iter().any(|rule| rule.starts_with(dnat)), "{lines:#?}");
    // IPVS has that address on its own link.
    assert_eq!(
        plan.link.unwrap().addresses,
        ["169.254.20.10".parse::<IpAddr>().unwrap()]
    );
    assert!(
        !lines.iter().any(|rule| rule.contains("-d 10.96.0.10")),
        "{lines:#?}"
    );
}

/// The node would never be in order: what the kernel lists about such an address names no link.
#[test]
fn addresses_of_one_link_are_left_to_it() {
    let plan = plan(
        "listen \"10.96.0.10\" \"fe80::10%1\" \"[fe80::10%1]:8053\"\n\
         node { interface \"dns0\"; iptables; cluster-dns \"10.96.0.10\" }",
    );
    assert_eq!(plan.listeners, ["10.96.0.10:53".parse::<SocketAddr>().unwrap()]);
    assert_eq!(
        plan.link.as_ref().unwrap().addresses,
        ["10.96.0.10".parse::<IpAddr>().unwrap()]
    );
    assert!(plan.rules.iter().all(|rule| rule.family() == Family::V4));
    assert_eq!(plan.self_test.unwrap().listeners, plan.listeners);
}

#[test]
fn links_and_rules_are_wanted_apart() {
    let link = plan("listen \"10.96.0.10\"\nnode { interface \"dns0\" }");
    assert!(link.link.is_some() && link.rules.is_empty());
    let rules = plan("listen \"10.96.0.10\"\nnode { iptables }");
    assert!(rules.link.is_none() && !rules.rules.is_empty());
}
