//! What answers the questions that neither a filter nor the cache has answered.
//!
//! A zone may have several sources, and asks them in turn. Each is asked from memory first
//! ([`Source::immediate`]), which takes no task and does not wait, and only if that does not settle it by a task of the
//! worker ([`WorkerSource::ask`]). Either way it says what it knows, that it failed, or that the question is not its
//! own: then the zone's next stage goes on.
//!
//! A new kind of source is a folder here, a variant of [`Kind`] and of [`WorkerKind`], and a word in `config/source.rs`.
//! Everything else about it, from `/status` to the keys of the cache, goes through what a source can say of itself.

pub mod fuzzing;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, join_all};

use dnsweir_answer::{Question, Resolution, Resolved, Status};
use dnsweir_cluster::{kubernetes, service_entries};
pub use dnsweir_upstream as forward;
use dnsweir_zones::{file, secondary, transfer};

use crate::config::SourceConfig;
use crate::dns::name::{Name, is_at_or_below};
use crate::figures::Figures;
use file::File;
use forward::{Forward, Forwarder, Quota};
use kubernetes::Kubernetes;
use secondary::Secondary;
use service_entries::ServiceEntries;

pub use secondary::{AskedNotify, Notified, Served};
pub use transfer::{Asked as AskedTransfer, Reply as TransferReply, Transfer};

/// One source of a zone, as all workers share it. It outlives a reload that changes neither what is written about it
/// nor its zone.
pub struct Source {
    key: Key,
    kind: Kind,
}

/// What a source is made of: one with the same can go on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// That of its zone; the root's, if it has a name.
    zone: Name,
    /// What filters call it; none: a zone's own.
    name: Option<Box<str>>,
    fingerprint: u64,
}

impl Key {
    /// Of a source of a zone.
    pub fn of_zone(config: &SourceConfig, zone: &Name) -> Key {
        Key {
            zone: zone.clone(),
            name: None,
            fingerprint: config.fingerprint(),
        }
    }

    /// Of a source for the queries that filters send there, whatever their zone.
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
}

/// What a worker has of a source for itself: sockets and connections.
#[derive(Clone)]
pub struct WorkerSource {
    shared: Arc<Source>,
    kind: WorkerKind,
}

#[derive(Clone)]
enum WorkerKind {
    Forward(Rc<Forward>),
    /// All that it says, it says at once.
    Immediate,
}

impl Source {
    /// A source, for so many workers. `key`: that of this configuration. `served`: the zones of those before it.
    pub fn new(config: &SourceConfig, key: Key, workers: usize, served: &Served<'_>) -> Arc<Source> {
        let kind = match config {
            SourceConfig::Forward(forward) => Kind::Forward(Forwarder::new(forward, &key.zone, workers)),
            SourceConfig::Kubernetes(kubernetes) => Kind::Kubernetes(Box::new(Kubernetes::new(kubernetes))),
            SourceConfig::File(file) => Kind::File(File::new(file)),
            SourceConfig::Secondary(secondary) => {
                Kind::Secondary(Box::new(Secondary::new(secondary, served)))
            }
            SourceConfig::ServiceEntries(entries) => {
                Kind::ServiceEntries(Box::new(ServiceEntries::new(entries)))
            }
        };
        Arc::new(Source { key, kind })
    }

    /// The zones that these have from other servers.
    pub fn served(sources: &[Arc<Source>]) -> Served<'_> {
        Served::of(sources.iter().filter_map(|source| match &source.kind {
            Kind::Secondary(secondary) => Some(&**secondary),
            Kind::Forward(_) | Kind::Kubernetes(_) | Kind::ServiceEntries(_) | Kind::File(_) => None,
        }))
    }

    /// What it was made of.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// What tells it from others: those that agree in it say the same, and share what is under way.
    pub fn fingerprint(&self) -> u64 {
        self.key.fingerprint
    }

    /// What it says from memory, at once; none: only [`WorkerSource::ask`] can tell.
    #[inline]
    pub fn immediate(&self, question: &Question<'_>) -> Option<Resolution> {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.immediate(question),
            Kind::Kubernetes(kubernetes) => Some(kubernetes.immediate(question)),
            Kind::ServiceEntries(entries) => Some(entries.immediate(question)),
            Kind::File(file) => Some(file.immediate(question)),
            Kind::Secondary(secondary) => Some(secondary.immediate(question)),
        }
    }

    /// Begins with what it does by itself, such as looking whether upstreams answer. Only the first call does anything;
    /// it must come from a `LocalRuntime`.
    pub fn begin(&self) {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.begin(),
            Kind::Kubernetes(kubernetes) => {
                kubernetes.begin();
                kubernetes.begin_to_notify();
            }
            Kind::ServiceEntries(entries) => entries.begin(),
            Kind::File(file) => file.begin(),
            Kind::Secondary(secondary) => secondary.begin(),
        }
    }

    /// Begins to learn what it has to know before it is asked, and waits for that, but no longer than its configuration
    /// says since it began: one that was waited for in vain is not waited for again.
    async fn bring_up(&self) {
        match &self.kind {
            Kind::Forward(_) | Kind::File(_) => {}
            Kind::Kubernetes(kubernetes) => kubernetes.bring_up().await,
            Kind::Secondary(secondary) => secondary.bring_up().await,
            Kind::ServiceEntries(entries) => entries.bring_up().await,
        }
    }

    /// What somebody gets who asks for all of a zone; none: it has none of this name that others may have.
    pub fn transfer(&self, asked: &AskedTransfer<'_>) -> Option<TransferReply> {
        match &self.kind {
            Kind::Forward(_) | Kind::ServiceEntries(_) => None,
            Kind::Kubernetes(kubernetes) => kubernetes.transfer(asked),
            Kind::File(file) => file.transfer(asked),
            Kind::Secondary(secondary) => secondary.transfer(asked),
        }
    }

    /// Takes the message by which a primary tells that its zone has changed; none: it is not about a zone of this source.
    pub fn notified(&self, asked: &AskedNotify<'_>) -> Option<Notified> {
        match &self.kind {
            Kind::Secondary(secondary) => secondary.notified(asked),
            Kind::Forward(_) | Kind::Kubernetes(_) | Kind::ServiceEntries(_) | Kind::File(_) => None,
        }
    }

    /// Whether it has the zone of this very name, with authority.
    pub(crate) fn has_zone(&self, name: &[u8]) -> bool {
        self.origins().any(|origin| origin.as_bytes() == name)
    }

    /// Whether it has a zone that this name is in, below its own.
    pub(crate) fn has_zone_above(&self, name: &[u8]) -> bool {
        let mut origins = self.origins().map(Name::as_bytes);
        origins.any(|origin| origin.len() < name.len() && is_at_or_below(name, origin))
    }

    /// The zones that it has all of.
    fn origins(&self) -> impl Iterator<Item = &Name> {
        let (file, secondary) = match &self.kind {
            Kind::File(file) => (Some(file.origins()), None),
            Kind::Secondary(secondary) => (None, Some(secondary.origins())),
            Kind::Forward(_) | Kind::Kubernetes(_) | Kind::ServiceEntries(_) => (None, None),
        };
        file.into_iter().flatten().chain(secondary.into_iter().flatten())
    }

    /// Whether a HINFO query for this name (in wire format) is one that it sent out itself, to see whether it comes back.
    /// It deserves no answer.
    pub(crate) fn is_own_probe(&self, name: &[u8]) -> bool {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.loop_found(name),
            Kind::Kubernetes(_) | Kind::ServiceEntries(_) | Kind::File(_) | Kind::Secondary(_) => false,
        }
    }

    /// Waits until it has something to answer with.
    pub async fn ready(&self) {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.answer().await,
            Kind::Kubernetes(kubernetes) => kubernetes.ready().await,
            Kind::Secondary(secondary) => secondary.ready().await,
            Kind::ServiceEntries(entries) => entries.ready().await,
            Kind::File(_) => {}
        }
    }

    /// What keeps the proxy from being asked; `starting`: as long as the start may wait for it.
    pub fn not_ready(&self, starting: bool) -> Option<String> {
        let whose = match &self.key.name {
            Some(name) => format!("source {name:?}"),
            None => format!("zone {}", self.key.zone),
        };
        match &self.kind {
            Kind::Forward(forwarder) if forwarder.only_loops() => {
                Some(format!("{whose}: every upstream loops back to this proxy"))
            }
            Kind::Forward(forwarder) if starting && !forwarder.has_answer() => {
                Some(format!("{whose}: no upstream has answered yet"))
            }
            Kind::Forward(_) | Kind::File(_) => None,
            Kind::Kubernetes(kubernetes) => kubernetes.not_ready().map(|why| format!("{whose}: {why}")),
            Kind::Secondary(secondary) => secondary.not_ready().map(|why| format!("{whose}: {why}")),
            Kind::ServiceEntries(entries) => entries.not_ready().map(|why| format!("{whose}: {why}")),
        }
    }

    /// Whether what an upstream is asked comes back to this proxy.
    pub fn loops(&self) -> bool {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.loops(),
            Kind::Kubernetes(_) | Kind::ServiceEntries(_) | Kind::File(_) | Kind::Secondary(_) => false,
        }
    }

    /// What `/status` shows of it.
    pub fn status(&self) -> Status {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.status(),
            Kind::Kubernetes(kubernetes) => kubernetes.status(),
            Kind::ServiceEntries(entries) => entries.status(),
            Kind::File(file) => file.status(),
            Kind::Secondary(secondary) => secondary.status(),
        }
    }

    /// Adds what `/metrics` shows of it.
    pub fn show(&self, figures: &mut Figures) {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder.show(figures),
            Kind::Kubernetes(kubernetes) => kubernetes.show(figures),
            Kind::ServiceEntries(entries) => entries.show(figures),
            Kind::File(file) => file.show(figures),
            Kind::Secondary(secondary) => secondary.show(figures),
        }
    }
}

/// Has sources begin to learn what they have to know before they are asked, and waits for that, side by side.
pub async fn bring_up(sources: &[Arc<Source>]) {
    join_all(sources.iter().map(|source| source.bring_up())).await;
}

impl WorkerSource {
    /// Opens nothing yet; later, as many as `sockets` allows.
    pub fn new(shared: &Arc<Source>, sockets: &Arc<Quota>) -> WorkerSource {
        let kind = match &shared.kind {
            Kind::Forward(forwarder) => WorkerKind::Forward(Forward::new(Arc::clone(forwarder), sockets)),
            Kind::Kubernetes(_) | Kind::ServiceEntries(_) | Kind::File(_) | Kind::Secondary(_) => {
                WorkerKind::Immediate
            }
        };
        WorkerSource {
            shared: Arc::clone(shared),
            kind,
        }
    }

    /// What all workers share of it.
    pub fn shared(&self) -> &Arc<Source> {
        &self.shared
    }

    /// Asks it, and waits. Must be called on a `LocalRuntime`; dropping the future gives up and leaves nothing behind.
    /// A bound that is reached is told at once, by a future that is ready.
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

/// The most sockets that such a source has open at once, over all workers.
pub fn most_sockets(config: &SourceConfig, workers: usize) -> usize {
    match config {
        SourceConfig::Forward(forward) => forward::most_sockets(forward, workers),
        SourceConfig::Kubernetes(kubernetes) => {
            kubernetes::MOST_SOCKETS + transfer::sockets(&kubernetes.transfer)
        }
        SourceConfig::File(file) => file.zones.len() * transfer::sockets(&file.transfer),
        SourceConfig::Secondary(secondary) => secondary::most_sockets(secondary),
        SourceConfig::ServiceEntries(_) => service_entries::MOST_SOCKETS,
    }
}

/// Those of them that stay open while nothing is asked.
pub fn most_connections(config: &SourceConfig, workers: usize) -> usize {
    match config {
        SourceConfig::Forward(forward) => forward::most_connections(forward, workers),
        SourceConfig::Kubernetes(_) => kubernetes::MOST_SOCKETS,
        SourceConfig::ServiceEntries(_) => service_entries::MOST_SOCKETS,
        SourceConfig::File(_) => 0,
        SourceConfig::Secondary(secondary) => secondary::most_sockets(secondary),
    }
}

/// The most octets that transfers hold of it: zones as they were.
pub fn most_transferred(config: &SourceConfig) -> usize {
    let held = match config {
        SourceConfig::Forward(_) => 0,
        SourceConfig::Kubernetes(kubernetes) if kubernetes.transfer.is_some() => kubernetes.memory,
        SourceConfig::File(file) if file.transfer.is_some() => file.memory,
        SourceConfig::Secondary(secondary) if secondary.transfer.is_some() => secondary.memory,
        SourceConfig::Kubernetes(_)
        | SourceConfig::ServiceEntries(_)
        | SourceConfig::File(_)
        | SourceConfig::Secondary(_) => 0,
    };
    transfer::AT_ONCE * held
}

/// The most octets that such a source holds, over all workers.
pub fn most_octets(config: &SourceConfig, workers: usize) -> usize {
    match config {
        SourceConfig::Forward(forward) => forward::most_octets(forward, workers),
        SourceConfig::Kubernetes(kubernetes) => kubernetes.memory,
        SourceConfig::ServiceEntries(entries) => entries.memory,
        SourceConfig::File(file) => file::most_octets(file),
        SourceConfig::Secondary(secondary) => secondary::most_octets(secondary),
    }
}
