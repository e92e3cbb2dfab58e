//! Whether a pod would get an answer: sends queries that arrive as a pod's do.
//!
//! Packets from the node's own processes leave through OUTPUT and arrive on the loopback link. A pod's arrive
//! through PREROUTING, on a link of their own, from an address that is not the node's. So a pair of links
//! imitates a pod ([`pair`]): a packet written to one end ([`packet`]) arrives at the other, and the kernel
//! treats it like any packet. This covers the node's rules for such queries, but not what is attached to a
//! real pod's link.
//!
//! The question has a name that only dnsweir answers, which distinguishes its answer from another server's.

mod packet;
pub(super) mod pair;
mod record;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::{Config, Node};
use crate::dns::edns::ExtendedError;
use crate::dns::name::Name;
use crate::dns::records::Answer;
use crate::dns::{CLASS_IN, build, flag, rcode, rtype, special};
use packet::PacketSocket;
pub use record::{Record, Verdict};

/// The question. The special-use zone above it is answered here (RFC 9462 section 6.4).
const NAME: &str = "self-test.resolver.arpa";

/// Zones that answer the question if they are configured.
const NAMES: [&str; 2] = [NAME, "resolver.arpa"];

/// Attempts before a listener counts as silent: its first heartbeat may be late, or a worker may hang.
const ROUNDS: usize = 20;

/// How long to wait for answers before asking the silent listeners again.
const ROUND: Duration = Duration::from_millis(100);

/// How soon a failed test is repeated.
const AGAIN: Duration = Duration::from_secs(1);

/// The self-test in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfTest {
    /// The listeners to ask.
    pub listeners: Vec<SocketAddr>,
    /// The source addresses, one per family.
    pub sources: Vec<IpAddr>,
}

impl SelfTest {
    /// The self-test of these listeners. `None` if it is off or if a configured zone answers the name;
    /// listeners that do not reply to unknown clients are left out.
    pub fn of(config: &Config, node: &Node, listeners: &[SocketAddr]) -> Option<SelfTest> {
        let zones = config.zones.iter().flat_map(|zone| &zone.names);
        let mut zones = zones.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        if zones.any(|name| NAMES.contains(&name.as_str())) {
            return None;
        }
        let is_silent = |listener: &SocketAddr| {
            let own = config.listen.clients.iter().find(|(of, _)| of == listener);
            let clients = own.map(|(_, clients)| clients).or(config.clients.as_ref());
            clients.is_some_and(|clients| clients.silent)
        };
        let source = |listener: &SocketAddr| {
            let mut sources = node.self_test.iter();
            sources
                .find(|source| source.is_ipv4() == listener.is_ipv4())
                .copied()
        };
        let asked = |listener: &&SocketAddr| source(listener).is_some() && !is_silent(listener);
        let listeners: Vec<SocketAddr> = listeners.iter().filter(asked).copied().collect();
        let is_used = |source: &&IpAddr| listeners.iter().any(|it| it.is_ipv4() == source.is_ipv4());
        let sources: Vec<IpAddr> = node.self_test.iter().filter(is_used).copied().collect();
        (!listeners.is_empty()).then_some(SelfTest { listeners, sources })
    }

    /// The source address for a listener.
    fn source(&self, listener: SocketAddr) -> Option<IpAddr> {
        let mut sources = self.sources.iter().copied();
        sources.find(|source| source.is_ipv4() == listener.is_ipv4())
    }
}

/// As `node plan` prints it.
impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<String> = self.sources.iter().map(ToString::to_string).collect();
        write!(
            f,
            "links {} and {}: self-test from {}",
            pair::NODE_END,
            pair::POD_END,
            sources.join(" and ")
        )
    }
}

/// Asks every listener until all have answered, for two seconds at most.
///
/// # Errors
/// If packets cannot be sent: the pair of links is missing, or the process lacks NET_RAW.
pub async fn run(test: &SelfTest) -> io::Result<Vec<(SocketAddr, Verdict)>> {
    let socket = PacketSocket::open(pair::POD_END)?;
    let unanswered = |&listener| (listener, Verdict::Unanswered);
    let mut verdicts: Vec<_> = test.listeners.iter().map(unanswered).collect();
    // Late answers to earlier rounds count as well: a busy node is slow.
    let mut asked: Vec<Asked> = Vec::new();
    for _ in 0..ROUNDS {
        for (listener, _) in verdicts
            .iter()
            .filter(|(_, verdict)| *verdict != Verdict::Answered)
        {
            if let Some(source) = test.source(*listener) {
                let query = Asked::new(*listener, source);
                socket
                    .send(&packet::write(query.from, query.to, &query.message))
                    .await?;
                asked.push(query);
            }
        }
        let end = Instant::now() + ROUND;
        while verdicts.iter().any(|(_, verdict)| *verdict != Verdict::Answered) {
            let Ok(frame) = timeout_at(end, socket.receive()).await else {
                break;
            };
            let frame = frame?;
            let Some((query, verdict)) = asked.iter().find_map(|query| Some((query, query.judge(&frame)?)))
            else {
                continue;
            };
            for known in verdicts.iter_mut().filter(|(listener, _)| *listener == query.to) {
                if known.1 != Verdict::Answered {
                    known.1 = verdict;
                }
            }
        }
        if verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Answered) {
            break;
        }
    }
    Ok(verdicts)
}

/// A query that was sent.
struct Asked {
    from: SocketAddr,
    to: SocketAddr,
    message: Vec<u8>,
}

impl Asked {
    fn new(to: SocketAddr, source: IpAddr) -> Asked {
        let name = Name::parse(NAME).unwrap_or(Name::ROOT);
        let mut message = build::upstream_query(name.as_bytes(), rtype::A, CLASS_IN, flag::RD, false, None);
        message[..2].copy_from_slice(&rand::random::<[u8; 2]>());
        Asked {
            // Above the default ephemeral ports, so that it does not collide with the node's connections.
            from: SocketAddr::new(source, rand::random_range(61_000..=65_535)),
            to,
            message,
        }
    }

    /// The verdict of a packet on this query, if it is a reply to it.
    fn judge(&self, frame: &[u8]) -> Option<Verdict> {
        let reply = packet::read(frame, self.to, self.from)?;
        if reply.get(..2)? != &self.message[..2] {
            return None;
        }
        Some(if is_ours(reply) {
            Verdict::Answered
        } else {
            Verdict::Diverted
        })
    }
}

/// Returns whether a reply is dnsweir's answer for the name, or its refusal to a client that may not ask.
fn is_ours(reply: &[u8]) -> bool {
    let Ok(answer) = Answer::read(reply.to_vec()) else {
        return false;
    };
    let has_name = answer
        .message
        .windows(special::NOBODY.len())
        .any(|octets| octets == special::NOBODY);
    let refused = (rcode::REFUSED, Some(ExtendedError::Prohibited.code()));
    has_name || (answer.rcode, answer.error) == refused
}

/// The task that repeats the self-test of a running proxy.
pub(super) struct Tester {
    wanted: watch::Sender<Wanted>,
    done: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

#[derive(Default, Clone)]
struct Wanted {
    /// Counts the orders, so that a caller knows when its own is done.
    number: u64,
    test: Option<SelfTest>,
    every: Duration,
}

impl Drop for Tester {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tester {
    /// Starts with no test.
    pub fn start(record: Arc<Record>) -> Tester {
        let (wanted, mut orders) = watch::channel(Wanted::default());
        let (tell, done) = watch::channel(0);
        let task = tokio::spawn(async move {
            loop {
                let Wanted { number, test, every } = orders.borrow_and_update().clone();
                let outcome = match &test {
                    Some(test) => run(test).await,
                    None => Ok(Vec::new()),
                };
                let is_well = record.keep(outcome);
                let next = Instant::now() + if is_well { every } else { AGAIN.min(every) };
                tell.send_replace(number);
                tokio::select! {
                    changed = orders.changed() => if changed.is_err() { return },
                    () = sleep_until(next), if test.is_some() => {}
                }
            }
        });
        Tester { wanted, done, task }
    }

    /// Replaces the test and repeats it at this interval. Returns after the first run.
    pub async fn test(&self, test: Option<SelfTest>, every: Duration) {
        self.wanted.send_modify(|wanted| {
            *wanted = Wanted {
                number: wanted.number + 1,
                test,
                every,
            };
        });
        let number = self.wanted.borrow().number;
        let _ = self.done.clone().wait_for(|done| *done >= number).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn test(text: &str) -> Option<SelfTest> {
        let zone = "zone \".\" { forward \"192.0.2.1\" }";
        let config =
            config::parse("test", &format!("{text}\n{zone}"), std::path::Path::new("/"), &[]).unwrap();
        SelfTest::of(&config, config.node.as_ref().unwrap(), &config.listen.addresses)
    }

    #[test]
    fn listeners_are_asked_from_their_family() {
        let both =
            test("listen \"10.96.0.10\" \"fd00::10\"\nnode { iptables; self-test \"10.244.255.254\" }")
                .unwrap();
        assert_eq!(both.listeners.len(), 2);
        assert_eq!(
            both.source(both.listeners[0]),
            Some("10.244.255.254".parse().unwrap())
        );
        assert_eq!(
            both.source(both.listeners[1]),
            Some("100:0:0:1::8".parse().unwrap())
        );
        let four = test("listen \"10.96.0.10\"\nnode { iptables }").unwrap();
        assert_eq!(four.sources, ["192.0.0.8".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn where_it_would_say_nothing_there_is_none() {
        assert_eq!(
            test("listen \"10.96.0.10\"\nnode { iptables; self-test #false }"),
            None
        );
        let taken =
            "listen \"10.96.0.10\"\nnode { iptables }\nzone \"resolver.arpa\" { forward \"192.0.2.1\" }";
        assert_eq!(test(taken), None);
        let silent = "listen \"10.96.0.10\"\nnode { iptables }\nclients { allow \"192.0.2.0/24\"; silent }";
        assert_eq!(test(silent), None);
    }

    #[test]
    fn replies_of_others_are_told_from_ours() {
        let asked = Asked::new("10.96.0.10:53".parse().unwrap(), "192.0.0.8".parse().unwrap());
        let question = &asked.message[12..asked.message.len() - 11];
        let reply = |message: Vec<u8>| {
            let message = [&asked.message[..2], &message[2..]].concat();
            asked.judge(&packet::write(asked.to, asked.from, &message))
        };
        let ours = special::Special::Bare("resolver.arpa.").answer(question);
        assert_eq!(reply(ours.clone()), Some(Verdict::Answered));
        assert_eq!(
            reply(build::empty(question, rcode::NXDOMAIN)),
            Some(Verdict::Diverted)
        );
        assert_eq!(reply(vec![0; 3]), Some(Verdict::Diverted), "no message at all");
        let other = Asked::new(asked.to, asked.from.ip());
        let message = [&other.message[..2], &ours[2..]].concat();
        assert_eq!(
            asked.judge(&packet::write(other.to, other.from, &message)),
            None,
            "another query's"
        );
    }
}
