//! What the thread that follows pods shares with the workers and those who look.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::counters::Counters;
use super::table::Table;
use crate::api_server::Followed;

/// What is known, and how it is doing.
pub(super) struct State {
    /// Who has which address.
    pub(super) table: ArcSwap<Table>,
    pub(super) pods: Followed,
    pub(super) namespaces: Followed,
    /// About how many octets the objects take.
    pub(super) octets: AtomicUsize,
    pub(super) counters: Counters,
    /// The namespaces that are followed.
    pub(super) wanted: watch::Sender<BTreeSet<Box<str>>>,
    /// Whether the pods and all their namespaces were listed once.
    pub(super) complete: watch::Sender<bool>,
    /// Wakes whoever looks whether credentials have changed.
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
            complete: watch::Sender::new(false),
            failure: Notify::new(),
        }
    }
}
