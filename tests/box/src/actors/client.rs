//! A client that queries as the stub resolvers of C libraries do, and checks every answer.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::message::{self, A, AGE, NXDOMAIN, SERVFAIL, SPANS, SRV};
use crate::net::{Event, Net, News, Number};
use crate::report::Report;
use crate::scenario::{Role, Scenario};
use crate::seed::Random;

const SECOND: u64 = 1_000_000_000;

/// The longest that an answer may take, whatever upstreams do: the `deadline` of a `forward`, and time for a
/// busy moment.
const IN_TIME: u64 = 8 * SECOND;

/// The longest that an answer of the proxy's own may take (docs/limits.md): a worker's time for it and those
/// before it.
const AT_ONCE: u64 = SECOND / 10;

/// The name that [`Manner::Own`] asks for. Where a configuration forwards it, upstreams have no such record.
const OWN: &str = "srv.own.test";

/// For how long after an answer, or after it was due, a second one is detected.
const REMEMBERED: u64 = 30 * SECOND;

/// The greatest age of an answer in seconds while upstreams are well: its TTL, the span that its address
/// encodes, and the time under way.
const FRESH: u64 = 5 + AGE + 5;

/// After how many seconds of fine weather that applies.
const RECOVERED: u64 = 20 * SECOND;

/// The longest that a query is under way.
const ARRIVES: u64 = SECOND / 1000;

/// For how long after a wake-up an answer may still arrive that an upstream sent before the sleep.
const AWAKE: u64 = SECOND / 5;

/// How many names are asked for.
const NAMES: u64 = 60;

/// How a client queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Twice over UDP, five seconds apart.
    Glibc,
    /// Three times over UDP, 2.5 seconds apart.
    Musl,
    /// Twice over UDP, five seconds apart; over TCP if the answer is truncated, which none here is.
    Go,
    /// Over TCP, up to three queries at a time.
    Tcp,
    /// Twice over UDP, for the largest RRset of the configuration's own zone.
    Own,
    /// Random bytes, abandoned connections, names on which filters fail.
    Hostile,
}

/// A pending query.
struct Asked {
    name: String,
    at: u64,
    answers: u32,
    /// The number of this attempt.
    attempts: u32,
    /// Whether it was sent over TCP.
    stream: bool,
}

/// A client.
pub struct Client {
    actor: usize,
    manner: Manner,
    ip: IpAddr,
    server: SocketAddr,
    every: u64,
    from: u64,
    until: u64,
    up: u64,
    down: u64,
    /// From when and until when answers must be fresh.
    fine: (u64, u64),
    port: u16,
    /// Pending queries by port and ID.
    asked: BTreeMap<(u16, u16), Asked>,
    /// The local port and the bytes received of each connection.
    connections: BTreeMap<Number, (u16, Vec<u8>)>,
    /// Queries to retry, by timer.
    again: BTreeMap<u64, (u16, u16)>,
    next: u64,
    chance: Random,
}

impl Client {
    pub fn new(actor: usize, role: &Role, scenario: &Scenario, chance: Random) -> Client {
        let Role::Client {
            manner,
            ip,
            server,
            every,
            from,
            until,
        } = role
        else {
            unreachable!("a client is made of a client's role")
        };
        Client {
            actor,
            manner: match manner.as_str() {
                "glibc" => Manner::Glibc,
                "musl" => Manner::Musl,
                "go" => Manner::Go,
                "tcp" => Manner::Tcp,
                "own" => Manner::Own,
                _ => Manner::Hostile,
            },
            ip: *ip,
            server: *server,
            every: *every,
            from: *from,
            until: *until,
            up: scenario.up,
            down: scenario.down,
            fine: (scenario.well.0 + RECOVERED, scenario.well.1),
            port: 1024,
            asked: BTreeMap::new(),
            connections: BTreeMap::new(),
            again: BTreeMap::new(),
            next: 1,
            chance,
        }
    }

    pub fn told(&mut self, news: News, net: &mut Net, report: &mut Report) {
        match news {
            News::Wakes { why: 0, .. } => self.ask(net, report),
            News::Wakes { why, .. } => self.ask_again(why, net, report),
            News::Datagram { datagram, .. } => {
                self.answered(datagram.to.port(), &datagram.octets, net, report)
            }
            News::Connected { socket, .. } => self.speak(socket, net, report),
            News::Came { socket, octets, .. } => {
                let Some((port, buffer)) = self.connections.get_mut(&socket) else {
                    return;
                };
                let port = *port;
                buffer.extend(octets);
                while let Some((_, buffer)) = self.connections.get_mut(&socket)
                    && let Some(message) = message::unframed(buffer)
                {
                    self.answered(port, &message, net, report);
                }
                let waits = self
                    .asked
                    .range((port, 0)..=(port, u16::MAX))
                    .any(|(_, asked)| asked.answers == 0);
                if !waits {
                    self.hang_up(socket, net);
                }
            }
            News::Ended { socket, .. } => self.hang_up(socket, net),
            News::Accepted { .. } => {}
        }
    }

    fn hang_up(&mut self, socket: Number, net: &mut Net) {
        if self.connections.remove(&socket).is_some() {
            net.close(socket);
        }
    }

    fn fresh_port(&mut self) -> u16 {
        self.port = if self.port >= 60_000 { 1025 } else { self.port + 1 };
        self.port
    }

    fn name(&mut self) -> String {
        if self.manner == Manner::Own {
            return OWN.to_owned();
        }
        let number = self.chance.below(NAMES);
        let kind = if number.is_multiple_of(7) { "no" } else { "host" };
        format!("{kind}{number}.example")
    }

    /// Sends the next queries when the timer fires.
    fn ask(&mut self, net: &mut Net, report: &mut Report) {
        self.forget(net.now, report);
        if net.now < self.until {
            let wait = self.every / 2 + self.chance.below(self.every.max(1));
            net.after(
                wait,
                Event::Wakes {
                    actor: self.actor,
                    why: 0,
                },
            );
        }
        // Before it is up, no server listens.
        if net.now < self.up.max(self.from) || net.now >= self.until {
            return;
        }
        let port = self.fresh_port();
        match self.manner {
            Manner::Tcp => self.dial(port, net),
            Manner::Hostile => self.offend(port, net),
            Manner::Own => self.ask_once(port, net, report),
            // Sometimes several at a time, as for the names of a web page.
            Manner::Glibc | Manner::Musl | Manner::Go => {
                let more = if self.chance.below(4) == 0 {
                    self.chance.below(5)
                } else {
                    0
                };
                self.ask_once(port, net, report);
                for _ in 0..more {
                    let port = self.fresh_port();
                    self.ask_once(port, net, report);
                }
            }
        }
    }

    fn ask_once(&mut self, port: u16, net: &mut Net, report: &mut Report) {
        let (id, name) = (self.chance.next() as u16, self.name());
        self.send(port, id, name, 1, net, report);
    }

    fn asks_for(&self) -> u8 {
        match self.manner {
            Manner::Own => SRV,
            _ => A,
        }
    }

    fn dial(&mut self, port: u16, net: &mut Net) {
        let socket = net.dial(self.actor, SocketAddr::new(self.ip, port), self.server);
        self.connections.insert(socket, (port, Vec::new()));
    }

    /// Sends a query over UDP.
    fn send(&mut self, port: u16, id: u16, name: String, attempts: u32, net: &mut Net, report: &mut Report) {
        report.count("asked by clients");
        net.inject(
            0,
            SocketAddr::new(self.ip, port),
            self.server,
            message::query(id, &name, self.asks_for()),
        );
        let asked = Asked {
            name,
            at: net.now,
            answers: 0,
            attempts,
            stream: false,
        };
        self.asked.insert((port, id), asked);
        let (most, wait) = match self.manner {
            Manner::Musl => (3, 5 * SECOND / 2),
            _ => (2, 5 * SECOND),
        };
        if attempts < most {
            self.next += 1;
            self.again.insert(self.next, (port, id));
            net.after(
                wait,
                Event::Wakes {
                    actor: self.actor,
                    why: self.next,
                },
            );
        }
    }

    /// Retries if no answer has come.
    fn ask_again(&mut self, why: u64, net: &mut Net, report: &mut Report) {
        let Some(key) = self.again.remove(&why) else {
            return;
        };
        let Some(asked) = self.asked.get(&key).filter(|asked| asked.answers == 0) else {
            return;
        };
        let (name, attempts) = (asked.name.clone(), asked.attempts + 1);
        report.count("asked again");
        // With the same socket and ID two answers would be right; this looks for an answer too many.
        let (port, id) = (self.fresh_port(), self.chance.next() as u16);
        self.send(port, id, name, attempts, net, report);
    }

    /// Sends up to three queries at a time over an established connection.
    fn speak(&mut self, socket: Number, net: &mut Net, report: &mut Report) {
        let Some((port, _)) = self.connections.get(&socket) else {
            return;
        };
        let port = *port;
        if self.manner == Manner::Hostile {
            let mut octets = vec![0; self.chance.below(600) as usize];
            self.chance.fill(&mut octets);
            let _ = net.write(socket, &octets);
            if self.chance.below(2) == 0 {
                self.hang_up(socket, net);
            }
            return;
        }
        let mut octets = Vec::new();
        let first = self.chance.next() as u16;
        for more in 0..=self.chance.below(3) as u16 {
            let (id, name) = (first.wrapping_add(more), self.name());
            octets.extend(message::framed(&message::query(id, &name, A)));
            report.count("asked by clients");
            let asked = Asked {
                name,
                at: net.now,
                answers: 0,
                attempts: 9,
                stream: true,
            };
            self.asked.insert((port, id), asked);
        }
        let _ = net.write(socket, &octets);
    }

    /// Sends what no stub resolver would.
    fn offend(&mut self, port: u16, net: &mut Net) {
        if self.chance.below(4) == 0 {
            return self.dial(port, net);
        }
        // A name on which a filter traps or does not end, if the configuration has such a filter.
        if self.chance.below(3) == 0 {
            let kind = if self.chance.below(2) == 0 { "trap" } else { "spin" };
            let name = format!("{kind}{}.example", self.chance.below(3));
            let octets = message::query(self.chance.next() as u16, &name, A);
            return net.inject(0, SocketAddr::new(self.ip, port), self.server, octets);
        }
        let name = self.name();
        let mut octets = message::query(self.chance.next() as u16, &name, A);
        for _ in 0..=self.chance.below(4) {
            let at = self.chance.below(octets.len() as u64) as usize;
            octets[at] = self.chance.next() as u8;
        }
        octets.truncate(1 + self.chance.below(octets.len() as u64) as usize);
        net.inject(0, SocketAddr::new(self.ip, port), self.server, octets);
    }

    /// Checks a reply to a port.
    fn answered(&mut self, port: u16, reply: &[u8], net: &mut Net, report: &mut Report) {
        if self.manner == Manner::Hostile {
            report.count("answers to what no client asks");
            return;
        }
        let now = net.now;
        let id = reply
            .first_chunk::<2>()
            .map_or(0, |octets| u16::from_be_bytes(*octets));
        let Some(asked) = self.asked.get_mut(&(port, id)) else {
            return report.violation(
                now,
                &format!("{} port {port} got an answer that nobody waits for", self.ip),
            );
        };
        asked.answers += 1;
        let (name, answers, waited) = (asked.name.clone(), asked.answers, now - asked.at);
        if answers > 1 {
            report.violation(
                now,
                &format!("{} got answer {answers} to one query for {name}", self.ip),
            );
        }
        let most = if message::is_own(reply) { AT_ONCE } else { IN_TIME };
        if waited > most {
            report.violation(
                now,
                &format!("{} waited {} ms for {name}", self.ip, waited / 1_000_000),
            );
        }
        let rcode = reply.get(3).map_or(0, |octet| octet & 15);
        report.count(&format!("rcode {rcode}"));
        if let Some(what) = self.fault(&name, reply, rcode, net) {
            report.violation(now, &format!("{} asked for {name}: {what}", self.ip));
        }
    }

    /// Returns what is wrong with an answer.
    fn fault(&self, name: &str, reply: &[u8], rcode: u8, net: &Net) -> Option<String> {
        let now = net.now;
        let well = now > self.fine.0 && now < self.fine.1.min(self.down);
        if message::question(reply).is_none_or(|(_, asked)| asked != name) {
            return Some("the answer is to another question".to_owned());
        }
        match rcode {
            SERVFAIL if well => Some("SERVFAIL, though upstreams are well".to_owned()),
            SERVFAIL => None,
            NXDOMAIN if message::is_missing(name) => None,
            0 if self.manner == Manner::Own => None,
            0 if !message::is_missing(name) => {
                let Some(address) = message::first_address(reply) else {
                    return Some("no address".to_owned());
                };
                let [_, span, ..] = address;
                if message::address(name, u64::from(span) * AGE * SECOND) != address {
                    return Some(format!("the address {address:?} is nobody's"));
                }
                let age = (net.clock() / SECOND / AGE + SPANS - u64::from(span)) % SPANS * AGE;
                // What was under way when the machine fell asleep was fresh then.
                let awake = net.woke == 0 || now > net.woke + AWAKE;
                (well && awake && age > FRESH).then(|| format!("{age} s old, though upstreams are well"))
            }
            rcode => Some(format!("rcode {rcode}")),
        }
    }

    /// Reports queries that got no answer in time, and forgets old ones.
    fn forget(&mut self, now: u64, report: &mut Report) {
        let (up, down, ip) = (self.up, self.down, self.ip);
        self.asked.retain(|_, asked| {
            let waited = now - asked.at;
            if waited <= REMEMBERED {
                return true;
            }
            // A closed connection takes its queries with it.
            if asked.answers == 0 && asked.at >= up && asked.at < down && !asked.stream {
                report.violation(
                    now,
                    &format!(
                        "{ip} got no answer for {}, asked at {} ms",
                        asked.name,
                        asked.at / 1_000_000
                    ),
                );
            }
            false
        });
    }

    /// Checks pending queries at the end; after `ended`, the program answers no more.
    pub fn close(&mut self, now: u64, ended: bool, report: &mut Report) {
        for asked in self.asked.values() {
            let over = now > asked.at + IN_TIME || ended && asked.at + ARRIVES < self.down;
            let late = asked.at >= self.up && asked.at < self.down && over;
            if asked.answers == 0 && late && !asked.stream {
                report.violation(
                    now,
                    &format!(
                        "{} got no answer for {}, asked at {} ms",
                        self.ip,
                        asked.name,
                        asked.at / 1_000_000
                    ),
                );
            }
        }
    }
}
