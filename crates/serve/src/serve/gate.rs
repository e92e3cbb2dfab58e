//! Access control and rate limits, applied before a query is parsed or as soon as its zone is known.
//!
//! Where every client may ask without a limit, there is no gate.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use dnsweir_os::clock::Uptime;
use parking_lot::RwLock;

use crate::config::{self, Config, Network, Rate};
use crate::dns::Transport;

use super::asked::Client;
use super::interfaces;
use super::networks::NetworkTable;
use super::rates::RateTable;

/// The gate of a listener or a zone.
#[derive(Debug)]
pub struct Gate {
    steps: NetworkTable,
    /// Whether clients outside all networks in `steps` may ask.
    others: bool,
    /// Whether those of them in one of the node's own networks may ask.
    node: bool,
    silent: bool,
    queries: Option<Rate>,
    responses: Option<Rate>,
}

/// Why a query is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// `allow` and `refuse`, or their defaults.
    Client,
    /// `queries`
    Queries,
    /// `responses`: the answer is not sent.
    Responses,
    /// `responses`: a truncated answer is sent instead.
    Slip,
}

/// How a rejected query is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// REFUSED with an extended error.
    Refused,
    /// An empty reply with TC: a real client can retry over TCP.
    Truncated,
    /// No reply.
    Silence,
}

/// The rejection of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The reply.
    pub reply: Reply,
}

impl Reason {
    /// All reasons, in the order of [`ZoneCounters::refused`](super::counters::ZoneCounters::refused).
    pub const ALL: [(Reason, &str); 4] = [
        (Reason::Client, "client"),
        (Reason::Queries, "queries"),
        (Reason::Responses, "responses"),
        (Reason::Slip, "slip"),
    ];

    /// The explanation for operators.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Client => "turned away: `clients` does not let the client ask",
            Reason::Queries => "turned away: the client asks more often than `queries` allows",
            Reason::Responses | Reason::Slip => {
                "turned away: its network is sent more than `responses` allows"
            }
        }
    }
}

/// State shared by the gates of all workers and generations.
#[derive(Default)]
pub struct Ledger {
    queries: OnceLock<RateTable>,
    responses: OnceLock<RateTable>,
    own: RwLock<Own>,
}

/// The node's networks, cached.
#[derive(Default)]
struct Own {
    steps: NetworkTable,
    /// The end of their validity.
    until: Uptime,
}

/// How long the node's networks are cached. They are read again when a client asks that nothing else allows.
const KNOWN: Duration = Duration::from_secs(10);

impl Ledger {
    fn is_own(&self, client: IpAddr, now: Uptime) -> bool {
        let is = |own: &Own| own.steps.find(client) == Some(true);
        {
            let own = self.own.read();
            if now < own.until {
                return is(&own);
            }
        }
        let mut own = self.own.write();
        if now >= own.until {
            let networks: Vec<_> = interfaces::networks()
                .into_iter()
                .map(|network| (network, true))
                .collect();
            *own = Own {
                steps: NetworkTable::new(&networks),
                until: now.plus(KNOWN),
            };
        }
        is(&own)
    }
}

impl Gate {
    /// The gate of a listener; `None` if it needs none.
    pub(crate) fn of_listener(config: &Config, address: SocketAddr) -> Option<Gate> {
        let own = config.listen.clients.iter().find(|(of, _)| *of == address);
        let clients = own.map(|(_, clients)| clients).or(config.clients.as_ref());
        // An address that is not reachable from far away is open to every client that reaches it.
        let ip = address.ip();
        let private = Network::is_private(ip);
        let ours = config.node.as_ref().and_then(|node| node.interface.as_deref());
        let kept = !ip.is_unspecified() && ours.is_some_and(|link| !interfaces::is_on_another(ip, link));
        let limits = config.clients.as_ref();
        let gate = Gate {
            queries: limits.and_then(|limits| limits.queries),
            responses: limits.and_then(|limits| limits.responses),
            ..Gate::of(clients, private || kept)
        };
        let open = gate.steps == NetworkTable::default() && gate.others;
        (!open || gate.queries.is_some() || gate.responses.is_some()).then_some(gate)
    }

    /// The gate of a zone, for queries that have passed a listener's gate.
    pub fn of_zone(clients: &config::Clients) -> Gate {
        Gate::of(Some(clients), true)
    }

    /// The gate for the configured networks. Unless `allow` lists the clients, all others may ask
    /// (`everybody`), or those nearby.
    fn of(clients: Option<&config::Clients>, everybody: bool) -> Gate {
        let written = clients.map_or(&[][..], |clients| &clients.networks);
        let only_these = clients.is_some_and(|clients| clients.only_these);
        let near = !only_these && !everybody;
        let mut networks = written.to_vec();
        if near {
            let unwritten = |network: &Network| !written.iter().any(|(known, _)| known == network);
            networks.extend(
                Network::PRIVATE
                    .into_iter()
                    .filter(unwritten)
                    .map(|network| (network, true)),
            );
        }
        Gate {
            steps: NetworkTable::new(&networks),
            others: !only_these && everybody,
            node: near || clients.is_some_and(|clients| clients.node),
            silent: clients.is_some_and(|clients| clients.silent),
            queries: None,
            responses: None,
        }
    }

    /// Whether a query is rejected, and how.
    pub fn refusal(&self, ledger: &Ledger, client: &Client) -> Option<Refusal> {
        let (address, now) = (client.address.ip(), client.received);
        let reply = if self.silent {
            Reply::Silence
        } else {
            Reply::Refused
        };
        let allowed = match self.steps.find(address) {
            Some(allowed) => allowed,
            None => self.others || self.node && ledger.is_own(address, now),
        };
        let refused = |reason| Some(Refusal { reason, reply });
        if !allowed {
            return refused(Reason::Client);
        }
        if let Some(rate) = &self.queries {
            let table = ledger.queries.get_or_init(RateTable::default);
            if !table.take(address, rate, now) {
                return refused(Reason::Queries);
            }
        }
        // Over a connection, the address is not forged: the answer reaches only its client.
        if let Some(rate) = &self.responses
            && client.transport == Transport::Udp
        {
            let table = ledger.responses.get_or_init(RateTable::default);
            if !table.take(address, rate, now) {
                let slips = table.slips(rate.slip);
                return Some(Refusal {
                    reason: if slips { Reason::Slip } else { Reason::Responses },
                    reply: if slips { Reply::Truncated } else { Reply::Silence },
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(words: &str) -> Config {
        let text = format!("{words}\nzone \".\" {{ forward \"192.0.2.53\" }}");
        config::parse("test.kdl", &text, Path::new("/"), &[]).unwrap_or_else(|report| panic!("{report}"))
    }

    fn gate(listen: &str, more: &str) -> Option<Gate> {
        let config = config(&format!("listen \"{listen}\"\n{more}"));
        Gate::of_listener(&config, config.listen.addresses[0])
    }

    fn client(client: &str, transport: Transport) -> Client {
        Client {
            address: SocketAddr::new(client.parse().unwrap(), 4000),
            server: 0,
            transport,
            received: Uptime::from_micros(1),
            limit: 512,
            keepalive: None,
        }
    }

    /// The ledger of a node without networks.
    fn ledger() -> Ledger {
        let ledger = Ledger::default();
        ledger.own.write().until = Uptime::from_micros(u64::MAX);
        ledger
    }

    fn passes(gate: &Gate, address: &str) -> bool {
        gate.refusal(&ledger(), &client(address, Transport::Udp))
            .is_none()
    }

    const NEAR: [&str; 10] = [
        "127.0.0.1",
        "10.1.2.3",
        "172.31.0.1",
        "192.168.7.7",
        "100.127.0.1",
        "169.254.20.10",
        "::1",
        "fd00::1",
        "fcff::1",
        "fe80::1",
    ];

    const FAR: [&str; 7] = [
        "192.0.2.1",
        "172.32.0.1",
        "100.128.0.1",
        "11.0.0.1",
        "2001:db8::1",
        "fec0::1",
        "::ffff:10.0.0.1",
    ];

    #[test]
    fn addresses_that_anybody_can_reach_answer_those_near() {
        for listen in ["0.0.0.0", "::", "192.0.2.54", "[2001:db8::53]:53"] {
            let gate = gate(listen, "").unwrap();
            assert!(gate.node, "{listen}");
            assert!(NEAR.iter().all(|client| passes(&gate, client)), "{listen}");
            assert!(!FAR.iter().any(|client| passes(&gate, client)), "{listen}");
        }
    }

    #[test]
    fn addresses_that_not_everybody_can_reach_have_no_gate() {
        for listen in ["127.0.0.1", "::1", "10.96.0.10", "169.254.20.10", "fd00::10"] {
            assert!(gate(listen, "").is_none(), "{listen}");
        }
        let kept = "node { interface \"dns\" }";
        assert!(gate("192.0.2.54", kept).is_none());
        assert!(
            gate("0.0.0.0", "node { iptables }").is_some(),
            "the node keeps no single address"
        );
        assert!(
            gate("192.0.2.54", "node { iptables }").is_some(),
            "no link has it"
        );
    }

    #[test]
    fn what_is_written_takes_the_place_of_what_is_not() {
        let gate = gate(
            "0.0.0.0",
            "clients { allow \"192.0.2.0/24\"; refuse \"192.0.2.7\" }",
        )
        .unwrap();
        for (client, expected) in [("192.0.2.1", true), ("192.0.2.7", false), ("127.0.0.1", false)] {
            assert_eq!(passes(&gate, client), expected, "{client}");
        }
        assert!(!gate.node);
        assert!(
            self::gate("0.0.0.0", "clients { allow \"any\" }")
                .is_some_and(|gate| FAR.iter().all(|c| passes(&gate, c)))
        );
    }

    #[test]
    fn what_is_refused_is_taken_from_what_is_not_written() {
        let clients = "clients { refuse \"10.0.0.0/8\" }";
        for (listen, far) in [("0.0.0.0", false), ("10.96.0.10", true)] {
            let gate = gate(listen, clients).unwrap();
            assert!(!passes(&gate, "10.1.2.3") && passes(&gate, "192.168.0.1"));
            assert_eq!(passes(&gate, "192.0.2.1"), far, "{listen}");
        }
    }

    #[test]
    fn a_listener_may_have_clients_of_its_own() {
        let listen =
            "listen \"10.0.0.1\" \"10.0.0.2\" { clients \"10.0.0.2\" { allow \"192.0.2.1\"; silent } }";
        let config = config(&format!("{listen}\nclients {{ allow \"any\"; queries 5 }}"));
        let gates = config
            .listen
            .addresses
            .iter()
            .map(|&address| Gate::of_listener(&config, address).unwrap());
        let [file, own] = &gates.collect::<Vec<_>>()[..] else {
            panic!()
        };
        assert!(passes(file, "192.0.2.2") && !passes(own, "192.0.2.2") && passes(own, "192.0.2.1"));
        assert!(!file.silent && own.silent && file.queries == own.queries && own.queries.is_some());
    }

    #[test]
    fn rates_are_kept_and_tcp_is_not_slipped() {
        let gate = gate("127.0.0.1", "clients { queries 6; responses 4 slip=2 }").unwrap();
        let ledger = Ledger::default();
        let met = |address: &str, transport| gate.refusal(&ledger, &client(address, transport));
        let udp: Vec<_> = (0..8).map(|_| met("127.0.0.1", Transport::Udp)).collect();
        assert_eq!(udp[..4], [None; 4]);
        let (reason, reply) = (Reason::Responses, Reply::Silence);
        assert_eq!(udp[4], Some(Refusal { reason, reply }));
        let (reason, reply) = (Reason::Slip, Reply::Truncated);
        assert_eq!(udp[5], Some(Refusal { reason, reply }));
        let (reason, reply) = (Reason::Queries, Reply::Refused);
        assert_eq!(udp[6..], [Some(Refusal { reason, reply }); 2]);
        // Another client in the same network.
        let tcp: Vec<_> = (0..6).map(|_| met("127.0.0.2", Transport::Tcp)).collect();
        assert_eq!(tcp, [None; 6]);
        assert_eq!(
            met("127.0.0.3", Transport::Udp).map(|refusal| refusal.reason),
            Some(Reason::Responses)
        );
    }

    #[test]
    fn the_nodes_own_networks_are_looked_up() {
        let ledger = Ledger::default();
        assert!(ledger.is_own("127.0.0.1".parse().unwrap(), Uptime::START));
        // No link has an address of class E.
        assert!(!ledger.is_own("240.0.0.1".parse().unwrap(), Uptime::from_micros(1)));
        assert_eq!(
            ledger.own.read().until,
            Uptime::START.plus(KNOWN),
            "once in a while"
        );
    }
}
