//! A `kubernetes` stage: a cluster, and how it is told.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::rules::Rules;
use crate::config;
use crate::transfer::Outgoing;

/// Sockets to the API server: a watch of each kind, each with a connection of its own at most, and those that are opened while
/// others close; and what epoll and the thread's own wake-ups take.
pub const MOST_SOCKETS: usize = 20;

/// A `kubernetes` stage.
pub struct Kubernetes {
    pub(super) cluster: Arc<Cluster>,
    pub(super) rules: Arc<Rules>,
    /// How long it is not ready at most.
    pub(super) wait: Duration,
    pub(super) begun: OnceLock<Instant>,
    /// What it is called.
    pub(super) text: String,
    /// Who may have all of its zone.
    pub(super) outgoing: Option<Arc<Outgoing>>,
}

impl Kubernetes {
    /// One that knows nothing yet, unless others follow the same cluster.
    pub fn new(config: &config::Kubernetes) -> Kubernetes {
        let text = match &config.kubeconfig {
            Some(kubeconfig) => format!("kubernetes {}", kubeconfig.path.display()),
            None => "kubernetes".into(),
        };
        Kubernetes {
            cluster: Cluster::of(config),
            rules: Arc::new(Rules::new(config)),
            wait: config.wait,
            begun: OnceLock::new(),
            text,
            outgoing: config.transfer.as_ref().map(Outgoing::new),
        }
    }
}
