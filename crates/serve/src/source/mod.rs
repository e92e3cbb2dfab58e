//! What answers the questions that neither a filter nor the cache has answered.
//!
//! A zone may have several sources, and asks them in turn. Each is asked from memory first
//! ([`Source::immediate`]), which takes no task and does not wait, and only if that does not settle it by a task of the
//! worker ([`WorkerSource::ask`]). Either way it says what it knows, that it failed, or that the question is not its
//! own: then the zone's next stage goes on.
//!
//! A new kind of source is a variant of [`Kind`] here, what it does beside answering ([`aside`]), what it takes at most ([`bounds`]), and
//! a word in `config/source.rs`. Everything else about it, from `/status` to the keys of the cache, goes through these.

mod aside;
mod bounds;
pub mod fuzzing;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, join_all};

use dnsweir_answer::{Question, Resolution, Resolved, Status};
use dnsweir_cluster::{kubernetes, service_entries};
use dnsweir_lists::{self as lists, Lists};
pub use dnsweir_upstream as forward;
use dnsweir_zones::{file, secondary, transfer};

use crate::config::SourceConfig;
use crate::dns::name::{Name, is_at_or_below};
use crate::figures::Figures;
use aside::Aside;
use file::File;
use forward::{Forward, Forwarder, Quota};
use kubernetes::Kubernetes;
use secondary::Secondary;
use service_entries::ServiceEntries;

pub use bounds::{Bounds, bounds};
pub use lists::{Fetch, Fetched};
pub use secondary::{AskedNotify, Notified};
pub use transfer::{Asked as AskedTransfer, Reply as TransferReply, Transfer};

/// One source of a zone, as all workers share it. It outlives a reload that changes neither what is written about it
/// nor its zone.
pub struct Source {
    key: Key,
    kind: Kind,
}

/// What sources have that others of their kind go on with.
#[derive(Default)]
pub struct Served<'p> {
    zones: secondary::Served<'p>,
    lists: lists::Known<'p>,
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
    Lists(Box<Lists>),
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
                Kind::Secondary(Box::new(Secondary::new(secondary, &served.zones)))
            }
            SourceConfig::Lists(config) => Kind::Lists(Box::new(Lists::new(config, &served.lists))),
            SourceConfig::ServiceEntries(entries) => {
                Kind::ServiceEntries(Box::new(ServiceEntries::new(entries)))
            }
        };
        Arc::new(Source { key, kind })
    }

    /// What these have, as far as others go on with it.
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
            Kind::Lists(lists) => Some(lists.immediate(question)),
        }
    }

    /// What it does beside that.
    fn aside(&self) -> &dyn Aside {
        match &self.kind {
            Kind::Forward(forwarder) => forwarder,
            Kind::Kubernetes(kubernetes) => &**kubernetes,
            Kind::ServiceEntries(entries) => &**entries,
            Kind::File(file) => file,
            Kind::Secondary(secondary) => &**secondary,
            Kind::Lists(lists) => &**lists,
        }
    }

    /// The word that names it.
    pub(crate) fn word(&self) -> &'static str {
        self.aside().word()
    }

    /// What it has to tell who follows a question on its way, beside what it says.
    pub(crate) fn words(&self, question: &Question<'_>) -> Option<String> {
        self.aside().words(question)
    }

    /// Who fetches for it what is elsewhere. Before it begins.
    pub fn fetch_by(&self, fetch: &Arc<dyn Fetch>) {
        self.aside().fetch_by(fetch);
    }

    /// Begins with what it does by itself, such as looking whether upstreams answer. Only the first call does anything;
    /// it must come from a `LocalRuntime`.
    pub fn begin(&self) {
        self.aside().begin();
    }

    /// Begins to learn what it has to know before it is asked, and waits for that, but no longer than its configuration
    /// says since it began: one that was waited for in vain is not waited for again.
    async fn bring_up(&self) {
        self.aside().bring_up().await;
    }

    /// What somebody gets who asks for all of a zone; none: it has none of this name that others may have.
    pub fn transfer(&self, asked: &AskedTransfer<'_>) -> Option<TransferReply> {
        self.aside().transfer(asked)
    }

    /// Takes the message by which a primary tells that its zone has changed; none: it is not about a zone of this source.
    pub fn notified(&self, asked: &AskedNotify<'_>) -> Option<Notified> {
        self.aside().notified(asked)
    }

    /// Whether it has the zone of this very name, with authority.
    pub(crate) fn has_zone(&self, name: &[u8]) -> bool {
        self.aside().origins().any(|origin| origin.as_bytes() == name)
    }

    /// Whether it has a zone that this name is in, below its own.
    pub(crate) fn has_zone_above(&self, name: &[u8]) -> bool {
        let mut origins = self.aside().origins().map(Name::as_bytes);
        origins.any(|origin| origin.len() < name.len() && is_at_or_below(name, origin))
    }

    /// Whether a HINFO query for this name (in wire format) is one that it sent out itself, to see whether it comes back.
    /// It deserves no answer.
    pub(crate) fn is_own_probe(&self, name: &[u8]) -> bool {
        self.aside().is_own_probe(name)
    }

    /// Waits until it has something to answer with.
    pub async fn ready(&self) {
        self.aside().ready().await;
    }

    /// What keeps the proxy from being asked; `starting`: as long as the start may wait for it.
    pub fn not_ready(&self, starting: bool) -> Option<String> {
        let why = self.aside().not_ready(starting)?;
        Some(match &self.key.name {
            Some(name) => format!("source {name:?}: {why}"),
            None => format!("zone {}: {why}", self.key.zone),
        })
    }

    /// Whether what an upstream is asked comes back to this proxy.
    pub fn loops(&self) -> bool {
        self.aside().loops()
    }

    /// What `/status` shows of it.
    pub fn status(&self) -> Status {
        self.aside().status()
    }

    /// Adds what `/metrics` shows of it.
    pub fn show(&self, figures: &mut Figures) {
        self.aside().show(figures);
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
            _ => WorkerKind::Immediate,
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
