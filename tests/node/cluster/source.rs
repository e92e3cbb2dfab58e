//! Packets leave a node with an address of that node, though kube-proxy masquerades nothing.

use std::net::SocketAddr;

use harness::until;

use super::{Answer, Protocol, ask, await_started, node, script};

/// Returns who answers a process on a node at the cluster's DNS address.
fn asked(name: &str, server: &str, protocol: Protocol) -> Answer {
    let server = SocketAddr::new(server.parse().expect("an address"), 53);
    let asked = node(name).within(move || ask(server, protocol));
    asked.join().expect("a client")
}

#[test]
#[ignore = "needs Kubernetes nodes: cargo xtask test cluster"]
fn clients_on_both_nodes_get_the_cluster_without_masquerade() {
    await_started();
    let family = [("iptables", "10.96.0.10"), ("ip6tables", "fd00:96::10")];
    for name in ["node", "other"] {
        for (_, server) in family {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let answer = asked(name, server, protocol);
                assert_eq!(answer, Answer::Cluster, "{name} asks {server} over {protocol:?}");
            }
        }
    }
    // Without our rules, the other node does not know where to send the reply. The next check restores them.
    for (iptables, server) in family {
        let rules = format!("{iptables} -w -t nat -S POSTROUTING | grep dnsweir | sed 's/^-A/-D/'");
        script(&format!(
            "{rules} | while read -r rule; do eval {iptables} -w -t nat $rule; done"
        ));
        let answers = || asked("node", server, Protocol::Udp);
        until("the query to get lost", || answers() == Answer::Nobody);
        until("the rules to be back", || answers() == Answer::Cluster);
    }
}
