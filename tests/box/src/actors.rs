//! The peers of the program: clients, upstreams, readers of the admin address; and the script, which sends
//! signals and changes files.

mod client;
mod cluster;
mod message;
mod reader;
mod upstream;

use std::collections::BTreeMap;

use crate::kernel::kernel;
use crate::net::{Event, Net, News};
use crate::report::Report;
use crate::scenario::{Deed, Role, Scenario, Trouble};
use crate::seed::Random;
use client::Client;
use cluster::Cluster;
use reader::Reader;
use upstream::Upstream;

/// The index of the script among actors.
const SCRIPT: usize = usize::MAX;

/// Nanoseconds within which a changed configuration must be taken or refused: sources are awaited in parallel
/// for at most two seconds, and so are further changes to the file.
const RELOADS: u64 = 4_400_000_000;

/// What the world must do as a result.
pub enum Outcome {
    Nothing,
    Signal(i32),
    Phase(String),
    Step(i64),
    Sleep(u64),
    Snapshot(String),
    Trouble(Trouble),
    End,
}

enum Actor {
    Client(Client),
    Upstream(Upstream),
    Reader(Reader),
    Cluster(Cluster),
}

/// All actors.
pub struct Actors {
    actors: Vec<Actor>,
    deeds: Vec<Deed>,
    /// The number of reloads at the time of each configuration change.
    reloads: BTreeMap<u64, u64>,
}

impl Actors {
    /// Creates the actors of a scenario, each with its own random sequence.
    pub fn new(scenario: &Scenario, net: &mut Net, chance: &Random) -> Actors {
        let mut actors = Vec::new();
        for (index, role) in scenario.roles.iter().enumerate() {
            let chance = chance.branch(index as u64 + 1);
            let (ip, actor) = match role {
                Role::Upstream { ip } => (*ip, Actor::Upstream(Upstream::new(chance))),
                Role::Reader { ip, server } => (*ip, Actor::Reader(Reader::new(*ip, *server))),
                Role::Cluster { ip, server } => {
                    let cluster = Cluster::new(index, *ip, *server, scenario, chance);
                    (*ip, Actor::Cluster(cluster))
                }
                Role::Client { ip, .. } => (*ip, Actor::Client(Client::new(index, role, scenario, chance))),
            };
            net.outside.insert(ip, index);
            net.after(0, Event::Wakes { actor: index, why: 0 });
            actors.push(actor);
        }
        for (index, (at, _)) in scenario.deeds.iter().enumerate() {
            net.after(
                *at,
                Event::Wakes {
                    actor: SCRIPT,
                    why: index as u64,
                },
            );
        }
        let deeds = scenario.deeds.iter().map(|(_, deed)| deed.clone()).collect();
        Actors {
            actors,
            deeds,
            reloads: BTreeMap::new(),
        }
    }

    /// Dispatches an event to its actor.
    pub fn told(&mut self, news: News, net: &mut Net, report: &mut Report) -> Outcome {
        let actor = match &news {
            News::Wakes { actor: SCRIPT, why } => return self.does(*why, net, report),
            News::Datagram { actor, .. }
            | News::Accepted { actor, .. }
            | News::Connected { actor, .. }
            | News::Came { actor, .. }
            | News::Ended { actor, .. }
            | News::Wakes { actor, .. } => *actor,
        };
        // Metrics contain figures of the real machine, such as bytes of memory.
        match &news {
            _ if matches!(self.actors[actor], Actor::Reader(_)) => {}
            News::Datagram { datagram, .. } => report.saw(net.now, &datagram.octets),
            News::Came { octets, .. } => report.saw(net.now, octets),
            _ => {}
        }
        match &mut self.actors[actor] {
            Actor::Client(client) => client.told(news, net, report),
            Actor::Upstream(upstream) => upstream.told(actor, news, net, report),
            Actor::Reader(reader) => reader.told(news, net, report),
            Actor::Cluster(cluster) => cluster.told(news, net, report),
        }
        Outcome::Nothing
    }

    /// Has every reader read the metrics: which of them is served depends on the configuration.
    fn read(&mut self, name: &str, net: &mut Net) {
        for (actor, reader) in self.actors.iter_mut().enumerate() {
            if let Actor::Reader(reader) = reader {
                reader.read(actor, name, net);
            }
        }
    }

    /// Changes the configuration. Called again later for the same change, checks that the program reported a
    /// reload.
    fn change(&mut self, index: u64, from: &str, to: &str, net: &mut Net, report: &mut Report) {
        match self.reloads.remove(&index) {
            None => {
                self.reloads.insert(index, report.reloads);
                replace(from, to);
                let next = Event::Wakes {
                    actor: SCRIPT,
                    why: index,
                };
                net.after(RELOADS, next);
            }
            Some(before) if before == report.reloads => {
                report.violation(
                    net.now,
                    "a changed configuration was neither taken nor refused in time",
                );
            }
            Some(_) => report.count("reloads in time"),
        }
    }

    /// Runs one action of the script.
    fn does(&mut self, index: u64, net: &mut Net, report: &mut Report) -> Outcome {
        match self.deeds[index as usize].clone() {
            Deed::Signal(signal) => Outcome::Signal(signal),
            Deed::Phase(name) => Outcome::Phase(name),
            Deed::Step(nanoseconds) => Outcome::Step(nanoseconds),
            Deed::Sleep(nanoseconds) => Outcome::Sleep(nanoseconds),
            Deed::Snapshot(name) => Outcome::Snapshot(name),
            Deed::Trouble(trouble) => {
                report.count(&format!("trouble {}", trouble.kind));
                Outcome::Trouble(trouble)
            }
            Deed::End => Outcome::End,
            Deed::Replace { from, to } => {
                replace(&from, &to);
                Outcome::Nothing
            }
            Deed::Change { from, to } => {
                self.change(index, &from, &to, net, report);
                Outcome::Nothing
            }
            Deed::Weather { ip, name } => {
                let actor = net.outside.get(&ip).copied();
                match actor.and_then(|actor| self.actors.get_mut(actor)) {
                    Some(Actor::Upstream(upstream)) => upstream.change(&name),
                    Some(Actor::Cluster(cluster)) => cluster.become_so(&name, net),
                    _ => return Outcome::Nothing,
                }
                report.count(&format!("weather {name}"));
                Outcome::Nothing
            }
            Deed::Metrics(name) => {
                self.read(&name, net);
                Outcome::Nothing
            }
        }
    }

    /// Checks at the end what clients are still owed.
    pub fn close(&mut self, now: u64, ended: bool, report: &mut Report) {
        for actor in &mut self.actors {
            if let Actor::Client(client) = actor {
                client.close(now, ended, report);
            }
        }
    }
}

/// Replaces a file with a hard link to another, which stays for later.
fn replace(from: &str, to: &str) {
    let (from, to) = (format!("{from}\0"), format!("{to}\0"));
    kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, to.as_ptr(), 0);
    kernel!(
        libc::SYS_linkat,
        libc::AT_FDCWD,
        from.as_ptr(),
        libc::AT_FDCWD,
        to.as_ptr(),
        0
    );
}
