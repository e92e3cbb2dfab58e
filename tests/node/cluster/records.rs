//! Compares the cluster's records in CoreDNS and the proxy under the same settings: every name of a zoo and
//! many that do not exist, every type.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use harness::process::Process;
use harness::until;

use super::beside::{COREDNS, Said, await_ready, compare, kubeconfig, start};
use super::{apply_zoo, kubectl, node};

const SERVICES: [&str; 18] = [
    "web",
    "dual",
    "six",
    "node",
    "balanced",
    "peers",
    "none",
    "portless",
    "outside",
    "inside",
    "missing",
    "nobody",
    "number",
    "circle",
    "set",
    "unready",
    "published",
    "nosuch",
];

/// Services that are aliases of another name.
const ALIASES: [&str; 5] = ["outside", "inside", "missing", "nobody", "circle"];

const LABELS: [&str; 18] = [
    "named",
    "peer-0",
    "unready",
    "leaving",
    "published",
    "member-0",
    "member-1",
    "10-99-0-1",
    "10-99-0-2",
    "10-99-0-3",
    "10-99-0-7",
    "fd00-99--1",
    "fd00-99--0",
    "x",
    "_tcp",
    "_udp",
    "_sctp",
    "tcp",
];

const PORTS: [&str; 9] = [
    "_http._tcp",
    "_dns._udp",
    "_http._udp",
    "_six._sctp",
    "http.tcp",
    "x.y",
    "_x._tcp",
    "a.named",
    "a.b.c",
];

const OTHERS: [&str; 18] = [
    "",
    "svc.",
    "pod.",
    "dns.",
    "ns.dns.",
    "a.ns.dns.",
    "dns-version.",
    "nosuch.",
    "a.b.",
    "zoo.svc.",
    "empty.svc.",
    "nosuch.svc.",
    "a.nosuch.svc.",
    "zoo.pod.",
    "nosuch.pod.",
    "kubernetes.default.svc.",
    "_https._tcp.kubernetes.default.svc.",
    "kube-dns.kube-system.svc.",
];

/// Prefixes of the zone of external names.
const OUTSIDE: [&str; 8] = [
    "",
    "dns.",
    "ns1.dns.",
    "zoo.",
    "empty.",
    "nosuch.",
    "web.nosuch.",
    "a.b.web.zoo.",
];

const PODS: [&str; 6] = [
    "10-9-9-9",
    "member-0",
    "10-244-1-256",
    "fd00--1",
    "a.10-9-9-9",
    "x",
];

const REVERSE: [&str; 7] = [
    "in-addr.arpa.",
    "10.in-addr.arpa.",
    "1.96.10.in-addr.arpa.",
    "9.9.9.9.in-addr.arpa.",
    "x.1.96.10.in-addr.arpa.",
    "ip6.arpa.",
    "0.0.d.f.ip6.arpa.",
];

const TYPES: [&str; 10] = [
    "A", "AAAA", "SRV", "TXT", "CNAME", "PTR", "MX", "SOA", "NS", "HTTPS",
];

fn start_both(pods: &str, folder: &Path) -> [Process; 2] {
    let kubeconfig = kubeconfig();
    let corefile = format!(
        "cluster.local:5301 in-addr.arpa:5301 ip6.arpa:5301 world:5301 example:5301 {{
            kubernetes cluster.local in-addr.arpa ip6.arpa {{
                kubeconfig {kubeconfig}
                pods {pods}
            }}
            k8s_external world {{
                headless
            }}
            template IN ANY invalid.example {{
                rcode NXDOMAIN
                authority \"example. 60 IN SOA ns.example. h.example. 1 2 3 4 60\"
            }}
            template IN A example {{
                answer \"{{{{ .Name }}}} 60 IN A 192.0.2.2\"
            }}
            template IN ANY example {{
                rcode NOERROR
                authority \"example. 60 IN SOA ns.example. h.example. 1 2 3 4 60\"
            }}
        }}"
    );
    let ours = format!(
        "zone \"cluster.local\" \"in-addr.arpa\" \"ip6.arpa\" \"world\" {{ kubernetes {{ \
         kubeconfig \"{kubeconfig}\"; pods \"{pods}\"; external \"world\" headless=#true }} }}\n\
         zone \"example\" {{ forward \"{COREDNS}\" }}"
    );
    start(&corefile, &ours, folder)
}

/// Returns every name to query, and separately the reverse names of addresses in use.
fn names(addresses: &BTreeSet<IpAddr>) -> (BTreeSet<String>, BTreeSet<String>) {
    let reverse: BTreeSet<String> = addresses.iter().map(|&address| reverse(address)).collect();
    let mut names: BTreeSet<String> = REVERSE.map(String::from).into();
    for service in SERVICES {
        let service = format!("{service}.zoo.svc.cluster.local.");
        let below = LABELS
            .iter()
            .chain(&PORTS)
            .map(|labels| format!("{labels}.{service}"));
        names.extend(below.chain([service.clone()]));
        let dashed = addresses
            .iter()
            .map(|address| address.to_string().replace(['.', ':'], "-"));
        names.extend(dashed.map(|label| format!("{label}.{service}")));
    }
    for service in SERVICES {
        let fronts = ["", "_http._tcp.", "_x._tcp.", "x.", "peer-0.", "named."];
        names.extend(fronts.map(|front| format!("{front}{service}.zoo.world.")));
    }
    names.extend(OUTSIDE.map(|name| format!("{name}world.")));
    names.extend(OTHERS.map(|name| format!("{name}cluster.local.")));
    let dashed = addresses
        .iter()
        .map(|address| address.to_string().replace(['.', ':'], "-"));
    for pod in PODS.map(String::from).into_iter().chain(dashed) {
        names.extend(["zoo", "nosuch"].map(|namespace| format!("{pod}.{namespace}.pod.cluster.local.")));
    }
    names.extend(reverse.iter().cloned());
    (names, reverse)
}

fn reverse(address: IpAddr) -> String {
    match address {
        IpAddr::V4(four) => {
            let [a, b, c, d] = four.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(six) => {
            let digits: Vec<char> = format!("{:032x}", u128::from(six)).chars().rev().collect();
            let labels: String = digits.iter().map(|digit| format!("{digit}.")).collect();
            format!("{labels}ip6.arpa.")
        }
    }
}

/// The addresses of services, endpoints and pods of the zoo, and of the cluster's DNS.
fn addresses() -> BTreeSet<IpAddr> {
    let path =
        |kind: &str, path: &str| kubectl(&["-n", "zoo", "get", kind, "-o", &format!("jsonpath={path}")]);
    let all = [
        path("services", "{.items[*].spec.clusterIPs[*]}"),
        path("endpointslices", "{.items[*].endpoints[*].addresses[*]}"),
        path("pods", "{.items[*].status.podIPs[*].ip}"),
    ];
    let all = format!("10.96.0.10 {}", all.join(" "));
    all.split_whitespace()
        .filter_map(|address| address.parse().ok())
        .collect()
}

/// Returns why the two may differ: a row of the table in docs/reference/differences.md, in its order.
fn reason(
    name: &str,
    qtype: &str,
    theirs: &Said,
    ours: &Said,
    reverse: &BTreeSet<String>,
) -> Option<&'static str> {
    let below_zoo = name.strip_suffix(".zoo.svc.cluster.local.");
    let exists = [
        "svc.",
        "pod.",
        "zoo.svc.",
        "empty.svc.",
        "zoo.pod.",
        "",
        "ns.dns.",
    ]
    .map(|name| format!("{name}cluster.local."));
    let exists = exists.iter().any(|known| known == name) || ["in-addr.arpa.", "ip6.arpa."].contains(&name);
    let untyped = qtype == "TXT" && exists
        || reverse.contains(name)
        || ["dns-version.cluster.local.", "ns.dns.cluster.local."].contains(&name);
    let above = name == "dns.cluster.local."
        || below_zoo.is_some_and(|name| name.starts_with('_') && !name.contains("._"));
    let alias = below_zoo.is_some_and(|name| ALIASES.contains(&name));
    let pod = name.ends_with(".pod.cluster.local.");
    let outside = name.strip_suffix(".zoo.world.");
    let endpoint = outside.is_some_and(|front| front.contains('.') && !front.starts_with('_'));
    match () {
        () if untyped && theirs.denies("NXDOMAIN") && ours.denies("NOERROR") => {
            Some("a name exists for all types")
        }
        () if qtype == "SOA" && theirs.denies("NOERROR") && ours.denies("NXDOMAIN") => {
            Some("a name that does not exist has no SOA")
        }
        () if above && theirs.denies("NXDOMAIN") && ours.denies("NOERROR") => {
            Some("a name above another exists")
        }
        () if alias && ours.0 == "SERVFAIL" && theirs.denies("NOERROR") => Some("an alias of itself"),
        () if alias && ours.2[0].first().is_some_and(|line| line.contains(" CNAME ")) => {
            Some("an alias for all types")
        }
        () if pod && qtype == "SRV" && ours.denies("NOERROR") => Some("a pod has no ports"),
        () if qtype == "NS" && name.ends_with("arpa.") && exists => Some("who answers for addresses"),
        () if pod && theirs.denies("NXDOMAIN") && ours.0 == "NOERROR" => Some("another address of a pod"),
        () if endpoint && theirs.0 == "NOERROR" && ours.denies("NXDOMAIN") => {
            Some("an outside name of no endpoint")
        }
        () => None,
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn coredns_and_the_proxy_say_the_same() {
    let _zoo = apply_zoo();
    // As a load balancer's controller would set it.
    let status =
        r#"{"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.5"}, {"ip": "198.51.100.6"}]}}}"#;
    let patch = [
        "patch",
        "service",
        "balanced",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ];
    kubectl(&[&["-n", "zoo"], &patch[..]].concat());
    kubectl(&[
        "-n",
        "zoo",
        "wait",
        "--for=jsonpath={.status.podIP}",
        "pod/unready",
        "--timeout=60s",
    ]);
    until("endpoints of every pod", || {
        let of = |service: &str| {
            kubectl(&[
                "-n",
                "zoo",
                "get",
                "endpointslices",
                "-l",
                service,
                "-o",
                "jsonpath={..addresses}",
            ])
        };
        let both =
            ["set", "unready", "published"].map(|name| of(&format!("kubernetes.io/service-name={name}")));
        both.iter().all(|addresses| !addresses.is_empty())
    });
    let addresses = addresses();
    let (names, reverse) = names(&addresses);
    for pods in ["disabled", "insecure", "verified"] {
        let (wrong, reasons) = with(pods, &names, &reverse);
        println!("pods {pods}: {reasons:#?}");
        assert!(wrong.is_empty(), "pods {pods}:\n{}", wrong.join("\n"));
    }
}

/// Compares both in this mode of `pods`.
fn with(
    pods: &str,
    names: &BTreeSet<String>,
    reverse: &BTreeSet<String>,
) -> (Vec<String>, BTreeMap<&'static str, usize>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut servers = start_both(pods, folder.path());
    let (names, reverse) = (names.clone(), reverse.clone());
    let compared = node("node").within(move || {
        await_ready("_http._tcp.set.zoo.svc.cluster.local.", "SRV");
        compare(&names, &TYPES, |name, qtype, [theirs, ours]| {
            reason(name, qtype, theirs, ours, &reverse)
        })
    });
    let compared = compared.join().expect("a client");
    servers.iter_mut().for_each(Process::stop);
    compared
}
