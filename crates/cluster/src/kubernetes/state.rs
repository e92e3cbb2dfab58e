//! What all who use a cluster share: its index, and how it is doing.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::imports::{Import, ImportedSlice};
use super::index::Index;
use super::objects::{Namespace, Pod, Service, Slice};
use crate::api_server::{Change, Followed};

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

/// What is told of an object of any kind.
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

    /// What the API server calls them, and metrics.
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

    /// Whether they are of several clusters. A cluster may not have such kinds, and the names of its own do not wait for them.
    pub(crate) const fn is_imported(self) -> bool {
        matches!(self, Kind::ServiceImports | Kind::ImportedSlices)
    }
}

/// What is known of a cluster, and of the API server.
pub struct State {
    /// What queries are answered from.
    pub index: ArcSwap<Index>,
    /// The addresses of this host.
    pub hosts: ArcSwap<Vec<IpAddr>>,
    /// Which kinds are followed.
    pub kinds: Vec<Kind>,
    /// About how many octets the objects take.
    pub octets: AtomicUsize,
    followed: [Followed; Kind::ALL.len()],
    complete: watch::Sender<bool>,
    /// The serial of the index that queries are answered from; 0: it is not complete.
    pub serial: watch::Sender<u32>,
    /// Wakes whoever looks whether credentials have changed.
    pub failure: tokio::sync::Notify,
}

impl State {
    /// One that knows nothing yet of these kinds.
    pub fn new(kinds: Vec<Kind>) -> State {
        State {
            index: ArcSwap::default(),
            hosts: ArcSwap::default(),
            kinds,
            octets: AtomicUsize::new(0),
            followed: Kind::ALL.map(|kind| Followed::new(kind.as_str())),
            complete: watch::Sender::new(false),
            serial: watch::Sender::new(0),
            failure: tokio::sync::Notify::new(),
        }
    }

    /// How the objects of a kind are doing.
    pub fn of(&self, kind: Kind) -> &Followed {
        &self.followed[kind as usize]
    }

    /// Has queries answered from another index.
    pub fn publish(&self, index: Index) {
        let (complete, serial) = (index.complete && index.imports_complete, index.serial);
        self.index.store(Arc::new(index));
        self.complete
            .send_if_modified(|known| std::mem::replace(known, complete) != complete);
        self.serial.send_replace(serial);
    }

    /// Whether everything has been listed once.
    pub(crate) fn is_complete(&self) -> bool {
        *self.complete.borrow()
    }

    /// Waits until everything has been listed once.
    pub async fn complete(&self) {
        // The sender is here.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// How long ago the API server was heard of last, of the kind of which that is longest ago; none: never.
    pub fn age(&self) -> Option<std::time::Duration> {
        let heard = self.kinds.iter().map(|&kind| self.of(kind).heard_at());
        let oldest = heard.min_by_key(|heard| *heard)?;
        oldest.map(|oldest| oldest.elapsed())
    }

    /// What keeps the API server from being followed.
    pub fn problem(&self) -> Option<String> {
        self.kinds.iter().find_map(|&kind| self.of(kind).problem())
    }
}
