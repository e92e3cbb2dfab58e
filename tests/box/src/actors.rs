//! Those at the other end: clients, upstreams, whoever reads the admin address, and who sends signals and changes files.

mod client;
mod cluster;
mod message;
mod reader;
mod upstream;

use crate::kernel::kernel;
use crate::net::{Event, Net, News};
use crate::report::Report;
use crate::scenario::{Deed, Role, Scenario, Trouble};
use crate::seed::Random;
use client::Client;
use cluster::Cluster;
use reader::Reader;
use upstream::Upstream;

/// Which actor the script is.
const SCRIPT: usize = usize::MAX;

/// What is to be done besides.
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

/// All of them.
pub struct Actors {
    actors: Vec<Actor>,
    deeds: Vec<Deed>,
}

impl Actors {
    /// Those of a scenario, each with chance of its own.
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
        Actors { actors, deeds }
    }

    /// Tells who it concerns.
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
        // What the admin address says has numbers of the machine in it: octets that are in memory.
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

    /// The script goes on.
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
                // A copy first, since a good file may come back later.
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
                for (actor, reader) in self.actors.iter_mut().enumerate() {
                    if let Actor::Reader(reader) = reader {
                        reader.read(actor, &name, net);
                    }
                }
                Outcome::Nothing
            }
        }
    }

    /// The end: what is still owed.
    pub fn close(&mut self, now: u64, ended: bool, report: &mut Report) {
        for actor in &mut self.actors {
            if let Actor::Client(client) = actor {
                client.close(now, ended, report);
            }
        }
    }
}
