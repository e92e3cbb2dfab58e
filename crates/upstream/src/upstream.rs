//! One upstream, shared by all workers: its health, its speed and its counters.

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

/// The shortest RTO. On a node's own network, most replies that take longer are lost; [`HedgeBudget`] bounds
/// the needless resends.
const LEAST_RTO: Duration = Duration::from_millis(10);
/// The RTO of an upstream that has not answered yet: long enough for a recursive server to ask others.
const FIRST_RTO: Duration = Duration::from_millis(400);
/// How long each query has its own port after a stray was seen: longer than any port scan that must be
/// repeated again and again.
const WARINESS: Duration = Duration::from_secs(60);
/// After so many replies in a row that came only without EDNS, EDNS is left out from the start.
const EDNS_SILENCES: u32 = 2;
/// For how long EDNS is left out; by then the upstream may have learned it.
const EDNS_MEMORY: Duration = Duration::from_secs(300);

/// A server that a `forward` stage asks.
#[derive(Debug)]
pub struct Upstream {
    /// The address it listens on.
    pub address: SocketAddr,
    /// Counters since the stage that uses it last changed.
    pub counters: Counters,
    pub(super) health: Health,
    pub(super) hedge_budget: HedgeBudget,
    /// The TLS identity it must prove, if it is asked over TLS.
    pub(super) secured: Option<Secured>,
    rtt: RoundTrip,
    /// Replies in a row that came only without EDNS.
    edns_silences: AtomicU32,
    /// The zero point of the times below, which are milliseconds since [`LEAST_RTO`] before it.
    created: Instant,
    /// When it was last overtaken.
    overtaken: AtomicU64,
    /// Until when each query has its own port.
    wary_until: AtomicU64,
    /// Until when EDNS is left out.
    plain_until: AtomicU64,
}

impl Upstream {
    /// An upstream of which nothing is known yet; with a `client`, it is asked over TLS.
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

    /// Whether it takes queries normally. An upstream that is out is asked only when all are out; one that
    /// loops back is never asked.
    pub fn healthy(&self) -> bool {
        !self.health.out() && !self.looping()
    }

    /// Why its last probe failed; `None` if it was answered.
    pub fn fault(&self) -> Option<String> {
        self.health.fault()
    }

    /// Whether queries to it come back to this proxy.
    pub fn looping(&self) -> bool {
        self.health.looping()
    }

    /// Its retransmission timeout (RTO): the wait before the query is sent again, to it or another upstream.
    pub(super) fn rto(&self) -> Duration {
        self.rtt
            .timeout()
            .map_or(FIRST_RTO, |timeout| timeout.max(LEAST_RTO))
    }

    pub(super) fn measured(&self, round_trip: Duration) {
        self.rtt.sample(round_trip);
    }

    /// Records a failed query. Returns true if the caller must probe it, as for [`Health::strike`].
    pub(super) fn failed(&self, fault: Fault) -> bool {
        if fault.is_of_one_server() {
            self.health.missed();
        }
        fault.blames_upstream() && self.health.strike(FAILURE)
    }

    /// Records a SERVFAIL or REFUSED. Returns true as for [`Self::failed`].
    pub(super) fn declined(&self) -> bool {
        self.health.strike(FAILURE)
    }

    /// Records that another upstream answered while this one exceeded its RTO. A lost packet looks the same,
    /// so it takes several in a row to weigh as much as a failure, and one short pause counts once however
    /// many queries it hits. Returns true as for [`Self::failed`].
    pub(super) fn overtaken(&self, now: Instant) -> bool {
        let now = self.milliseconds(now);
        let last = self.overtaken.load(Relaxed);
        if u128::from(now.saturating_sub(last)) < LEAST_RTO.as_millis() {
            return false;
        }
        self.overtaken.store(now, Relaxed);
        self.health.strike(1)
    }

    /// Records a datagram that matches no query: an attacker may be scanning our ports.
    pub(super) fn saw_stray(&self) {
        self.counters.strays.fetch_add(1, Relaxed);
        self.wary_until.store(self.after(WARINESS), Relaxed);
    }

    /// Whether each query must have its own port.
    pub(super) fn is_wary(&self) -> bool {
        self.is_before(&self.wary_until)
    }

    /// Records a reply: to a query with EDNS, or only to the retry without it.
    pub(super) fn answered_edns(&self, with: bool) {
        if with {
            self.edns_silences.store(0, Relaxed);
        } else if self.edns_silences.fetch_add(1, Relaxed) + 1 >= EDNS_SILENCES {
            // Caps the count, so that it cannot wrap.
            self.edns_silences.store(EDNS_SILENCES, Relaxed);
            self.plain_until.store(self.after(EDNS_MEMORY), Relaxed);
        }
    }

    /// Whether it is remembered to drop queries with EDNS.
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

    /// Reads the clock only if the point was ever set.
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
        // One answer in four takes 300 ms: resending all of those would be a waste.
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
