//! One upstream as all workers see it: its health, how fast it is, and what has been counted about it.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use tokio::time::Instant;

use super::counters::Counters;
use super::failure::Fault;
use super::health::{FAILURE, Health};
use super::pace::{HedgeBudget, RoundTrip};
use super::secured::Secured;
use crate::config;
use dnsweir_config::tls::Client;

/// An upstream is never given less time than this before the query is sent again: most that is slower on a
/// node's own network is lost, and what is not is bounded by [`HedgeBudget`].
const LEAST_RTO: Duration = Duration::from_millis(10);
/// What an upstream is given that has not answered yet: enough for a recursive server that has to ask around.
const FIRST_RTO: Duration = Duration::from_millis(400);
/// For how long each query has a port to itself after a stray was seen: longer than any way of finding ports that
/// needs to be tried again and again.
const WARINESS: Duration = Duration::from_secs(60);
/// Answers in a row that came only without EDNS, after which it is left away from the start.
const EDNS_SILENCES: u32 = 2;
/// For how long; then the upstream may know better.
const EDNS_MEMORY: Duration = Duration::from_secs(300);

/// A server that `forward` asks.
#[derive(Debug)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    /// What has been counted since the stage that asks it was last changed.
    pub counters: Counters,
    pub(super) health: Health,
    pub(super) hedge_budget: HedgeBudget,
    /// Who it has to be, if it is asked over TLS.
    pub(super) secured: Option<Secured>,
    rtt: RoundTrip,
    /// Answers in a row that came only without EDNS.
    edns_silences: AtomicU32,
    /// The points in time below are milliseconds since [`LEAST_RTO`] before this.
    created: Instant,
    /// When it was last found overtaken.
    overtaken: AtomicU64,
    /// Until when each query gets a port to itself.
    wary_until: AtomicU64,
    /// Until when EDNS is left away.
    plain_until: AtomicU64,
}

impl Upstream {
    /// One of which nothing is known; with a client it is asked over TLS.
    pub(super) fn new(upstream: &config::Upstream, client: Option<&Client>, max_fails: u32) -> Self {
        let address = upstream.address;
        Self {
            address,
            secured: client.map(|client| Secured::new(client.clone(), upstream)),
            counters: Counters::default(),
            health: Health::new(address, max_fails),
            hedge_budget: HedgeBudget::default(),
            rtt: RoundTrip::default(),
            edns_silences: AtomicU32::new(0),
            created: Instant::now(),
            overtaken: AtomicU64::new(0),
            wary_until: AtomicU64::new(0),
            plain_until: AtomicU64::new(0),
        }
    }

    /// Whether queries go to it by choice. One that is out is asked only when all are, one that loops back to us
    /// never.
    pub fn healthy(&self) -> bool {
        !self.health.out() && !self.looping()
    }

    /// Whether what it is asked comes back to this proxy.
    pub fn looping(&self) -> bool {
        self.health.looping()
    }

    /// Its retransmission timeout (RTO): how long to wait for it before the query is sent again, or to another one.
    pub(super) fn rto(&self) -> Duration {
        self.rtt
            .timeout()
            .map_or(FIRST_RTO, |timeout| timeout.max(LEAST_RTO))
    }

    pub(super) fn measured(&self, round_trip: Duration) {
        self.rtt.sample(round_trip);
    }

    /// It failed once. True if the caller has to probe it, as for [`Health::strike`].
    pub(super) fn failed(&self, fault: Fault) -> bool {
        if fault.is_of_one_server() {
            self.health.missed();
        }
        fault.blames_upstream() && self.health.strike(FAILURE)
    }

    /// It said that it could not, or would not. True as for [`Self::failed`].
    pub(super) fn declined(&self) -> bool {
        self.health.strike(FAILURE)
    }

    /// Another answered while this one was silent for longer than it should have been. A lost packet does
    /// that as well, so it takes several in a row to weigh as much as a failure; and what happens to many
    /// queries within one short pause of the upstream's counts once. True as for [`Self::failed`].
    pub(super) fn overtaken(&self, now: Instant) -> bool {
        let now = self.milliseconds(now);
        let last = self.overtaken.load(Relaxed);
        if u128::from(now.saturating_sub(last)) < LEAST_RTO.as_millis() {
            return false;
        }
        self.overtaken.store(now, Relaxed);
        self.health.strike(1)
    }

    /// A datagram came that answers nothing: somebody may be looking for our ports.
    pub(super) fn saw_stray(&self) {
        self.counters.strays.fetch_add(1, Relaxed);
        self.wary_until.store(self.after(WARINESS), Relaxed);
    }

    /// Whether each query gets a port to itself.
    pub(super) fn is_wary(&self) -> bool {
        self.is_before(&self.wary_until)
    }

    /// It answered a query with EDNS, or, only without, one that it had been silent about with EDNS.
    pub(super) fn answered_edns(&self, with: bool) {
        if with {
            self.edns_silences.store(0, Relaxed);
        } else if self.edns_silences.fetch_add(1, Relaxed) + 1 >= EDNS_SILENCES {
            // Not left to grow until it wraps.
            self.edns_silences.store(EDNS_SILENCES, Relaxed);
            self.plain_until.store(self.after(EDNS_MEMORY), Relaxed);
        }
    }

    /// Whether it is silent about queries with EDNS, as far as is remembered.
    pub(super) fn drops_edns(&self) -> bool {
        self.is_before(&self.plain_until)
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.created) + LEAST_RTO;
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn after(&self, duration: Duration) -> u64 {
        self.milliseconds(Instant::now() + duration)
    }

    /// Looks at the clock only if there ever was such a point in time.
    fn is_before(&self, point: &AtomicU64) -> bool {
        let point = point.load(Relaxed);
        point > 0 && self.milliseconds(Instant::now()) < point
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(max_fails: u32) -> Upstream {
        Upstream::new(&SocketAddr::from(([127, 0, 0, 1], 53)).into(), None, max_fails)
    }

    #[test]
    fn what_is_not_its_fault_does_not_count() {
        let upstream = upstream(1);
        assert!(!upstream.failed(Fault::Local(std::io::ErrorKind::OutOfMemory)));
        assert!(!upstream.failed(Fault::Denied));
        assert!(!upstream.failed(Fault::Busy));
        assert!(!upstream.failed(Fault::Forged));
        assert!(upstream.failed(Fault::Timeout));
    }

    #[test]
    fn being_overtaken_again_and_again_raises_suspicion() {
        let upstream = upstream(2);
        let later = |n| upstream.created + n * LEAST_RTO;
        assert!((0..7).all(|n| !upstream.overtaken(later(n))));
        assert!(upstream.overtaken(later(7)));
    }

    #[test]
    fn a_pause_that_many_queries_meet_counts_once() {
        let upstream = upstream(1);
        assert!((0..100).all(|_| !upstream.overtaken(upstream.created)));
        let just_before = upstream.created + LEAST_RTO - Duration::from_millis(1);
        assert!((0..100).all(|_| !upstream.overtaken(just_before)));
    }

    #[test]
    fn edns_is_left_away_after_two_answers_in_a_row_that_came_only_without() {
        let upstream = upstream(2);
        upstream.answered_edns(false);
        upstream.answered_edns(true);
        upstream.answered_edns(false);
        assert!(!upstream.drops_edns());
        upstream.answered_edns(false);
        assert!(upstream.drops_edns());
    }

    #[test]
    fn the_rto_follows_the_round_trip() {
        let upstream = upstream(2);
        assert_eq!(upstream.rto(), FIRST_RTO);
        (0..50).for_each(|_| upstream.measured(Duration::from_millis(1)));
        assert_eq!(upstream.rto(), LEAST_RTO);
        // One answer in four takes 300 ms: repeating each of them would be a waste.
        for n in 0..200 {
            upstream.measured(Duration::from_millis(if n % 4 == 0 { 300 } else { 1 }));
        }
        assert!(
            upstream.rto() > Duration::from_millis(300),
            "{:?}",
            upstream.rto()
        );
    }
}
