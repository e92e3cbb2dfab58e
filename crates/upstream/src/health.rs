//! Whether an upstream is in use: what raises the suspicion that it is down, and what a probe found.
//!
//! Failures of queries say little: names whose own servers are silent make a healthy upstream silent, and a
//! domain that is broken makes it say SERVFAIL. So they only start a [`probe`](super::probe), and the probe
//! decides, with a question that a working upstream answers. So clients cannot take an upstream out by what they ask.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// An upstream that was unreachable has answered since somebody last heard so.
static RECOVERED: Notify = Notify::const_new();

/// Waits until an upstream answers that could not be reached, or had not since somebody last waited. What was kept of failures says
/// nothing any more then: the process has one who waits.
pub async fn recovered() {
    RECOVERED.notified().await;
}

/// What a whole failure weighs against an upstream; being overtaken weighs 1.
pub(super) const FAILURE: u32 = 4;

/// What is known of one upstream.
#[derive(Debug)]
pub(super) struct Health {
    address: SocketAddr,
    /// The last probe failed.
    out: AtomicBool,
    /// The last look for a loop found one.
    looping: AtomicBool,
    /// Since its last answer nobody was there, or no probe was answered. What names alone make it silent about does not count.
    unreachable: AtomicBool,
    /// It has answered a query or a probe, ever.
    heard: AtomicBool,
    /// A task probes it.
    probing: AtomicBool,
    /// Weight of the failures since the last success.
    strikes: AtomicU32,
    /// [`FAILURE`] times `max-fails`; 0: never suspected, never out.
    limit: u32,
    /// What was just asked of it to see whether it comes back.
    token: Mutex<Option<Token>>,
}

/// A random number that only those know who have just been asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(u128);

impl Token {
    /// As a name's label: 32 hexadecimal digits.
    pub fn label(self) -> [u8; 32] {
        let mut label = [0; 32];
        for (digit, octet) in label.iter_mut().enumerate() {
            let value = (self.0 >> (4 * digit) & 0xf) as u8;
            *octet = if value < 10 {
                b'0' + value
            } else {
                b'a' + value - 10
            };
        }
        label
    }
}

impl Health {
    /// Nothing is known yet: it counts as healthy.
    pub fn new(address: SocketAddr, max_fails: u32) -> Self {
        Self {
            address,
            out: AtomicBool::new(false),
            looping: AtomicBool::new(false),
            unreachable: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            probing: AtomicBool::new(false),
            strikes: AtomicU32::new(0),
            limit: max_fails.saturating_mul(FAILURE),
            token: Mutex::new(None),
        }
    }

    /// Whether the last probe failed.
    pub fn out(&self) -> bool {
        self.out.load(Relaxed)
    }

    /// Whether what it is asked comes back.
    pub fn looping(&self) -> bool {
        self.looping.load(Relaxed)
    }

    /// Whether it has ever answered.
    pub fn heard(&self) -> bool {
        self.heard.load(Relaxed)
    }

    /// Nobody was there.
    pub fn missed(&self) {
        self.unreachable.store(true, Relaxed);
    }

    /// It answered a query, with something other than that it could not. True if that was the first time.
    pub fn answered(&self) -> bool {
        self.strikes.store(0, Relaxed);
        if self.unreachable.load(Relaxed) && self.unreachable.swap(false, Relaxed) {
            RECOVERED.notify_one();
        }
        !self.heard() && !self.heard.swap(true, Relaxed)
    }

    /// Something speaks against it. True if it has to be probed by the caller, who alone gets to hear so and has
    /// to say when that is over ([`Self::probe_ended`]).
    pub(crate) fn strike(&self, weight: u32) -> bool {
        if self.limit == 0 || self.strikes.fetch_add(weight, SeqCst).saturating_add(weight) < self.limit {
            return false;
        }
        // Not left to grow until it wraps.
        self.strikes.store(self.limit, SeqCst);
        self.claim_probe()
    }

    /// Whether the caller is the one to probe it.
    pub(crate) fn claim_probe(&self) -> bool {
        // In one order with the strikes, or both sides of `probe_ended_unless_suspect` might rely on each other.
        !self.probing.swap(true, SeqCst)
    }

    /// Nobody probes it any more. Who sees it fail next does.
    pub(crate) fn probe_ended(&self) {
        self.probing.store(false, SeqCst);
    }

    /// The same, unless it failed meanwhile: then the result is true and the caller has to go on probing, since nobody else
    /// will.
    pub(crate) fn probe_ended_unless_suspect(&self) -> bool {
        self.probe_ended();
        self.limit > 0 && self.strikes.load(SeqCst) >= self.limit && self.claim_probe()
    }

    /// It answered a probe. True if it had never answered.
    pub(crate) fn probe_answered(&self) -> bool {
        if self.out.swap(false, Relaxed) {
            tracing::info!(upstream = %self.address, "the upstream answers again");
        }
        self.answered()
    }

    /// It did not answer a probe, or said that it could not.
    pub(crate) fn probe_failed(&self, why: &dyn std::fmt::Display) {
        self.missed();
        if self.limit > 0 && !self.out.swap(true, Relaxed) {
            tracing::warn!(upstream = %self.address, %why, "the upstream is out of use until it answers a probe");
        }
    }

    /// A token for one question that must not come back: good until it does, or until the search is dropped.
    pub(crate) fn look_for_loop(&self) -> Search<'_> {
        let token = Token(rand::random());
        *self.token.lock() = Some(token);
        Search { health: self, token }
    }

    /// Whether `label` is the token that this upstream is being asked for right now. Then it loops back to us, and
    /// the token is used up.
    pub fn found(&self, label: &[u8]) -> bool {
        let mut token = self.token.lock();
        // Some servers play with the case of what they forward.
        if !token.is_some_and(|token| label.eq_ignore_ascii_case(&token.label())) {
            return false;
        }
        *token = None;
        if !self.looping.swap(true, Relaxed) {
            tracing::error!(
                upstream = %self.address,
                "queries to this upstream come back to this proxy: it is not used until they no longer do; \
                 if they always do, remove it from `forward`, or make it forward elsewhere"
            );
        }
        true
    }
}

/// A question under way that must not come back.
pub(super) struct Search<'h> {
    health: &'h Health,
    /// What it asks for.
    pub token: Token,
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        let came_back = self.health.token.lock().take() != Some(self.token);
        if !came_back && self.health.looping.swap(false, Relaxed) {
            RECOVERED.notify_one();
            tracing::info!(upstream = %self.health.address, "queries to this upstream no longer come back to this proxy");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(max_fails: u32) -> Health {
        Health::new(([127, 0, 0, 1], 53).into(), max_fails)
    }

    #[test]
    fn failures_in_a_row_start_one_probe_and_decide_nothing() {
        let health = health(2);
        assert!(!health.strike(FAILURE));
        health.answered();
        assert!(!health.strike(FAILURE));
        assert!(health.strike(FAILURE));
        assert!(!health.strike(FAILURE), "a probe is already running");
        assert!(!health.out());
        health.probe_failed(&"silence");
        assert!(health.out());
        health.answered();
        assert!(health.out(), "the probe decides");
        health.probe_answered();
        assert!(!health.out());
        assert!(!health.probe_ended_unless_suspect());
        assert!(!health.strike(FAILURE));
        assert!(health.strike(FAILURE));
        assert!(health.probe_ended_unless_suspect(), "nothing was found out since");
        health.probe_ended();
        assert!(health.strike(FAILURE));
    }

    #[test]
    fn zero_max_fails_never_suspects_it() {
        let health = health(0);
        assert!((0..100).all(|_| !health.strike(FAILURE)));
        health.probe_failed(&"silence");
        assert!(!health.out());
    }

    #[test]
    fn strikes_do_not_wrap() {
        let health = health(u32::MAX);
        for _ in 0..3 {
            health.strikes.store(u32::MAX - 1, Relaxed);
            health.strike(FAILURE);
            assert_eq!(health.strikes.load(Relaxed), u32::MAX);
        }
    }

    #[test]
    fn a_token_is_good_once_and_only_while_it_is_asked_for() {
        let health = health(2);
        let search = health.look_for_loop();
        let label = search.token.label();
        drop(search);
        assert!(!health.found(&label), "nobody asks for it any more");

        let search = health.look_for_loop();
        assert!(!health.found(&label), "it is another one each time");
        assert!(!health.found(b"www"));
        let label = search.token.label().to_ascii_uppercase();
        assert!(health.found(&label) && health.looping());
        assert!(!health.found(&label), "it is used up");
        drop(search);
        assert!(health.looping());

        drop(health.look_for_loop());
        assert!(!health.looping(), "this one did not come back");
    }
}
