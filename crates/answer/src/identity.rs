//! Client identity: the pod that has a client's address.

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
    /// Not identified: no pod of this node, one that is not known yet, or one that has ended.
    #[default]
    Unknown,
    /// The node itself, or a pod on its network.
    Host,
    /// A pod.
    Pod(Arc<Pod>),
}

/// A snapshot of a pod and its namespace.
#[derive(Debug)]
pub struct Pod {
    /// Unique among all pods; a change of the pod or of its namespace gives it a new number.
    pub number: u64,
    /// The pod itself.
    pub object: Arc<PodObject>,
    /// Its namespace.
    pub namespace: Arc<Namespace>,
    /// Counts its namespace's queries.
    pub queries: Arc<AtomicU64>,
}

/// The numbers of clients that are not pods. 0 is never used.
const UNKNOWN: u64 = 1;
const HOST: u64 = 2;
/// The first number of a pod.
pub const FIRST: u64 = 3;

impl Identity {
    /// Returns a pod that nothing watches, for trying out a filter.
    pub fn of(object: PodObject, namespace: Namespace) -> Identity {
        Identity::Pod(Arc::new(Pod {
            number: FIRST,
            object: Arc::new(object),
            namespace: Arc::new(namespace),
            queries: Arc::default(),
        }))
    }

    /// Stands for everything known of the client: a decision about one client holds for every other with the
    /// same number. Never 0.
    pub fn number(&self) -> u64 {
        match self {
            Identity::Unknown => UNKNOWN,
            Identity::Host => HOST,
            Identity::Pod(pod) => pod.number,
        }
    }
}

/// For people to read: `shop/web-1`, `host`, `unknown`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Unknown => f.write_str("unknown"),
            Identity::Host => f.write_str("host"),
            Identity::Pod(pod) => write!(f, "{}/{}", pod.object.namespace, pod.object.name),
        }
    }
}

/// A pod that has not ended. Its deletion may have begun.
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
    /// Distinguishes it from other pods of the same name.
    pub uid: Box<str>,
    /// When it was created, in seconds since 1970.
    pub created: Option<i64>,
    /// Its addresses; those of the node, if it uses the host network.
    pub addresses: Box<[IpAddr]>,
    /// The node's addresses.
    pub host: Box<[IpAddr]>,
    /// Whether it uses the host network.
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
