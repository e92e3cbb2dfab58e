//! One upstream as all workers see it: its health, how fast it is, and what has been counted about it.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use tokio::time::Instant;

use super::counters::Counters;
use super::failure::Fault;

/// What a whole failure weighs against an upstream; being overtaken weighs 1.
const FAILURE: u32 = 4;

/// An upstream is never given less time than this before the query is sent again: most that is slower on a
/// node's own network is lost, and what is not is bounded by [`Spare`].
const LEAST_PATIENCE: Duration = Duration::from_millis(10);
/// What an upstream is given that has not answered yet: enough for a recursive server that has to ask around.
const FIRST_PATIENCE: Duration = Duration::from_millis(400);

/// A server that `forward` asks.
#[derive(Debug)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    /// What has been counted since the generation began.
    pub counters: Counters,
    /// A name's first label by which a query of ours is known when it comes back: 32 hexadecimal digits.
    loop_token: [u8; 32],
    looping: AtomicBool,
    out: AtomicBool,
    probing: AtomicBool,
    /// Weight of the failures since the last success.
    strikes: AtomicU32,
    /// [`FAILURE`] times `max-fails`; 0: never out.
    limit: u32,
    rtt: RoundTrip,
    spare: Spare,
    /// When it was last found overtaken, in milliseconds since [`LEAST_PATIENCE`] before `created`.
    overtaken: AtomicU64,
    created: Instant,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, max_fails: u32) -> Self {
        let mut loop_token = [0; 32];
        loop_token.copy_from_slice(format!("{:032x}", rand::random::<u128>()).as_bytes());
        Self {
            address,
            counters: Counters::default(),
            loop_token,
            looping: AtomicBool::new(false),
            out: AtomicBool::new(false),
            probing: AtomicBool::new(false),
            strikes: AtomicU32::new(0),
            limit: max_fails.saturating_mul(FAILURE),
            rtt: RoundTrip::default(),
            spare: Spare::default(),
            overtaken: AtomicU64::new(0),
            created: Instant::now(),
        }
    }

    /// Whether queries go to it by choice. One that is out is asked only when all are.
    pub fn healthy(&self) -> bool {
        !self.out.load(Relaxed) && !self.looping.load(Relaxed)
    }

    /// Whether it was found to forward back to this proxy. It is not asked again in this generation.
    pub fn looping(&self) -> bool {
        self.looping.load(Relaxed)
    }

    pub(super) fn loop_token(&self) -> &[u8; 32] {
        &self.loop_token
    }

    pub(super) fn found_looping(&self) {
        self.counters.loops.fetch_add(1, Relaxed);
        if !self.looping.swap(true, Relaxed) {
            tracing::error!(
                upstream = %self.address,
                "queries to this upstream come back to this proxy: it is not asked any more; \
                 remove it from `forward`, or make it forward elsewhere"
            );
        }
    }

    /// How long to wait for it before asking again elsewhere.
    pub(super) fn patience(&self) -> Duration {
        self.rtt
            .timeout()
            .map_or(FIRST_PATIENCE, |timeout| timeout.max(LEAST_PATIENCE))
    }

    /// Whether it may be sent a query that another attempt is still under way for. Whoever hears so sends
    /// it.
    pub(super) fn may_ask_early(&self) -> bool {
        self.spare.take()
    }

    /// It replied to an attempt, perhaps to one that began early.
    pub(super) fn earned(&self, early: bool) {
        self.spare.give(if early { EARLY } else { 1 });
    }

    pub(super) fn measured(&self, round_trip: Duration) {
        self.rtt.sample(round_trip);
    }

    /// It is there: any reply proves it.
    pub(super) fn answered(&self) {
        self.strikes.store(0, Relaxed);
        if self.out.swap(false, Relaxed) {
            tracing::info!(upstream = %self.address, "the upstream answers again");
        }
    }

    /// It failed once. True if it is out and has to be probed by the caller, who alone gets to hear so.
    pub(super) fn failed(&self, fault: Fault) -> bool {
        fault.blames_upstream() && self.strike(FAILURE, &fault)
    }

    /// Another answered while this one was silent for longer than it should have been. A lost packet does
    /// that as well, so it takes several in a row to weigh as much as a failure; and what happens to many
    /// queries within one short pause of the upstream's counts once. True as for [`Self::failed`].
    pub(super) fn overtaken(&self, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.created) + LEAST_PATIENCE;
        let last = self.overtaken.load(Relaxed);
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        if u128::from(now.saturating_sub(last)) < LEAST_PATIENCE.as_millis() {
            return false;
        }
        self.overtaken.store(now, Relaxed);
        self.strike(1, &"others answer sooner")
    }

    fn strike(&self, weight: u32, why: &dyn std::fmt::Display) -> bool {
        if self.limit == 0 || self.strikes.fetch_add(weight, Relaxed).saturating_add(weight) < self.limit {
            return false;
        }
        // Not left to grow until it wraps.
        self.strikes.store(self.limit, Relaxed);
        // Ordered with `probing`, as in `probe_ended`.
        if !self.out.swap(true, SeqCst) {
            tracing::warn!(upstream = %self.address, %why, "the upstream is out until it answers a probe");
        }
        !self.probing.swap(true, SeqCst)
    }

    /// Whether there is any use in probing it.
    pub(super) fn wants_probe(&self) -> bool {
        self.out.load(SeqCst) && !self.looping()
    }

    /// The task that probes it is about to end. True if it has to go on: the upstream went out again, and
    /// whoever saw that relied on the task.
    pub(super) fn probe_ended(&self) -> bool {
        self.probing.store(false, SeqCst);
        self.wants_probe() && !self.probing.swap(true, SeqCst)
    }

    /// The task that probes it is gone. The next failure starts another.
    pub(super) fn probe_dropped(&self) {
        self.probing.store(false, SeqCst);
    }
}

/// What an early attempt costs, in replies.
const EARLY: u32 = 10;
/// Early attempts that need not have been earned.
const FREE: u32 = 32;

/// How many early attempts an upstream may still be sent.
///
/// One that brings the answer is free: what it repeats was lost, or another upstream is in trouble. One that
/// does not has to be earned by ten replies. So a lossy path is made up for at once, and an upstream that is
/// slow because it has too much to do gets a tenth more at most, and nothing more once it is silent.
#[derive(Debug)]
struct Spare(AtomicU32);

impl Default for Spare {
    fn default() -> Self {
        Self(AtomicU32::new(FREE * EARLY))
    }
}

impl Spare {
    fn take(&self) -> bool {
        let take = |spare: u32| spare.checked_sub(EARLY);
        self.0.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    fn give(&self, replies: u32) {
        // A sum lost in a race is no loss.
        let spare = self.0.load(Relaxed);
        if spare < FREE * EARLY {
            self.0.store((spare + replies).min(FREE * EARLY), Relaxed);
        }
    }
}

/// Smoothed round trip and its variation, as TCP keeps them (RFC 6298 section 2). Unlike a multiple of the
/// mean, this grows for an upstream that answers at once what it has cached and takes its time over the
/// rest.
#[derive(Debug, Default)]
struct RoundTrip {
    /// Both in microseconds, the mean in the upper half; 0: never measured. A sample lost in a race is no
    /// loss.
    packed: AtomicU64,
}

impl RoundTrip {
    fn sample(&self, round_trip: Duration) {
        let sample = u64::try_from(round_trip.as_micros())
            .unwrap_or(u64::MAX)
            .clamp(1, u64::from(u32::MAX));
        let (mean, variation) = match self.packed.load(Relaxed) {
            0 => (sample, sample / 2),
            packed => {
                let (mean, variation) = (packed >> 32, packed & 0xffff_ffff);
                (
                    (mean * 7 + sample) / 8,
                    (variation * 3 + mean.abs_diff(sample)) / 4,
                )
            }
        };
        self.packed.store(mean.max(1) << 32 | variation, Relaxed);
    }

    fn timeout(&self) -> Option<Duration> {
        let packed = self.packed.load(Relaxed);
        (packed != 0).then(|| Duration::from_micros((packed >> 32) + 4 * (packed & 0xffff_ffff)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(max_fails: u32) -> Upstream {
        Upstream::new(([127, 0, 0, 1], 53).into(), max_fails)
    }

    #[test]
    fn max_fails_in_a_row_take_it_out_and_exactly_one_caller_is_told_to_probe() {
        let upstream = upstream(2);
        assert!(!upstream.failed(Fault::Timeout));
        upstream.answered();
        assert!(!upstream.failed(Fault::Timeout));
        assert!(upstream.healthy());
        assert!(upstream.failed(Fault::Closed));
        assert!(!upstream.healthy());
        assert!(!upstream.failed(Fault::Timeout), "a probe is already running");
        upstream.answered();
        assert!(upstream.healthy());
    }

    #[test]
    fn zero_max_fails_never_takes_it_out() {
        let upstream = upstream(0);
        assert!((0..100).all(|_| !upstream.failed(Fault::Timeout)));
        assert!(upstream.healthy());
    }

    #[test]
    fn what_is_not_its_fault_does_not_count() {
        let upstream = upstream(1);
        assert!(!upstream.failed(Fault::Local(std::io::ErrorKind::OutOfMemory)));
        assert!(!upstream.failed(Fault::Busy));
        assert!(!upstream.failed(Fault::Malformed));
        assert!(upstream.healthy());
    }

    #[test]
    fn being_overtaken_again_and_again_takes_it_out() {
        let upstream = upstream(2);
        let later = |n| upstream.created + n * LEAST_PATIENCE;
        assert!((0..7).all(|n| !upstream.overtaken(later(n))));
        assert!(upstream.overtaken(later(7)));
        assert!(!upstream.healthy());
    }

    #[test]
    fn a_pause_that_many_queries_meet_counts_once() {
        let upstream = upstream(2);
        assert!((0..100).all(|_| !upstream.overtaken(upstream.created)));
        let just_before = upstream.created + LEAST_PATIENCE - Duration::from_millis(1);
        assert!((0..100).all(|_| !upstream.overtaken(just_before)));
        assert!(upstream.healthy());
    }

    #[test]
    fn early_attempts_that_bring_nothing_are_a_tenth_of_the_replies() {
        let upstream = upstream(2);
        assert!((0..FREE).all(|_| upstream.may_ask_early()));
        assert!(!upstream.may_ask_early());
        let mut sent = 0;
        for _ in 0..1000 {
            upstream.earned(false);
            sent += u32::from(upstream.may_ask_early());
        }
        assert_eq!(sent, 100);
    }

    #[test]
    fn early_attempts_that_bring_the_answer_are_free() {
        let upstream = upstream(2);
        for _ in 0..1000 {
            assert!(upstream.may_ask_early());
            upstream.earned(true);
        }
    }

    #[test]
    fn strikes_do_not_wrap() {
        let upstream = upstream(u32::MAX);
        for _ in 0..3 {
            upstream.strikes.store(u32::MAX - 1, Relaxed);
            upstream.failed(Fault::Timeout);
            assert_eq!(upstream.strikes.load(Relaxed), u32::MAX);
        }
    }

    #[test]
    fn patience_follows_the_round_trip() {
        let upstream = upstream(2);
        assert_eq!(upstream.patience(), FIRST_PATIENCE);
        (0..50).for_each(|_| upstream.measured(Duration::from_millis(1)));
        assert_eq!(upstream.patience(), LEAST_PATIENCE);
        // One answer in four takes 300 ms: repeating each of them would be a waste.
        for n in 0..200 {
            upstream.measured(Duration::from_millis(if n % 4 == 0 { 300 } else { 1 }));
        }
        assert!(
            upstream.patience() > Duration::from_millis(300),
            "{:?}",
            upstream.patience()
        );
    }
}
