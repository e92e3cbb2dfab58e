//! An upstream server in changing weather.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::message::{SERVFAIL, answer, bare, framed, question, unframed};
use crate::net::{Datagram, Event, Net, News, Number};
use crate::report::Report;
use crate::seed::Random;

const MILLISECOND: u64 = 1_000_000;

/// The most queries that one source port may send, and nanoseconds after which a port counts as another
/// socket's.
const PORT_QUERIES: u32 = 16;
const PORT_REST: u64 = 2_000_000_000;

/// The behaviour of an upstream for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fine,
    /// Half of the messages are lost, and some others are duplicated.
    Lossy,
    /// Answers take up to three seconds, and overtake each other.
    Slow,
    /// Answers over UDP are truncated, those over TCP come in pieces.
    Truncating,
    /// Forged answers precede the true one: a wrong ID, question or source, or garbage.
    Lying,
    /// Nothing is answered; connections are accepted.
    Silent,
    /// No server: ICMP errors, and connections are reset.
    Gone,
    /// It answers SERVFAIL.
    Failing,
}

/// An upstream.
pub struct Upstream {
    weather: Weather,
    chance: Random,
    /// The incomplete message on each connection.
    connections: BTreeMap<Number, Vec<u8>>,
    /// Delayed replies, by timer.
    later: BTreeMap<u64, (Number, Vec<u8>)>,
    next: u64,
    /// The number of queries from each port, and when the last came.
    ports: BTreeMap<u16, (u32, u64)>,
}

impl Upstream {
    pub fn new(chance: Random) -> Upstream {
        Upstream {
            weather: Weather::Fine,
            chance,
            connections: BTreeMap::new(),
            later: BTreeMap::new(),
            next: 1,
            ports: BTreeMap::new(),
        }
    }

    pub fn told(&mut self, actor: usize, news: News, net: &mut Net, report: &mut Report) {
        match news {
            News::Wakes { why, .. } => {
                if let Some((socket, reply)) = self.later.remove(&why) {
                    let _ = net.write(socket, &reply);
                }
            }
            News::Datagram { datagram, .. } => self.asked(datagram, net, report),
            News::Accepted { socket, .. } if self.weather == Weather::Gone => net.abort(socket),
            News::Accepted { socket, .. } => {
                self.connections.insert(socket, Vec::new());
            }
            News::Came { socket, octets, .. } => self.came(actor, socket, octets, net),
            News::Ended { socket, .. } => {
                if self.connections.remove(&socket).is_some() {
                    net.close(socket);
                }
            }
            News::Connected { .. } => {}
        }
    }

    /// Changes the weather.
    pub fn change(&mut self, name: &str) {
        self.weather = match name {
            "lossy" => Weather::Lossy,
            "slow" => Weather::Slow,
            "truncating" => Weather::Truncating,
            "lying" => Weather::Lying,
            "silent" => Weather::Silent,
            "gone" => Weather::Gone,
            "failing" => Weather::Failing,
            _ => Weather::Fine,
        };
    }

    /// Answers a query over UDP.
    fn asked(&mut self, query: Datagram, net: &mut Net, report: &mut Report) {
        report.count("asked over UDP");
        self.notes(query.from.port(), net.now, report);
        let Some(reply) = self.reply(&query.octets, true, net.clock()) else {
            return;
        };
        let (from, to) = (query.to, query.from);
        let wait = match self.weather {
            Weather::Slow => self.chance.below(3000) * MILLISECOND,
            _ => self.chance.below(20) * MILLISECOND,
        };
        match self.weather {
            Weather::Silent => return,
            Weather::Gone => return net.refuse(to, from),
            Weather::Lossy if self.chance.below(2) == 0 => return,
            Weather::Lossy if self.chance.below(4) == 0 => net.inject(wait / 2, from, to, reply.clone()),
            Weather::Lying => self.lie(&query, &reply, net),
            _ => {}
        }
        net.inject(wait, from, to, reply);
    }

    /// Checks that a port sends few queries: a port that is found out must have few IDs to guess at (RFC 5452
    /// section 4.5).
    fn notes(&mut self, port: u16, now: u64, report: &mut Report) {
        let (count, last) = self.ports.entry(port).or_insert((0, now));
        // After a long pause, the port belongs to another socket by chance.
        *count = if now - *last > PORT_REST { 1 } else { *count + 1 };
        *last = now;
        // Twice the limit, because another socket may get the port sooner by chance.
        if *count == 2 * PORT_QUERIES + 1 {
            report.violation(
                now,
                &format!("more than {} queries came from port {port}", 2 * PORT_QUERIES),
            );
        }
    }

    /// Sends a forgery that arrives first.
    fn lie(&mut self, query: &Datagram, reply: &[u8], net: &mut Net) {
        let mut forged = reply.to_vec();
        let last = forged.len() - 1;
        forged[last] ^= 0xff;
        let mut from = query.to;
        match self.chance.below(5) {
            0 => forged[1] ^= 1,
            1 => forged[13] ^= 1,
            2 => from = SocketAddr::new(from.ip(), 54),
            3 => forged.truncate(self.chance.below(12) as usize),
            _ => self.chance.fill(&mut forged[2..]),
        }
        // With the right ID, question and source it would be an answer, whatever its content: the program
        // cannot tell.
        let is_one =
            forged.get(..2) == reply.get(..2) && question(&forged) == question(reply) && from == query.to;
        if !is_one {
            net.inject(0, from, query.from, forged);
        }
    }

    fn reply(&mut self, query: &[u8], datagram: bool, now: u64) -> Option<Vec<u8>> {
        match self.weather {
            Weather::Failing => bare(query, [0x81, 0x80 | SERVFAIL]),
            Weather::Truncating if datagram => bare(query, [0x83, 0x80]),
            _ => answer(query, now),
        }
    }

    /// Answers the queries on a connection.
    fn came(&mut self, actor: usize, socket: Number, octets: Vec<u8>, net: &mut Net) {
        let Some(buffer) = self.connections.get_mut(&socket) else {
            return;
        };
        buffer.extend(octets);
        while let Some(query) = self.connections.get_mut(&socket).and_then(unframed) {
            let Some(reply) = self.reply(&query, false, net.clock()) else {
                continue;
            };
            let mut reply = framed(&reply);
            match self.weather {
                Weather::Silent => continue,
                Weather::Gone => return self.hang_up(socket, net),
                Weather::Lossy if self.chance.below(2) == 0 => {
                    // Cut off in the middle of a message.
                    reply.truncate(self.chance.below(reply.len() as u64) as usize);
                    let _ = net.write(socket, &reply);
                    return self.hang_up(socket, net);
                }
                _ => {}
            }
            if self.weather == Weather::Slow {
                self.next += 1;
                self.later.insert(self.next, (socket, reply));
                net.after(
                    self.chance.below(2000) * MILLISECOND,
                    Event::Wakes {
                        actor,
                        why: self.next,
                    },
                );
                continue;
            }
            // Pieces of a stream arrive in order.
            let middle = match self.weather {
                Weather::Truncating => self.chance.below(reply.len() as u64) as usize,
                _ => 0,
            };
            for piece in [&reply[..middle], &reply[middle..]] {
                let _ = net.write(socket, piece);
            }
        }
    }

    fn hang_up(&mut self, socket: Number, net: &mut Net) {
        self.connections.remove(&socket);
        net.close(socket);
    }
}
