//! `secondary` as a source of answers.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::super::file::say;
use super::follow::Follower;
use super::state::State;
use crate::background::{Background, Loading};
use crate::config::{self, spell_duration};
use crate::dns::edns::ExtendedError;
use crate::dns::name::{Name, is_at_or_below};
use crate::metrics::Metrics;
use crate::transfer::{Asked, Contents, Outgoing, Reply, say_signed, sockets};
use dnsweir_answer::{Fallthrough, Names, Part, Question, Resolution, Status, Upkeep};

/// Descriptors besides those of the zones: epoll, and waking the thread.
const OWN_SOCKETS: usize = 4;

/// Sockets of a zone: one connection, and the next while the former closes.
const SOCKETS: usize = 2;

/// A `secondary` stage.
pub struct Secondary {
    config: Arc<config::Secondary>,
    /// One per zone name in the configuration.
    states: Vec<Arc<State>>,
    fallthrough: Fallthrough,
    /// The transfer rules of each zone; empty if transfers are not allowed.
    outgoing: Vec<Arc<Outgoing>>,
    loading: Loading,
    thread: Mutex<Option<Background>>,
}

/// The most sockets that the stage has open.
pub fn most_sockets(config: &config::Secondary) -> usize {
    OWN_SOCKETS + config.origins.len() * (SOCKETS + sockets(&config.transfer))
}

/// The most bytes that its zones take: those served, and those arriving, as records and as zones.
pub fn most_octets(config: &config::Secondary) -> usize {
    4 * config.memory * config.origins.len()
}

/// The zones being served, by name, for stages that take them over in a reload.
#[derive(Default)]
pub struct Served<'p>(HashMap<&'p Name, &'p State>);

impl<'p> Served<'p> {
    /// The zones of these stages.
    pub fn of(secondaries: impl Iterator<Item = &'p Secondary>) -> Served<'p> {
        let states = secondaries.flat_map(|secondary| &secondary.states);
        Served(states.map(|state| (&state.origin, &**state)).collect())
    }
}

impl Secondary {
    /// A stage that takes over the zones served before; other zones have not arrived yet.
    pub fn new(config: &config::Secondary, served: &Served<'_>) -> Secondary {
        let origins = config
            .origins
            .iter()
            .filter_map(|origin| Name::parse(origin).ok());
        let states = origins.map(|origin| match served.0.get(&origin) {
            Some(former) => State::after(former, config.memory),
            None => State::new(&origin),
        });
        Secondary {
            states: states.collect(),
            fallthrough: Fallthrough::new(&config.fallthrough),
            outgoing: Outgoing::of_each(config.transfer.as_ref(), config.origins.len()),
            config: Arc::new(config.clone()),
            loading: Loading::new(config.wait),
            thread: Mutex::new(None),
        }
    }

    /// The states of its zones.
    pub(super) fn states(&self) -> &[Arc<State>] {
        &self.states
    }

    /// The configuration.
    pub(super) fn config(&self) -> &config::Secondary {
        &self.config
    }

    /// The zone's answer, from the last version.
    pub fn immediate(&self, question: &Question<'_>) -> Resolution {
        say_signed(self.outgoing.first(), question, || self.say(question))
    }

    fn say(&self, question: &Question<'_>) -> Resolution {
        let of = |state: &&Arc<State>| is_at_or_below(question.name, state.origin.as_bytes());
        let states = self.states.iter().filter(of);
        let Some(state) = states.max_by_key(|state| state.origin.as_bytes().len()) else {
            return Resolution::NotMine;
        };
        match &*state.zone.load() {
            Some(zone) => say(zone, question, &self.fallthrough),
            None => Resolution::Failed {
                error: match state.arrival.has_come() {
                    true => ExtendedError::NoReachableAuthority,
                    false => ExtendedError::NotReady,
                },
                local: true,
            },
        }
    }

    /// The reply to a transfer request; none if no transferable zone of that name is loaded.
    pub fn transfer(&self, asked: &Asked<'_>) -> Option<Reply> {
        let mut states = self.states.iter();
        let index = states.position(|state| state.origin.as_bytes() == asked.name)?;
        let (outgoing, zone) = (self.outgoing.get(index)?, self.states[index].zone.load_full()?);
        Some(outgoing.answer(|| zone as Arc<dyn Contents>, asked))
    }
}

impl Upkeep for Secondary {
    fn word(&self) -> &'static str {
        "secondary"
    }

    fn status(&self) -> Status {
        let zones = self.states.iter().map(|state| {
            let zone = match &*state.zone.load() {
                Some(zone) => format!(
                    "{} with serial {} and {} records",
                    zone.origin, zone.serial, zone.records
                ),
                None if state.arrival.has_come() => format!("{} has expired", state.origin),
                None => format!("{} has not been transferred yet", state.origin),
            };
            let age = state
                .age()
                .map(|age| format!(", checked {} ago", spell_duration(age)));
            let problem = state.problem().map(|problem| format!(", {problem}"));
            zone + &age.unwrap_or_default() + &problem.unwrap_or_default()
        });
        let zones: Vec<String> = zones.collect();
        let primaries: Vec<String> = self.config.primaries.iter().map(ToString::to_string).collect();
        Status {
            text: format!("secondary of {}: {}", primaries.join(", "), zones.join("; ")),
            upstreams: Vec::new(),
        }
    }

    fn show(&self, metrics: &mut Metrics) {
        for (index, state) in self.states.iter().enumerate() {
            let origin = state.origin.to_string();
            let labels = [("origin", &*origin)];
            let zone = state.zone.load();
            let help = "1 if the zone was transferred and has not expired, else 0";
            metrics
                .gauge("secondary_served", help)
                .shared(&labels, u64::from(zone.is_some()));
            let numbers = zone.as_ref().map_or([0; 3], |zone| {
                [u64::from(zone.serial), zone.records as u64, zone.octets as u64]
            });
            let what = [
                (
                    "secondary_serial",
                    "Serial of the SOA record of a zone from a primary",
                ),
                ("secondary_records", "Records of a zone from a primary"),
                (
                    "secondary_memory_bytes",
                    "Approximate memory used by a zone from a primary",
                ),
            ];
            for ((name, help), number) in what.into_iter().zip(numbers) {
                metrics.gauge(name, help).shared(&labels, number);
            }
            if let Some(age) = state.age() {
                let help = "Seconds since a primary confirmed the zone";
                metrics
                    .gauge("secondary_age_seconds", help)
                    .shared(&labels, age.as_secs());
            }
            state.counters.show(&origin, metrics);
            if let Some(outgoing) = self.outgoing.get(index) {
                outgoing.show(&origin, metrics);
            }
        }
    }

    /// Starts following its zones.
    fn load(&self) {
        if !self.loading.begins() {
            return;
        }
        let followers = self
            .states
            .iter()
            .enumerate()
            .map(|(index, state)| Follower::new(state, &self.config, self.outgoing.get(index).cloned()));
        let followers: Vec<Follower> = followers.collect();
        let follow = async move || drop(join_all(followers.into_iter().map(Follower::run)).await);
        match Background::start("secondary", follow) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => tracing::error!(%error, "secondary: cannot start a thread to follow zones"),
        }
    }

    fn loading(&self) -> Option<&Loading> {
        Some(&self.loading)
    }

    /// Its zones, each transferred once.
    fn parts(&self) -> Vec<Part<'_>> {
        let parts = self.states.iter().map(|state| Part {
            arrival: &state.arrival,
            name: format!("the zone {}", state.origin),
            why: state
                .problem()
                .unwrap_or_else(|| "the first transfer is under way".into()),
        });
        parts.collect()
    }

    fn origins(&self) -> Names<'_> {
        Box::new(self.states.iter().map(|state| &state.origin))
    }
}
