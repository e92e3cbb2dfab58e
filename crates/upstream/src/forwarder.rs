//! One `forward` stage, as all workers share it: its upstreams, and what bounds the queries to them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
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

/// One `forward` stage, as all workers share it. It outlives a reload that changes neither the stage nor its zone.
#[derive(Debug)]
pub struct Forwarder {
    pub(super) config: config::Forward,
    /// What probes ask for, and below: the first name of the stage's zone.
    pub(super) zone: Name,
    /// Names that are left to the next stage.
    pub(super) except: SuffixMap<()>,
    pub(super) upstreams: Vec<Arc<Upstream>>,
    /// Queries so far, by which round-robin turns.
    position: AtomicUsize,
    /// The `concurrent` queries.
    pub(super) under_way: Arc<Room>,
    pub(super) sockets: Arc<Quota>,
    pub(super) begun: AtomicBool,
    /// Whether any upstream has ever answered.
    answered: watch::Sender<bool>,
}

impl Forwarder {
    /// A stage of `zone`, for so many workers. Nothing is known about the upstreams yet: all count as healthy.
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
        Arc::new(Self {
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

    /// How long a query that is under way is safe from others: for what upstreams usually take, if nothing is written.
    fn jostle(&self) -> Duration {
        let usual = || self.upstreams.iter().map(|upstream| upstream.rto()).max();
        self.config
            .jostle
            .unwrap_or_else(|| usual().map_or(JOSTLE, |usual| usual.min(JOSTLE)))
    }

    /// Whether any upstream has ever answered, with something else than SERVFAIL and REFUSED.
    pub fn has_answer(&self) -> bool {
        *self.answered.borrow()
    }

    /// Waits until [`Self::has_answer`].
    pub async fn answer(&self) {
        // The sender lives as long as this does.
        let _ = self.answered.subscribe().wait_for(|answered| *answered).await;
    }

    /// Whether what any upstream is asked comes back to this proxy.
    pub fn loops(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.looping())
    }

    /// Whether there is nobody to ask, since every upstream loops back to this proxy.
    pub fn only_loops(&self) -> bool {
        !self.upstreams.is_empty() && self.upstreams.iter().all(|upstream| upstream.looping())
    }

    /// In the order of the configuration.
    #[cfg(test)]
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// An upstream has answered for the first time.
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

    /// A place among the `concurrent` queries, which whoever calls [`Forward::race`](super::Forward::race) holds
    /// meanwhile; `about` is what names share that are likely to be silent together, the end of a name. Until the place is
    /// dropped, another query may displace it: then this one is to be given up.
    ///
    /// # Errors
    /// As many are under way, and none has to give way.
    pub fn admit(&self, client: IpAddr, about: &[u8], now: Instant) -> Result<Place, Failure> {
        self.under_way
            .enter(client, about, now.into_std(), self.jostle())
            .map_err(|Full| Failure::Overloaded {
                concurrent: self.config.concurrent,
            })
    }
}
