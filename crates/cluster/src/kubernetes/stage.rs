//! A `kubernetes` stage: a cluster, and the rules for its answers.

use std::sync::Arc;

use super::cluster::Cluster;
use super::rules::Rules;
use crate::background::Loading;
use crate::config;
use crate::transfer::Outgoing;

/// Sockets to the API server: at most one connection per watched kind, and those that are opened while others
/// close; plus the descriptors of epoll and the thread's waker.
pub const MOST_SOCKETS: usize = 20;

/// A `kubernetes` stage.
pub struct Kubernetes {
    pub(super) cluster: Arc<Cluster>,
    pub(super) rules: Arc<Rules>,
    pub(super) loading: Loading,
    /// Its name in `/status`.
    pub(super) text: String,
    /// Zone transfers, if any client may have one.
    pub(super) outgoing: Option<Arc<Outgoing>>,
}

impl Kubernetes {
    /// Knows nothing yet, unless others follow the same cluster.
    pub fn new(config: &config::Kubernetes) -> Kubernetes {
        let text = match &config.kubeconfig {
            Some(kubeconfig) => format!("kubernetes {}", kubeconfig.path.display()),
            None => "kubernetes".into(),
        };
        Kubernetes {
            cluster: Cluster::of(config),
            rules: Arc::new(Rules::new(config)),
            loading: Loading::new(config.wait),
            text,
            outgoing: config.transfer.as_ref().map(Outgoing::new),
        }
    }
}
