//! The state of a cluster that all its users share: the index, and health.

use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::imports::{Import, ImportedSlice, SERVICE_IMPORTS};
use super::index::Index;
use super::objects::{Namespace, Pod, Service, Slice};
use crate::api_server::{Change, Followed, resources};
use crate::background::Arrival;
use crate::config::spell_duration;

/// The kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Namespaces.
    Namespaces,
    /// Services.
    Services,
    /// Slices of endpoints.
    EndpointSlices,
    /// Pods.
    Pods,
    /// Services of several clusters.
    ServiceImports,
    /// Slices of their endpoints.
    ImportedSlices,
}

/// A change to an object of any kind.
#[derive(Debug)]
pub enum News {
    /// Of a namespace.
    Namespace(Change<Namespace>),
    /// Of a service.
    Service(Change<Service>),
    /// Of a slice of endpoints.
    Slice(Change<Slice>),
    /// Of a pod.
    Pod(Change<Pod>),
    /// Of a service of several clusters.
    Import(Change<Import>),
    /// Of a slice of its endpoints.
    ImportedSlice(Change<ImportedSlice>),
}

impl Kind {
    /// In the order of their numbers.
    pub const ALL: [Kind; 6] = [
        Kind::Namespaces,
        Kind::Services,
        Kind::EndpointSlices,
        Kind::Pods,
        Kind::ServiceImports,
        Kind::ImportedSlices,
    ];

    /// Their name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Namespaces => "namespaces",
            Kind::Services => "services",
            Kind::EndpointSlices => "endpointslices",
            Kind::Pods => "pods",
            Kind::ServiceImports => "serviceimports",
            Kind::ImportedSlices => "imported-endpointslices",
        }
    }

    /// Their path in the API.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Kind::Namespaces => resources::NAMESPACES,
            Kind::Services => resources::SERVICES,
            Kind::Pods => resources::PODS,
            Kind::EndpointSlices | Kind::ImportedSlices => resources::ENDPOINT_SLICES,
            Kind::ServiceImports => SERVICE_IMPORTS,
        }
    }

    /// Returns whether they are multi-cluster objects. A cluster may lack these kinds, so its own names do
    /// not wait for them.
    pub(crate) const fn is_imported(self) -> bool {
        matches!(self, Kind::ServiceImports | Kind::ImportedSlices)
    }
}

/// What is known of a cluster and of the API server.
pub struct State {
    /// The index that queries are answered from.
    pub index: ArcSwap<Index>,
    /// The addresses of this host.
    pub hosts: ArcSwap<Vec<IpAddr>>,
    /// Which kinds are followed.
    pub kinds: Vec<Kind>,
    /// Approximate bytes of the objects.
    pub octets: AtomicUsize,
    /// Since when it is followed.
    begun: OnceLock<Instant>,
    followed: [Followed; Kind::ALL.len()],
    /// Whether everything has been listed once.
    pub(super) arrival: Arrival,
    /// The serial of the published index; 0 while it is incomplete.
    pub serial: watch::Sender<u32>,
    /// Wakes the task that checks whether the credentials have changed.
    pub failure: tokio::sync::Notify,
}

impl State {
    /// A state without any objects of these kinds.
    pub fn new(kinds: Vec<Kind>) -> State {
        State {
            index: ArcSwap::default(),
            hosts: ArcSwap::default(),
            kinds,
            octets: AtomicUsize::new(0),
            begun: OnceLock::new(),
            followed: Kind::ALL.map(|kind| Followed::new(kind.as_str())),
            arrival: Arrival::default(),
            serial: watch::Sender::new(0),
            failure: tokio::sync::Notify::new(),
        }
    }

    /// Records that it is followed from now on; true for the first call only.
    pub(super) fn begins(&self) -> bool {
        self.begun.set(Instant::now()).is_ok()
    }

    /// The state of following a kind.
    pub fn of(&self, kind: Kind) -> &Followed {
        &self.followed[kind as usize]
    }

    /// Publishes a new index for queries.
    pub fn publish(&self, index: Index) {
        let (complete, serial) = (index.complete && index.imports_complete, index.serial);
        self.index.store(Arc::new(index));
        if complete {
            self.arrival.come();
        }
        self.serial.send_replace(serial);
    }

    /// The time since the API server last sent something, for the stalest kind; since following began, if it
    /// never did. `None` before that.
    pub(super) fn silence(&self) -> Option<Duration> {
        let begun = *self.begun.get()?;
        let since = |&kind: &Kind| self.of(kind).heard_at().unwrap_or(begun);
        Some(self.kinds.iter().map(since).min()?.elapsed())
    }

    /// Tells when the API server last sent something, for the stalest kind, and about which it never did.
    pub(super) fn heard(&self) -> String {
        let heard = |&kind: &Kind| self.of(kind).heard_at();
        let Some(oldest) = self.kinds.iter().filter_map(heard).min() else {
            return "no message yet".into();
        };
        let age = spell_duration(Duration::from_secs(oldest.elapsed().as_secs()));
        let unheard = self.kinds.iter().filter(|&kind| heard(kind).is_none());
        let unheard: Vec<&str> = unheard.map(|kind| kind.as_str()).collect();
        match unheard.is_empty() {
            true => format!("last message {age} ago"),
            false => format!("last message {age} ago; none yet about {}", unheard.join(", ")),
        }
    }

    /// Why the API server cannot be followed, if so.
    pub fn problem(&self) -> Option<String> {
        self.kinds.iter().find_map(|&kind| self.of(kind).problem())
    }
}
