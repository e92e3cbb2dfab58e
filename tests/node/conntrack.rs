//! Queries leave no trace in connection tracking.

use super::load::{Answer, Protocol, ask};
use super::world::{KubeProxy, World, place};

#[test]
fn ten_thousand_queries_leave_no_entry() {
    let Some(_place) = place(&["conntrack"]) else {
        return;
    };
    let world = World::new(KubeProxy::Iptables);
    let config = "listen \"169.254.20.10\" \"fd00:96::10\"\nzone \".\" { cache; forward \"10.244.8.2:5301\" }\n\
        node { interface \"nodelocaldns\"; iptables; mode \"bypass\" }";
    // Turns tracking on; the pod's tracked queries show that entries would be seen.
    world.script("iptables -w -A FORWARD -m conntrack --ctstate NEW -j ACCEPT; ip6tables -w -A FORWARD -m conntrack --ctstate NEW -j ACCEPT");
    let _proxy = world.start(config);
    for server in ["169.254.20.10:53", "[fd00:96::10]:53", "10.96.0.10:53"] {
        let server = server.parse().expect("an address");
        let clients: Vec<_> = (0..4)
            .map(|_| {
                world.within("pod", move || {
                    (0..1250)
                        .filter(|_| ask(server, Protocol::Udp) != Answer::Nobody)
                        .count()
                })
            })
            .collect();
        let answered: usize = clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .sum();
        assert_eq!(answered, 5000, "{server}");
    }
    let entries = |family: &str, address: &str| {
        world
            .script(&format!(
                "conntrack -L -f {family} -p udp -d {address} 2>/dev/null | wc -l"
            ))
            .trim()
            .parse::<u32>()
    };
    assert_eq!(entries("ipv4", "169.254.20.10"), Ok(0));
    assert_eq!(entries("ipv6", "fd00:96::10"), Ok(0));
    assert!(
        entries("ipv4", "10.96.0.10").is_ok_and(|count| count > 1000),
        "what we do not serve is tracked"
    );
}
