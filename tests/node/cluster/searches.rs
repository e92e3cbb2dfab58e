//! Compares `autopath` in CoreDNS and the proxy, which answer a pod's whole search in one reply, for a pod
//! and for a client that is not one: the other node's address is shared by pods of `kube-system`.

use std::collections::BTreeSet;

use harness::process::Process;

use super::beside::{Said, await_ready, compare, kubeconfig, start};
use super::{await_started, client, node};

const TYPES: [&str; 7] = ["A", "AAAA", "SRV", "TXT", "MX", "SOA", "HTTPS"];

/// The names that a pod of the namespace `default` looks up.
const SOUGHT: [&str; 12] = [
    "kubernetes",
    "nosuch",
    "kube-dns.kube-system",
    "nosuch.kube-system",
    "kube-dns.kube-system.svc",
    "kube-dns.kube-system.svc.cluster.local",
    "_https._tcp.kubernetes",
    "www.example",
    "deep.down.www.example",
    "alias.example",
    "no.invalid.example",
    "nothing.example",
];

/// The domains of a pod's search, and one of another namespace's.
const SEARCHED: [&str; 4] = [
    "default.svc.cluster.local",
    "kube-system.svc.cluster.local",
    "svc.cluster.local",
    "cluster.local",
];

/// Returns why the two may differ: a row of the table in docs/reference/differences.md.
fn reason(name: &str, qtype: &str, [theirs, ours]: &[Said; 2]) -> Option<&'static str> {
    let own = name.ends_with(".default.svc.cluster.local.");
    let Said(rcode, _, [answers, authority, _]) = ours;
    let alias = format!("{name} ");
    let is_alias = answers
        .iter()
        .any(|line| line.starts_with(&alias) && line.contains(" CNAME "));
    match () {
        () if own && qtype == "SOA" && theirs.denies("NOERROR") && is_alias => {
            Some("a search for an SOA record goes on")
        }
        () if qtype == "SOA" && theirs.denies("NOERROR") && ours.denies("NXDOMAIN") => {
            Some("a name that does not exist has no SOA")
        }
        () if name.ends_with(".kube-system.svc.cluster.local.") && ours.denies("NXDOMAIN") => {
            Some("a search of those on their node's network")
        }
        () if own && theirs.denies(rcode) && is_alias && authority.len() == 1 => {
            Some("an alias before a denial")
        }
        () => None,
    }
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn coredns_and_the_proxy_search_alike() {
    await_started();
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = kubeconfig();
    let corefile = format!(
        "example:5304 {{
            template IN ANY invalid.example {{
                rcode NXDOMAIN
                authority \"example. 60 IN SOA ns.example. h.example. 1 2 3 4 60\"
            }}
            template IN ANY alias.example {{
                answer \"alias.example. 60 IN CNAME www.example.\"
                answer \"www.example. 60 IN A 192.0.2.2\"
            }}
            template IN A example {{
                match \"www[.]example[.]$\"
                answer \"{{{{ .Name }}}} 60 IN A 192.0.2.2\"
                fallthrough
            }}
            template IN ANY example {{
                rcode NOERROR
                authority \"example. 60 IN SOA ns.example. h.example. 1 2 3 4 60\"
            }}
        }}
        .:5304 {{
            template IN ANY . {{
                rcode NXDOMAIN
                authority \". 60 IN SOA ns. h. 1 2 3 4 60\"
            }}
        }}
        .:5301 {{
            autopath @kubernetes
            kubernetes cluster.local {{
                kubeconfig {kubeconfig}
                pods verified
            }}
            forward . 10.200.0.2:5304
        }}"
    );
    let zones = format!(
        "zone \"cluster.local\" {{ kubernetes {{ \
         kubeconfig \"{kubeconfig}\"; pods \"verified\"; autopath \"/etc/resolv.conf\" }} }}\n\
         zone \".\" {{ forward \"10.200.0.2:5304\" }}"
    );
    let mut servers = start(&corefile, &zones, folder.path());
    let sought = |name: &&str| SEARCHED.map(|domain| format!("{name}.{domain}."));
    let names: BTreeSet<String> = SOUGHT.iter().flat_map(sought).collect();
    let ready = || await_ready("kubernetes.default.svc.cluster.local.", "A");
    node("node").within(ready).join().expect("a client");
    for (who, network) in [("a pod", client()), ("a node", node("other"))] {
        let names = names.clone();
        let compared = network.within(move || compare(&names, &TYPES, reason));
        let (wrong, reasons) = compared.join().expect("a client");
        println!("{who}: {reasons:#?}");
        assert!(wrong.is_empty(), "{who}:\n{}", wrong.join("\n"));
    }
    servers.iter_mut().for_each(Process::stop);
}
