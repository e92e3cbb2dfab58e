//! `file` as a source of answers.

use std::sync::Arc;

use super::answer::answer;

use crate::config;
use crate::dns::name::is_at_or_below;
use crate::dns::rcode;
use crate::metrics::Metrics;
use crate::transfer::{Asked, Contents, Outgoing, Reply, notify_all, say_signed};
use crate::zonefile::Zone;
use dnsweir_answer::{Fallthrough, Names, Question, Resolution, Status, Upkeep};

/// A `file` stage.
pub struct File {
    /// One per zone name in the configuration, or the single one that the stage names itself.
    zones: Vec<Arc<Zone>>,
    fallthrough: Fallthrough,
    path: String,
    /// The transfer rules of each zone; empty if transfers are not allowed.
    outgoing: Vec<Arc<Outgoing>>,
}

/// The most bytes that a file's zones take: those in use, those of the next configuration, and the latter's
/// text.
pub fn most_octets(config: &config::ZoneFile) -> usize {
    3 * config.memory * config.zones.len()
}

impl File {
    /// The stage for zones that have been read already.
    pub fn new(config: &config::ZoneFile) -> File {
        File {
            zones: config.zones.clone(),
            fallthrough: Fallthrough::new(&config.fallthrough),
            path: config.path.display().to_string(),
            outgoing: Outgoing::of_each(config.transfer.as_ref(), config.zones.len()),
        }
    }

    /// The reply to a transfer request; none if no transferable zone has that name.
    pub fn transfer(&self, asked: &Asked<'_>) -> Option<Reply> {
        let mut zones = self.zones.iter().zip(&self.outgoing);
        let (zone, outgoing) = zones.find(|(zone, _)| zone.origin.as_bytes() == asked.name)?;
        Some(outgoing.answer(|| Arc::clone(zone) as Arc<dyn Contents>, asked))
    }

    /// The zone's answer.
    pub fn immediate(&self, question: &Question<'_>) -> Resolution {
        say_signed(self.outgoing.first(), question, || self.say(question))
    }

    fn say(&self, question: &Question<'_>) -> Resolution {
        let of = |zone: &&Arc<Zone>| is_at_or_below(question.name, zone.origin.as_bytes());
        let closest = self
            .zones
            .iter()
            .filter(of)
            .max_by_key(|zone| zone.origin.as_bytes().len());
        let Some(zone) = closest else {
            return Resolution::NotMine;
        };
        say(zone, question, &self.fallthrough)
    }
}

impl Upkeep for File {
    fn word(&self) -> &'static str {
        "file"
    }

    fn status(&self) -> Status {
        let zones = self.zones.iter().map(|zone| {
            format!(
                "{} with serial {} and {} records",
                zone.origin, zone.serial, zone.records
            )
        });
        let zones: Vec<String> = zones.collect();
        Status {
            text: format!("file {}: {}", self.path, zones.join(", ")),
            upstreams: Vec::new(),
        }
    }

    fn show(&self, metrics: &mut Metrics) {
        for (index, zone) in self.zones.iter().enumerate() {
            let origin = zone.origin.to_string();
            let labels = [("origin", &*origin)];
            let help = "Serial of the SOA record of a zone file";
            metrics
                .gauge("file_serial", help)
                .shared(&labels, zone.serial.into());
            let help = "Records of a zone file";
            metrics
                .gauge("file_records", help)
                .shared(&labels, zone.records as u64);
            let help = "Approximate memory used by a zone file";
            metrics
                .gauge("file_memory_bytes", help)
                .shared(&labels, zone.octets as u64);
            if let Some(outgoing) = self.outgoing.get(index) {
                outgoing.show(&origin, metrics);
            }
        }
    }

    /// Notifies secondaries that the zones may have changed.
    fn begin(&self) {
        for (zone, outgoing) in self.zones.iter().zip(&self.outgoing) {
            if !outgoing.begins() {
                return;
            }
            notify_all(outgoing, &zone.soa());
        }
    }

    fn origins(&self) -> Names<'_> {
        Box::new(self.zones.iter().map(|zone| &zone.origin))
    }
}

/// The zone's answer, or [`Resolution::NotMine`] if the name does not exist and `fallthrough` covers it.
pub fn say(zone: &Zone, question: &Question<'_>, fallthrough: &Fallthrough) -> Resolution {
    match answer(zone, question) {
        Resolution::Answer { answer, .. }
            if answer.rcode == rcode::NXDOMAIN
                && answer.answer_count() == 0
                && fallthrough.covers(question.name) =>
        {
            Resolution::NotMine
        }
        resolution => resolution,
    }
}
