//! Whether an upstream is in use: what raises the suspicion that it is down, and what a probe found.
//!
//! Failed queries prove little: names whose own servers are silent make a healthy upstream silent, and a
//! broken domain makes it return SERVFAIL. So failures only start a [`probe`](super::probe), and the probe
//! decides, with a question that a working upstream answers. Clients cannot take an upstream out by what they
//! ask.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Notified when an unreachable or looping upstream works again.
static RECOVERED: Notify = Notify::const_new();

/// Waits until an unreachable or looping upstream works again, or returns at once if one does since the last
/// call. Cached failures are outdated then. There is one waiter per process.
pub async fn recovered() {
    RECOVERED.notified().await;
}

/// The weight of a failure against an upstream; being overtaken weighs 1.
pub(super) const FAILURE: u32 = 4;

/// What is known of one upstream.
#[derive(Debug)]
pub(super) struct Health {
    address: SocketAddr,
    /// The last probe failed.
    out: AtomicBool,
    /// The last look for a loop found one.
    looping: AtomicBool,
    /// Since its last answer, a server was absent or a probe failed. Timeouts do not count: names can cause
    /// them.
    unreachable: AtomicBool,
    /// It has answered a query or a probe at least once.
    heard: AtomicBool,
    /// A task is probing it.
    probing: AtomicBool,
    /// Weight of the failures since the last success.
    strikes: AtomicU32,
    /// [`FAILURE`] times `max-fails`; 0: never suspected, never out.
    limit: u32,
    /// Why the last failed probe failed.
    fault: Mutex<String>,
    /// The token that the loop probe under way asks for.
    token: Mutex<Option<Token>>,
}

/// A random number known only to those that were just asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(u128);

impl Token {
    /// The token as a label: 32 hexadecimal digits.
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
    /// Nothing is known yet, so it counts as healthy.
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
            fault: Mutex::default(),
            token: Mutex::new(None),
        }
    }

    /// Whether the last probe failed.
    pub fn out(&self) -> bool {
        self.out.load(Relaxed)
    }

    /// Why the last probe failed; `None` if it was answered.
    pub fn fault(&self) -> Option<String> {
        self.out().then(|| self.fault.lock().clone())
    }

    /// Whether queries to it come back.
    pub fn looping(&self) -> bool {
        self.looping.load(Relaxed)
    }

    /// Whether it has ever answered.
    pub fn heard(&self) -> bool {
        self.heard.load(Relaxed)
    }

    /// Records that no server was there.
    pub fn missed(&self) {
        self.unreachable.store(true, Relaxed);
    }

    /// Records a reply other than SERVFAIL and REFUSED. Returns true for the first one.
    pub fn answered(&self) -> bool {
        self.strikes.store(0, Relaxed);
        if self.unreachable.load(Relaxed) && self.unreachable.swap(false, Relaxed) {
            RECOVERED.notify_one();
        }
        !self.heard() && !self.heard.swap(true, Relaxed)
    }

    /// Adds the weight of a failure. Returns true if the caller must probe it; only one caller is told so,
    /// and it must call [`Self::probe_ended`] afterwards.
    pub(crate) fn strike(&self, weight: u32) -> bool {
        if self.limit == 0 || self.strikes.fetch_add(weight, SeqCst).saturating_add(weight) < self.limit {
            return false;
        }
        // Caps the sum, so that it cannot wrap.
        self.strikes.store(self.limit, SeqCst);
        self.claim_probe()
    }

    /// Whether the caller is the one to probe it.
    pub(crate) fn claim_probe(&self) -> bool {
        // Ordered with the strikes: otherwise both sides of `probe_ended_unless_suspect` might leave the
        // probe to the other.
        !self.probing.swap(true, SeqCst)
    }

    /// Ends probing. The next failure starts it again.
    pub(crate) fn probe_ended(&self) {
        self.probing.store(false, SeqCst);
    }

    /// Ends probing, unless it failed meanwhile: then the result is true and the caller must go on, since no
    /// other task will.
    pub(crate) fn probe_ended_unless_suspect(&self) -> bool {
        self.probe_ended();
        self.limit > 0 && self.strikes.load(SeqCst) >= self.limit && self.claim_probe()
    }

    /// Records an answered probe. Returns true if it had never answered before.
    pub(crate) fn probe_answered(&self) -> bool {
        if self.out.swap(false, Relaxed) {
            tracing::info!(upstream = %self.address, "the upstream answers again");
        }
        self.answered()
    }

    /// Records a probe without an answer, or one with SERVFAIL or REFUSED.
    pub(crate) fn probe_failed(&self, why: &dyn std::fmt::Display) {
        self.missed();
        if self.limit == 0 {
            return;
        }
        let why = why.to_string();
        self.fault.lock().clone_from(&why);
        if !self.out.swap(true, Relaxed) {
            tracing::warn!(upstream = %self.address, why, "the upstream is out of use until it answers a probe");
        }
    }

    /// Creates the token of a loop probe: valid until it comes back, or until the search is dropped.
    pub(crate) fn look_for_loop(&self) -> Search<'_> {
        let token = Token(rand::random());
        *self.token.lock() = Some(token);
        Search { health: self, token }
    }

    /// Whether `label` is the token of this upstream's current loop probe. Then it loops back to us, and the
    /// token is used up.
    pub fn found(&self, label: &[u8]) -> bool {
        let mut token = self.token.lock();
        // Some servers change the case of names that they forward.
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

/// A loop probe under way.
pub(super) struct Search<'h> {
    health: &'h Health,
    /// The token that it asks for.
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
        health.probe_failed(&"SERVFAIL");
        assert_eq!(health.fault().as_deref(), Some("SERVFAIL"), "the last one");
        health.probe_answered();
        assert!(!health.out());
        assert_eq!(health.fault(), None);
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
