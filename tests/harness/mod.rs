//! The common ground of the tests: the proxy itself, servers for it to ask, clients to ask it.
//!
//! Every server gets its own loopback address, so tests run side by side without choosing ports. Nothing here
//! waits for time to pass: it waits for a condition, and for a bounded time only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it found"
)]

pub mod address;
pub mod api_server;
pub mod browser;
pub mod certificates;
pub mod client;
pub mod encrypted;
pub mod failing;
pub mod guests;
pub mod message;
pub mod metrics;
pub mod namespace;
pub mod pods;
pub mod process;
pub mod proxy;
pub mod registry;
pub mod servers;
pub mod sigstore;
pub mod soak;
pub mod tools;
pub mod upstream;
pub mod web;

use std::time::{Duration, Instant};

pub use client::{Stream, ask, exchange, unanswered};
pub use message::{Message, Record, flags};
pub use proxy::{ONCE, Proxy, forward_once};
pub use tools::needs;
pub use upstream::{Reply, Upstream};

/// The limit for anything. Generous, because only a failure ever reaches it, and other tests may keep the
/// machine busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until the condition returns a value; `what` names it in the failure message.
#[track_caller]
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the condition holds.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, || condition().then_some(()));
}
