//! `service-entries` as a source of answers.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::follower::Follower;
use crate::background::Loading;
use crate::config::{self, spell_duration};
use crate::dns::{rcode, rtype};
use crate::kubernetes::message::{ANSWER, Message, Owner};
use crate::metrics::Metrics;
use dnsweir_answer::{Awaited, Question, Resolution, Status, Upkeep};

/// Sockets to the API server: a watch and its successor; also descriptors of epoll and the thread's waker.
pub const MOST_SOCKETS: usize = 8;

/// A `service-entries` stage.
pub struct ServiceEntries {
    follower: Follower,
    /// In seconds.
    ttl: u32,
    loading: Loading,
}

impl ServiceEntries {
    /// Starts without any known objects.
    pub fn new(config: &config::ServiceEntries) -> ServiceEntries {
        ServiceEntries {
            follower: Follower::new(config),
            // At most an hour.
            ttl: config.ttl.as_secs() as u32,
            loading: Loading::new(config.wait),
        }
    }

    /// Answers with the addresses of a host. Other types are not answered: entries say nothing about them.
    pub fn immediate(&self, question: &Question<'_>) -> Resolution {
        if !matches!(question.qtype, rtype::A | rtype::AAAA) {
            return Resolution::NotMine;
        }
        let Some(addresses) = self.follower.state.table.load().addresses(question.name) else {
            return Resolution::NotMine;
        };
        let section = [
            question.name,
            &question.qtype.to_be_bytes(),
            &question.qclass.to_be_bytes(),
        ]
        .concat();
        let mut message = Message::new(&section, question.room, self.ttl);
        let is_asked_for = |address: &&std::net::IpAddr| address.is_ipv4() == (question.qtype == rtype::A);
        for address in addresses.iter().filter(is_asked_for) {
            message.push_address(ANSWER, Owner::QUESTION, *address);
        }
        Resolution::Answer {
            answer: message.finish(rcode::NOERROR),
            authoritative: true,
        }
    }
}

impl Upkeep for ServiceEntries {
    fn word(&self) -> &'static str {
        "service-entries"
    }

    fn status(&self) -> Status {
        let state = &self.follower.state;
        let heard = match state.followed.heard_at() {
            Some(heard) => {
                let age = Duration::from_secs(heard.elapsed().as_secs());
                format!("last message {} ago", spell_duration(age))
            }
            None => "no message yet".into(),
        };
        let problem = state.followed.problem();
        let problem = problem.map_or_else(String::new, |problem| format!("; {problem}"));
        Status {
            text: format!(
                "service-entries: {} objects, {} hosts without an address; {heard}{problem}",
                state.followed.objects.load(Relaxed),
                state.table.load().collisions
            ),
            upstreams: Vec::new(),
        }
    }

    fn show(&self, metrics: &mut Metrics) {
        let state = &self.follower.state;
        let followed = &state.followed;
        for (name, help, value) in [
            (
                "service_entries_objects",
                "Known service entries",
                followed.objects.load(Relaxed),
            ),
            (
                "service_entries_memory_bytes",
                "Approximate memory used by service entries",
                state.octets.load(Relaxed),
            ),
            (
                "service_entries_collisions",
                "Hosts without an address because another host has their address",
                state.table.load().collisions,
            ),
        ] {
            metrics.gauge(name, help).shared(&[], value as u64);
        }
        for (name, help, value) in [
            (
                "service_entries_lists",
                "Lists of all service entries",
                &followed.lists,
            ),
            (
                "service_entries_events",
                "Changes and bookmarks received",
                &followed.events,
            ),
            (
                "service_entries_failures",
                "Lists and watches that failed",
                &followed.failures,
            ),
            (
                "service_entries_refused_objects",
                "Objects that were ignored, hosts left without an address, and hosts that were refused",
                &followed.refused,
            ),
        ] {
            metrics.counter(name, help).shared(&[], value.load(Relaxed));
        }
    }

    fn load(&self) {
        if self.loading.begins() {
            self.follower.begin();
        }
    }

    fn loading(&self) -> Option<&Loading> {
        Some(&self.loading)
    }

    /// Waits until everything has been listed once.
    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.follower.state.arrival.wait())
    }

    fn missing(&self) -> Option<String> {
        let state = &self.follower.state;
        let why = state.followed.problem();
        let why = why.unwrap_or_else(|| "the first list is in progress".into());
        (!state.arrival.has_come()).then(|| format!("no service entries are known yet: {why}"))
    }
}
