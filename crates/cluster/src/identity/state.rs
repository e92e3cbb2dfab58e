//! State shared by the following thread, the workers and the admin pages.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::counters::Counters;
use super::table::Table;
use crate::api_server::Followed;
use crate::background::Arrival;

/// The published state, and health.
pub(super) struct State {
    /// The owner of each address.
    pub(super) table: ArcSwap<Table>,
    pub(super) pods: Followed,
    pub(super) namespaces: Followed,
    /// Approximate bytes of the objects.
    pub(super) octets: AtomicUsize,
    pub(super) counters: Counters,
    /// The namespaces to follow.
    pub(super) wanted: watch::Sender<BTreeSet<Box<str>>>,
    /// Whether the pods and all their namespaces have been listed once.
    pub(super) arrival: Arrival,
    /// Wakes the task that checks whether the credentials have changed.
    pub(super) failure: Notify,
}

impl State {
    pub(super) fn new() -> State {
        State {
            table: ArcSwap::default(),
            pods: Followed::new("this node's pods"),
            namespaces: Followed::new("this node's pods' namespaces"),
            octets: AtomicUsize::new(0),
            counters: Counters::default(),
            wanted: watch::Sender::default(),
            arrival: Arrival::default(),
            failure: Notify::new(),
        }
    }
}
