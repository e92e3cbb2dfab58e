//! Who asks: a client's address, as the pod that has it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

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
    pub number: u64,
    /// What it is.
    pub object: Arc<PodObject>,
    /// Where it is.
    pub namespace: Arc<Namespace>,
    /// Counts its namespace's queries.
    pub queries: Arc<AtomicU64>,
}

/// The numbers of those who are no pods. 0 is nobody's.
const UNKNOWN: u64 = 1;
const HOST: u64 = 2;
/// The first of a pod.
pub const FIRST: u64 = 3;

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

/// A pod that has not ended, whether or not it is being deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodObject {
    /// Its namespace's name.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// The service account that it runs as.
    pub service_account: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
    /// Tells it from others that have had its name.
    pub uid: Box<str>,
    /// When it was created, in seconds since 1970.
    pub created: Option<i64>,
    /// Its addresses; those of the node, if it is on the node's network.
    pub addresses: Box<[IpAddr]>,
    /// The node's addresses.
    pub host: Box<[IpAddr]>,
    /// Whether it is on the node's network.
    pub on_host: bool,
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
}
