//! Counts the queries of each namespace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::bounds::COUNTED;
use dnsweir_answer::identity::Identity;

/// Queries by client identity. A namespace's count stays when its last pod has gone.
#[derive(Debug, Default)]
pub(super) struct Counters {
    unknown: AtomicU64,
    host: AtomicU64,
    namespaces: Mutex<BTreeMap<Box<str>, Arc<AtomicU64>>>,
    /// Queries of namespaces beyond the limit.
    other: Arc<AtomicU64>,
}

impl Counters {
    /// The counter of a namespace.
    pub(super) fn of(&self, namespace: &str) -> Arc<AtomicU64> {
        let mut namespaces = self.namespaces.lock();
        if let Some(known) = namespaces.get(namespace) {
            return Arc::clone(known);
        }
        if namespaces.len() == COUNTED {
            return Arc::clone(&self.other);
        }
        Arc::clone(namespaces.entry(namespace.into()).or_default())
    }

    /// Counts a query.
    pub(super) fn count(&self, identity: &Identity) {
        let counter = match identity {
            Identity::Unknown => &self.unknown,
            Identity::Host => &self.host,
            Identity::Pod(pod) => &*pod.queries,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// All counts: identity, namespace if it is a pod's, and number of queries.
    pub(super) fn read(&self) -> Vec<(&'static str, Box<str>, u64)> {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let mut all = vec![
            ("unknown", Box::default(), load(&self.unknown)),
            ("host", Box::default(), load(&self.host)),
            ("other", Box::default(), load(&self.other)),
        ];
        let namespaces = self.namespaces.lock();
        all.extend(
            namespaces
                .iter()
                .map(|(name, counter)| ("pod", name.clone(), load(counter))),
        );
        all
    }
}
