//! Who asks: a client's address, as the pod that has it.
//!
//! [`NodePods`] follows the pods of one node, and the namespace of each of them, in a thread of its own. What is known becomes a
//! [`table`], which the next one replaces; a query reads the table of the moment and waits for nothing. An address is somebody's
//! only while the API server has said nothing to the contrary: what is in doubt is [`Identity::Unknown`].

mod bounds;
mod counters;
mod objects;
mod roster;
mod show;
mod state;
mod table;
mod watch;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use bounds::{DESCRIPTORS, FIXED_OCTETS};
pub use objects::{Labels, Namespace, PodObject};
pub use watch::NodePods;

/// Who a client is.
#[derive(Debug, Clone, Default)]
pub enum Identity {
    /// Nobody who is known: no pod of the node, one that is not known yet, or one that has ended.
    #[default]
    Unknown,
    /// The node itself, or a pod on its network.
    Host,
    /// A pod.
    Pod(Arc<Pod>),
}

/// A pod and its namespace, as they are at one time.
#[derive(Debug)]
pub struct Pod {
    /// No other pod ever has the same, nor this one when it or its namespace has changed.
    number: u64,
    /// What it is.
    pub object: Arc<PodObject>,
    /// Where it is.
    pub namespace: Arc<Namespace>,
    /// Counts its namespace's queries.
    queries: Arc<AtomicU64>,
}

/// The numbers of those who are no pods. 0 is nobody's.
const UNKNOWN: u64 = 1;
const HOST: u64 = 2;
/// The first of a pod.
const FIRST: u64 = 3;

impl Identity {
    /// A pod whom nobody follows, to try a filter with.
    pub fn of(object: PodObject, namespace: Namespace) -> Identity {
        Identity::Pod(Arc::new(Pod {
            number: FIRST,
            object: Arc::new(object),
            namespace: Arc::new(namespace),
            queries: Arc::default(),
        }))
    }

    /// Stands for everything that can be told of the client: what was decided about one with the same number was decided
    /// about this one. Never 0.
    pub fn number(&self) -> u64 {
        match self {
            Identity::Unknown => UNKNOWN,
            Identity::Host => HOST,
            Identity::Pod(pod) => pod.number,
        }
    }
}

/// For people: `shop/web-1`, `host`, `unknown`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Unknown => f.write_str("unknown"),
            Identity::Host => f.write_str("host"),
            Identity::Pod(pod) => write!(f, "{}/{}", pod.object.namespace, pod.object.name),
        }
    }
}
