//! One `forward` stage, shared by all workers: its upstreams, and the limits on queries to them.

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::bounds::most_sockets;
use super::failure::Failure;
use super::policy::{Indexes, Rotation};
use super::quota::Quota;
use super::upstream::Upstream;
use crate::admission::{Full, JOSTLE, Place, Room};
use crate::config;
use crate::dns::name::Name;
use crate::dns::suffix_map::SuffixMap;

/// One `forward` stage, shared by all workers. It outlives reloads that change neither it nor its zone.
#[derive(Debug)]
pub struct Forwarder {
    /// This, for tasks that must not keep it alive.
    pub(super) me: Weak<Forwarder>,
    pub(super) config: config::Forward,
    /// The first name of the stage's zone: probes ask for it, and for names below it.
    pub(super) zone: Name,
    /// Names left to the next stage.
    pub(super) except: SuffixMap<()>,
    pub(super) upstreams: Vec<Arc<Upstream>>,
    /// Count of queries so far, for round-robin.
    position: AtomicUsize,
    /// The places of the `concurrent` queries.
    pub(super) under_way: Arc<Room>,
    pub(super) sockets: Arc<Quota>,
    pub(super) begun: AtomicBool,
    /// Whether any upstream has ever answered.
    answered: watch::Sender<bool>,
}

impl Forwarder {
    /// A stage of `zone` for `workers` workers. Nothing is known of its upstreams yet, so all count as
    /// healthy.
    pub fn new(config: &config::Forward, zone: &Name, workers: usize) -> Arc<Self> {
        let client = config.client();
        let upstreams = config
            .upstreams
            .iter()
            .map(|upstream| Arc::new(Upstream::new(upstream, client.as_ref(), config.max_fails)));
        let mut except = SuffixMap::default();
        for name in config.except.iter().filter_map(|name| Name::parse(name).ok()) {
            except.insert(name.as_bytes(), ());
        }
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            except,
            upstreams: upstreams.collect(),
            config: config.clone(),
            zone: zone.clone(),
            position: AtomicUsize::new(0),
            under_way: Room::new(config.concurrent),
            sockets: Quota::new(most_sockets(config, workers)),
            begun: AtomicBool::new(false),
            answered: watch::Sender::new(false),
        })
    }

    /// How long a query under way cannot be displaced: `jostle`, or by default the slowest upstream's RTO.
    fn jostle(&self) -> Duration {
        let usual = || self.upstreams.iter().map(|upstream| upstream.rto()).max();
        self.config
            .jostle
            .unwrap_or_else(|| usual().map_or(JOSTLE, |usual| usual.min(JOSTLE)))
    }

    /// Whether any upstream has ever answered with anything but SERVFAIL or REFUSED.
    pub(super) fn has_answer(&self) -> bool {
        *self.answered.borrow()
    }

    /// Waits until [`Self::has_answer`].
    pub(super) async fn answer(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.answered.subscribe().wait_for(|answered| *answered).await;
    }

    /// Whether no upstream is usable because all of them loop back to this proxy.
    pub(super) fn only_loops(&self) -> bool {
        !self.upstreams.is_empty() && self.upstreams.iter().all(|upstream| upstream.looping())
    }

    /// The upstreams in the order of the configuration.
    #[cfg(test)]
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// Records that an upstream has answered for the first time.
    pub(super) fn heard(&self) {
        self.answered.send_replace(true);
    }

    /// The order in which the next query asks the upstreams.
    pub(super) fn rotation(&self) -> Rotation {
        let (live, reserve): (Indexes, Indexes) = (0..self.upstreams.len())
            .filter(|&index| !self.upstreams[index].looping())
            .partition(|&index| self.upstreams[index].healthy());
        Rotation::new(
            self.config.policy,
            self.position.fetch_add(1, Relaxed),
            live,
            reserve,
        )
    }

    /// Takes a place among the `concurrent` queries; the caller holds it while
    /// [`Forward::race`](super::Forward::race) runs. `about` is the end of the name, shared by names that
    /// tend to fail together. While the place is held, another query may displace it: then this query must be
    /// given up.
    ///
    /// # Errors
    /// All places are taken, and none can be displaced.
    pub fn admit(&self, client: IpAddr, about: &[u8], now: Instant) -> Result<Place, Failure> {
        self.under_way
            .enter(client, about, now.into_std(), self.jostle())
            .map_err(|Full| Failure::Overloaded {
                concurrent: self.config.concurrent,
            })
    }
}
