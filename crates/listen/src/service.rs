//! What a listener needs to serve its clients, whatever its transport.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;

use super::client_connections::ClientConnections;
use super::secured::Secured;
use crate::config::Listen;
use crate::serve::Worker;

/// What the sockets of one listener share. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    /// The worker that answers.
    pub worker: Rc<Worker>,
    /// The listener's index as a server, for counters.
    pub server: u16,
    /// What a reload may change.
    pub limits: Rc<RefCell<Limits>>,
    /// Becomes true when open connections are to end once they are idle.
    pub stop: watch::Receiver<bool>,
    /// Becomes true when nothing new may be accepted.
    pub leave: watch::Receiver<bool>,
}

/// What listeners need to know besides their sockets.
#[derive(Clone)]
pub struct Limits {
    /// Size in bytes of the largest reply over UDP.
    pub udp_size: usize,
    /// The connections of all clients.
    pub connections: Arc<ClientConnections>,
    /// TLS settings for new connections.
    pub secured: Secured,
    /// Listeners of this process per address, one for each worker.
    pub siblings: usize,
}

impl Limits {
    /// Creates the limits of a configuration, for this many workers.
    pub fn new(listen: &Listen, workers: usize, connections: Arc<ClientConnections>) -> Limits {
        Limits {
            secured: Secured::new(listen),
            udp_size: usize::from(listen.udp_size),
            connections,
            siblings: workers,
        }
    }
}
