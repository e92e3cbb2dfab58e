//! Warns of what will not work on this node before it fails.
//!
//! Only looks: nothing is changed, and nothing waits for the result. Each finding is one sentence that says
//! what to do. Some go away by themselves, such as a kube-proxy that has not written its rules yet.

use std::net::{IpAddr, SocketAddr};

use rtnetlink::Handle;

use super::error::{Error, Kind};
use super::network::Network;
use super::plan::{Family, Link, Plan, Rule, Target};
use super::program::run;
use super::{link, peers, rules, table};

/// kube-proxy's link in IPVS mode, with the addresses of all services.
const IPVS: &str = "kube-ipvs0";

/// A link that exists where Cilium runs.
const CILIUM: &str = "cilium_host";

/// Finds what keeps a plan from working, other than programs that listen on its addresses.
pub async fn obstacles(plan: &Plan) -> Vec<String> {
    if plan.is_empty() {
        return Vec::new();
    }
    let carried = match carried().await {
        Ok(carried) => carried,
        Err(error) => return vec![format!("cannot check for problems on this node: {error}")],
    };
    let mut found: Vec<String> = plan.link.iter().flat_map(|link| taken(link, &carried)).collect();
    if plan.rules.is_empty() {
        return found;
    }
    for ip in relied_on(plan) {
        if !is_on(&carried, ip, IPVS) && !is_translated(ip).await {
            found.push(nobody_translates(ip, &carried));
        }
    }
    found.extend(without_socket_match(plan).await);
    let ips: Vec<IpAddr> = plan.listeners.iter().map(SocketAddr::ip).collect();
    match table::compare(&table::lines(plan), &ips).await {
        Ok(difference) => found.extend(difference.shortfall.map(|why| {
            format!("no heartbeats: if the process hangs, pods get no answers until it is ended: {why}")
        })),
        Err(error) => found.push(format!(
            "queries to addresses without a service cannot fall through: {error}"
        )),
    }
    found
}

/// The plan's listeners where another program listens: a predecessor, or one in the way.
pub fn occupied(plan: &Plan) -> Vec<SocketAddr> {
    peers::others_listen(&plan.listeners)
}

/// The addresses of all links, with link names.
type Carried = Vec<(String, Option<IpAddr>)>;

async fn carried() -> Result<Carried, Error> {
    let network = Network::open()?;
    network.ask(all(&network.handle)).await
}

/// Lists links and addresses. A link without addresses is in the list as well.
async fn all(handle: &Handle) -> Result<Carried, Error> {
    let failed = |why| Error {
        kind: Kind::InterfaceCheck,
        text: format!("could not list links and addresses: {why}"),
    };
    let links = link::links(handle).await.map_err(failed)?;
    let addresses = link::addresses(handle, None).await.map_err(failed)?;
    let mut carried = Vec::new();
    for message in &links {
        let name = link::name_of(message).unwrap_or_default().to_string();
        let own = addresses
            .iter()
            .filter(|address| address.header.index == message.header.index);
        // A link that we made under another name is removed later anyway.
        if !link::is_made_by_us(message) {
            carried.extend(own.map(|address| (name.clone(), link::address_of(address))));
        }
        carried.push((name, None));
    }
    Ok(carried)
}

fn is_on(carried: &Carried, ip: IpAddr, link: &str) -> bool {
    carried
        .iter()
        .any(|(name, carried)| name == link && *carried == Some(ip))
}

/// Addresses planned for our link that another link has.
fn taken(wanted: &Link, carried: &Carried) -> Vec<String> {
    let by_another = |ip: IpAddr| {
        let mut names = carried
            .iter()
            .filter(|(name, carried)| *name != wanted.name && *carried == Some(ip));
        names.next().map(|(name, _)| (ip, name))
    };
    let others = wanted.addresses.iter().copied().filter_map(by_another);
    others
        .map(|(ip, name)| match name.as_str() {
            IPVS => format!(
                "{ip} is on {IPVS}: kube-proxy is in IPVS mode and handles packets to that address, regardless of the rules. Listen on a \
                 link-local address, with mode \"link-local\", and give pods that address"
            ),
            _ => format!(
                "{ip} is on the link {name} already: packets to it still reach the proxy, but nothing answers them if that link \
                 keeps the address after the proxy has ended. Remove it there when it is no longer needed"
            ),
        })
        .collect()
}

/// The addresses that something must translate to the cluster's DNS.
fn relied_on(plan: &Plan) -> Vec<IpAddr> {
    let translated = |rule: &&Rule| match rule.target {
        Target::Dnat(_) => true,
        _ => rule.for_socket,
    };
    let mut ips: Vec<IpAddr> = Vec::new();
    for rule in plan.rules.iter().filter(translated) {
        let detour = plan.detours.iter().find(|detour| detour.from == rule.address);
        let dnat = plan.rules.iter().find_map(|other| match other.target {
            Target::Dnat(to) if other.address == rule.address => Some(to.ip()),
            _ => None,
        });
        let ip = detour
            .map(|detour| detour.to)
            .or(dnat)
            .unwrap_or(rule.address.ip());
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips
}

/// Returns whether a rule translates the address: in PREROUTING, in kube-proxy's chain, or in its nft map.
async fn is_translated(ip: IpAddr) -> bool {
    let family = Family::of(ip);
    let named = format!("-d {ip}/{} ", if ip.is_ipv4() { 32 } else { 128 });
    for chain in ["PREROUTING", "KUBE-SERVICES"] {
        let lines = rules::list_chain(family, "nat", chain).await.unwrap_or_default();
        if lines.iter().any(|line| line.contains(&named)) {
            return true;
        }
    }
    let table = if ip.is_ipv4() { "ip" } else { "ip6" };
    let element = format!("{{ {ip} . udp . 53 }}");
    let found = run(
        "nft",
        &["get", "element", table, "kube-proxy", "service-ips", &element],
        "",
    )
    .await;
    found.is_ok_and(|output| output.status.success())
}

fn nobody_translates(ip: IpAddr, carried: &Carried) -> String {
    let why = if carried.iter().any(|(name, _)| name == CILIUM) {
        "Cilium is here: if it replaces kube-proxy, it translates in eBPF, before rules see a packet, and pods never reach a \
         listener at that address. Use a local redirect policy of Cilium to give pods a link-local address instead"
    } else {
        "If kube-proxy has not started yet, this passes. If something else translates in eBPF, rules do not see the packets of pods"
    };
    format!(
        "no rule of kube-proxy's translates {ip}, the cluster's DNS: without one, nothing answers pods when the proxy does not. {why}"
    )
}

/// Reports that the kernel cannot match sockets, as far as iptables shows that before a rule is written.
async fn without_socket_match(plan: &Plan) -> Vec<String> {
    let mut missing = Vec::new();
    for family in [Family::V4, Family::V6] {
        let mut rules = plan.rules.iter().filter(|rule| rule.family() == family);
        let Some(rule) = rules.find(|rule| rule.for_socket) else {
            continue;
        };
        if let Err(error) = rules::is_there(rule).await
            && is_about_socket(&error.to_string())
        {
            missing.push(format!(
                "{family} cannot match sockets (-m socket, the kernel's xt_socket): {error}"
            ));
        }
    }
    missing
}

fn is_about_socket(complaint: &str) -> bool {
    complaint.contains("match `socket'") || complaint.contains("xtension socket")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn plan(text: &str) -> Plan {
        let text = format!("{text}\nzone \".\" {{ forward \"192.0.2.1\" }}");
        let config = config::parse("test", &text, std::path::Path::new("/"), &[]);
        Plan::of(&config.unwrap())
    }

    #[test]
    fn what_is_relied_on_is_the_cluster_dns() {
        for (listen, mode) in [
            ("10.96.0.10", "fall-through"),
            ("169.254.20.10", "fall-through"),
            ("169.254.20.10", "link-local"),
        ] {
            let plan = plan(&format!(
                "listen \"{listen}\"\nnode {{ iptables; mode \"{mode}\"; cluster-dns \"10.96.0.10\" }}"
            ));
            assert_eq!(
                relied_on(&plan),
                ["10.96.0.10".parse::<IpAddr>().unwrap()],
                "{listen} {mode}"
            );
        }
        let bypass = plan("listen \"10.96.0.10\"\nnode { iptables; mode \"bypass\" }");
        assert!(relied_on(&bypass).is_empty());
    }

    #[test]
    fn another_links_address_is_in_the_way() {
        let wanted = Link {
            name: "nodelocaldns".into(),
            addresses: vec!["10.96.0.10".parse().unwrap(), "169.254.20.10".parse().unwrap()],
        };
        let on = |name: &str, ip: &str| (name.to_string(), Some(ip.parse().unwrap()));
        let own = vec![on("nodelocaldns", "10.96.0.10"), on("eth0", "192.0.2.1")];
        assert!(taken(&wanted, &own).is_empty());
        let ipvs = taken(&wanted, &vec![on(IPVS, "10.96.0.10"), on("lo", "169.254.20.10")]);
        assert_eq!(ipvs.len(), 2);
        assert!(
            ipvs[0].contains("IPVS mode") && ipvs[1].contains("the link lo"),
            "{ipvs:?}"
        );
    }

    #[test]
    fn complaints_about_the_socket_match_are_known() {
        for complaint in [
            "Warning: Extension socket revision 0 not supported, missing kernel module?",
            "iptables v1.8.9 (legacy): Couldn't load match `socket':No such file or directory",
        ] {
            assert!(is_about_socket(complaint), "{complaint}");
        }
        assert!(!is_about_socket(
            "iptables: Bad rule (does a matching rule exist in that chain?)."
        ));
    }
}
