//! What all who use a cluster share: its index, and how it is doing.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::index::Index;
use super::known::Change;
use super::objects::{Namespace, Pod, Service, Slice};

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
}

impl Kind {
    /// In the order of their numbers.
    pub const ALL: [Kind; 4] = [Kind::Namespaces, Kind::Services, Kind::EndpointSlices, Kind::Pods];

    /// What the API server calls them, and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Namespaces => "namespaces",
            Kind::Services => "services",
            Kind::EndpointSlices => "endpointslices",
            Kind::Pods => "pods",
        }
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
    /// Wakes whoever looks whether credentials have changed.
    pub failure: tokio::sync::Notify,
}

/// How the objects of one kind are doing.
#[derive(Default)]
pub struct Followed {
    /// How many are known.
    pub objects: AtomicUsize,
    /// How often all were listed.
    pub lists: AtomicU64,
    /// What was heard since, bookmarks included.
    pub events: AtomicU64,
    /// How often the API server could not be listed or watched.
    pub failures: AtomicU64,
    /// Objects that could not be taken as they are.
    pub refused: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// When it was heard of last.
    heard: Option<Instant>,
    problem: Option<String>,
}

impl State {
    /// One that knows nothing yet of these kinds.
    pub fn new(kinds: Vec<Kind>) -> State {
        State {
            index: ArcSwap::default(),
            hosts: ArcSwap::default(),
            kinds,
            octets: AtomicUsize::new(0),
            followed: Default::default(),
            complete: watch::Sender::new(false),
            failure: tokio::sync::Notify::new(),
        }
    }

    /// How the objects of a kind are doing.
    pub fn of(&self, kind: Kind) -> &Followed {
        &self.followed[kind as usize]
    }

    /// Has queries answered from another index.
    pub fn publish(&self, index: Index) {
        let complete = index.complete;
        self.index.store(Arc::new(index));
        self.complete
            .send_if_modified(|known| std::mem::replace(known, complete) != complete);
    }

    /// Waits until everything has been listed once.
    pub async fn complete(&self) {
        // The sender is here.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// Counts a list that has come.
    pub fn listed(&self, kind: Kind) {
        let followed = self.of(kind);
        followed.lists.fetch_add(1, Relaxed);
        followed.health.lock().heard = Some(Instant::now());
    }

    /// Notes that the API server is heard of.
    pub fn heard(&self, kind: Kind) {
        let mut health = self.of(kind).health.lock();
        health.heard = Some(Instant::now());
        if health.problem.take().is_some() {
            tracing::info!("kubernetes: {} are followed again", kind.as_str());
        }
    }

    /// Notes that it has not. The log is told if it did before, or why is another.
    pub fn failed(&self, kind: Kind, problem: String) {
        let followed = self.of(kind);
        followed.failures.fetch_add(1, Relaxed);
        let mut health = followed.health.lock();
        if health.problem.as_ref() != Some(&problem) {
            let kind = kind.as_str();
            tracing::warn!(
                "kubernetes: {kind} cannot be followed, and what is known of them stays: {problem}"
            );
            health.problem = Some(problem);
        }
        self.failure.notify_one();
    }

    /// Counts an object that cannot be taken, and names it.
    pub fn refuse(&self, kind: Kind, problem: String) {
        let refused = self.of(kind).refused.fetch_add(1, Relaxed) + 1;
        // There may be many, and the log has room for some.
        if refused <= 10 || refused.is_power_of_two() {
            let kind = kind.as_str();
            tracing::warn!(
                refused,
                "kubernetes: {kind}: {problem}: what was known of it stays"
            );
        }
    }

    /// How long ago the API server was heard of last, of the kind of which that is longest ago; none: never.
    pub fn age(&self) -> Option<std::time::Duration> {
        let heard = self.kinds.iter().map(|&kind| self.of(kind).health.lock().heard);
        let oldest = heard.min_by_key(|heard| *heard)?;
        oldest.map(|oldest| oldest.elapsed())
    }

    /// What keeps the API server from being followed.
    pub fn problem(&self) -> Option<String> {
        let mut problems = self.kinds.iter().filter_map(|&kind| {
            let problem = self.of(kind).health.lock().problem.clone()?;
            Some(format!("{}: {problem}", kind.as_str()))
        });
        problems.next()
    }
}
