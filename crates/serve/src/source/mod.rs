//! Sources: they answer the questions that neither a filter nor the cache has answered.
//!
//! A zone may have several sources, and asks them in turn. Each is first asked from memory
//! ([`Source::immediate`]), which takes no task and does not wait; only if that does not settle it, a task of
//! the worker asks it ([`WorkerSource::ask`]). Either way it answers, fails, or says that the question is not
//! its own: then the zone's next stage takes over.
//!
//! A new kind of source needs a variant of [`Kind`] here, its limits ([`bounds`]), and a word in
//! `config/source.rs`. The source itself says what it does besides answering ([`Upkeep`]). Everything else,
//! from `/status` to the cache's keys, goes through these.

mod bounds;
pub mod fuzzing;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, join_all};

use dnsweir_answer::{Question, Resolution, Resolved, Upkeep};
use dnsweir_cluster::{kubernetes, service_entries};
use dnsweir_lists::{self as lists, Lists};
pub use dnsweir_upstream as forward;
use dnsweir_zones::{file, secondary, transfer};

use crate::config::SourceConfig;
use crate::dns::name::{Name, is_at_or_below};
use file::File;
use forward::{Forward, Forwarder, Quota};
use kubernetes::Kubernetes;
use secondary::Secondary;
use service_entries::ServiceEntries;

pub use bounds::{Bounds, bounds};
pub use lists::{Fetch, Fetched};
pub use secondary::{AskedNotify, Notified};
pub use transfer::{Asked as AskedTransfer, Reply as TransferReply, Transfer};

/// One source of a zone, shared by all workers. It survives a reload that changes neither its configuration
/// nor its zone.
pub struct Source {
    key: Key,
    kind: Kind,
}

/// State of existing sources that new ones of the same kind take over.
#[derive(Default)]
pub struct Served<'p> {
    zones: secondary::Served<'p>,
    lists: lists::Known<'p>,
}

/// What a source is made from: a new generation reuses a source with the same key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Its zone; the root for a named source.
    zone: Name,
    /// The name that filters use; `None` for a zone's own source.
    name: Option<Box<str>>,
    fingerprint: u64,
}

impl Key {
    /// The key of a zone's own source.
    pub fn of_zone(config: &SourceConfig, zone: &Name) -> Key {
        Key {
            zone: zone.clone(),
            name: None,
            fingerprint: config.fingerprint(),
        }
    }

    /// The key of a named source, to which filters send queries of any zone.
    pub fn named(config: &SourceConfig, name: &str) -> Key {
        Key {
            zone: Name::ROOT,
            name: Some(name.into()),
            fingerprint: config.fingerprint(),
        }
    }
}

enum Kind {
    Forward(Arc<Forwarder>),
    Kubernetes(Box<Kubernetes>),
    ServiceEntries(Box<ServiceEntries>),
    File(File),
    Secondary(Box<Secondary>),
    Lists(Box<Lists>),
}

/// A worker's own part of a source: sockets and connections.
#[derive(Clone)]
pub struct WorkerSource {
    shared: Arc<Source>,
    kind: WorkerKind,
}

#[derive(Clone)]
enum WorkerKind {
    Forward(Rc<Forward>),
    /// Answers everything from memory.
    Immediate,
}

impl Source {
    /// Creates a source for this many workers. `key` is that of this configuration, `served` the state of
    /// earlier sources.
    pub fn new(config: &SourceConfig, key: Key, workers: usize, served: &Served<'_>) -> Arc<Source> {
        let kind = match config {
            SourceConfig::Forward(forward) => Kind::Forward(Forwarder::new(forward, &key.zone, workers)),
            SourceConfig::Kubernetes(kubernetes) => Kind::Kubernetes(Box::new(Kubernetes::new(kubernetes))),
            SourceConfig::File(file) => Kind::File(File::new(file)),
            SourceConfig::Secondary(secondary) => {
                Kind::Secondary(Box::new(Secondary::new(secondary, &served.zones)))
            }
            SourceConfig::Lists(config) => Kind::Lists(Box::new(Lists::new(config, &served.lists))),
            SourceConfig::ServiceEntries(entries) => {
                Kind::ServiceEntries(Box::new(ServiceEntries::new(entries)))
            }
        };
        Arc::new(Source { key, kind })
    }

    /// Collects what other sources can take over from these.
    pub fn served(sources: &[Arc<Source>]) -> Served<'_> {
        Served {
            zones: secondary::Served::of(sources.iter().filter_map(|source| match &source.kind {
                Kind::Secondary(secondary) => Some(&**secondary),
                _ => None,
            })),
            lists: lists::Known::of(sources.iter().filter_map(|source| match &source.kind {
                Kind::Lists(lists) => Some(&**lists),
                _ => None,
            })),
        }
    }

    /// The key it was made from.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Identifies its answers: sources with the same fingerprint answer alike and share queries in flight.
    pub fn fingerprint(&self) -> u64 {
        self.key.fingerprint
    }

    /// Returns its answer from memory; `None`: only [`WorkerSource::ask`] can answer.
    #[inline]
    pub fn immediate(&self, question: &Question<'_>) -> Option<Resolution> {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.immediate(question),
            Kind::Kubernetes(kubernetes) => Some(kubernetes.immediate(question)),
            Kind::ServiceEntries(entries) => Some(entries.immediate(question)),
            Kind::File(file) => Some(file.immediate(question)),
            Kind::Secondary(secondary) => Some(secondary.immediate(question)),
            Kind::Lists(lists) => Some(lists.immediate(question)),
        }
    }

    /// Its duties besides answering.
    pub fn upkeep(&self) -> &dyn Upkeep {
        match &self.kind {
            Kind::Forward(forwarder) => &**forwarder,
            Kind::Kubernetes(kubernetes) => &**kubernetes,
            Kind::ServiceEntries(entries) => &**entries,
            Kind::File(file) => file,
            Kind::Secondary(secondary) => &**secondary,
            Kind::Lists(lists) => &**lists,
        }
    }

    /// Sets what fetches remote data for it. To be called before it loads.
    pub fn fetch_by(&self, fetch: &Arc<dyn Fetch>) {
        if let Kind::Lists(lists) = &self.kind {
            lists.fetch_by(fetch);
        }
    }

    /// Answers a request for a zone transfer; `None`: it has no zone of this name to transfer.
    pub fn transfer(&self, asked: &AskedTransfer<'_>) -> Option<TransferReply> {
        match &self.kind {
            Kind::Kubernetes(kubernetes) => kubernetes.transfer(asked),
            Kind::File(file) => file.transfer(asked),
            Kind::Secondary(secondary) => secondary.transfer(asked),
            Kind::Forward(_) | Kind::ServiceEntries(_) | Kind::Lists(_) => None,
        }
    }

    /// Handles a primary's NOTIFY; `None`: it is not about a zone of this source.
    pub fn notified(&self, asked: &AskedNotify<'_>) -> Option<Notified> {
        match &self.kind {
            Kind::Secondary(secondary) => secondary.notified(asked),
            _ => None,
        }
    }

    /// Whether it is authoritative for a zone of exactly this name.
    pub(crate) fn has_zone(&self, name: &[u8]) -> bool {
        self.upkeep().origins().any(|origin| origin.as_bytes() == name)
    }

    /// Whether it has a zone with this name below the apex.
    pub(crate) fn has_zone_above(&self, name: &[u8]) -> bool {
        let mut origins = self.upkeep().origins().map(Name::as_bytes);
        origins.any(|origin| origin.len() < name.len() && is_at_or_below(name, origin))
    }

    /// Why it keeps the proxy from being ready; `starting`: while startup may still wait for it.
    pub fn not_ready(&self, starting: bool) -> Option<String> {
        let why = self.upkeep().not_ready(starting)?;
        Some(match &self.key.name {
            Some(name) => format!("source {name:?}: {why}"),
            None => format!("zone {}: {why}", self.key.zone),
        })
    }
}

/// Brings up sources concurrently, and waits until each is loaded or its time is over: a wait that was in vain is
/// not repeated.
pub async fn bring_up(sources: &[Arc<Source>]) {
    join_all(sources.iter().map(|source| source.upkeep().bring_up())).await;
}

impl WorkerSource {
    /// Creates it without opening sockets; later it opens as many as `sockets` allows.
    pub fn new(shared: &Arc<Source>, sockets: &Arc<Quota>) -> WorkerSource {
        let kind = match &shared.kind {
            Kind::Forward(forwarder) => WorkerKind::Forward(Forward::new(Arc::clone(forwarder), sockets)),
            _ => WorkerKind::Immediate,
        };
        WorkerSource {
            shared: Arc::clone(shared),
            kind,
        }
    }

    /// The part that all workers share.
    pub fn shared(&self) -> &Arc<Source> {
        &self.shared
    }

    /// Asks it, and waits. Must be called on a `LocalRuntime`; dropping the future cancels the query and
    /// leaves nothing behind. If a limit is reached, the future is ready immediately.
    pub fn ask(&self, question: &Question<'_>) -> impl Future<Output = Resolved> + use<> {
        match &self.kind {
            WorkerKind::Forward(forward) => Either::Left(forward.ask(question)),
            WorkerKind::Immediate => Either::Right(ready(Resolved {
                resolution: self.shared.immediate(question).unwrap_or(Resolution::NotMine),
                refused: None,
                words: None,
            })),
        }
    }
}
