//! What a listener serves its clients with, whatever its socket.

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
    /// Who answers.
    pub worker: Rc<Worker>,
    /// The listener's index as a server, for counters.
    pub server: u16,
    /// What a reload may change.
    pub limits: Rc<RefCell<Limits>>,
    /// Becomes true when nothing new is to be taken.
    pub stop: watch::Receiver<bool>,
}

/// What listeners need to know beside their sockets.
#[derive(Clone)]
pub struct Limits {
    /// Octets of the largest reply over UDP.
    pub udp_size: usize,
    /// The connections of all clients.
    pub connections: Arc<ClientConnections>,
    /// Who we are to connections over TLS that begin from now on.
    pub secured: Secured,
    /// How many listeners the process has for each address, one for each worker.
    pub siblings: usize,
}

impl Limits {
    /// The limits of a configuration for so many workers.
    pub fn new(listen: &Listen, workers: usize, connections: Arc<ClientConnections>) -> Limits {
        Limits {
            secured: Secured::new(listen),
            udp_size: usize::from(listen.udp_size),
            connections,
            siblings: workers,
        }
    }
}
