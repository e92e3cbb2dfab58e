//! Resolution with upstreams that forge, lose, hang and refuse.

mod attempts;
mod edns;
pub(super) mod fake;
mod health;
mod loops;
mod messages;
mod pipelining;
mod replies;
mod sockets;

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::counters::Reason;
use super::failure::Fault;
use super::{Failure, Forward, Forwarder, Quota};
use crate::config::{self, Policy, Protocol};
use crate::dns::name::Name;
use crate::dns::rcode::{FORMERR, NOTIMP, REFUSED, SERVFAIL};
use dnsweir_answer::Upkeep as _;
use fake::*;

/// Well below the timeouts of [`config`], well above what loopback takes on a busy machine.
const PROMPT: Duration = Duration::from_secs(10);

fn forward(config: &config::Forward) -> Rc<Forward> {
    below(".", config)
}

/// A stage of `zone`.
fn below(zone: &str, config: &config::Forward) -> Rc<Forward> {
    Forward::new(
        Forwarder::new(config, &Name::parse(zone).unwrap(), 1),
        &Quota::new(usize::MAX),
    )
}

fn to(upstreams: &[SocketAddr]) -> Rc<Forward> {
    forward(&config(upstreams))
}

/// The longest wait for an event.
const SOON: Duration = Duration::from_secs(10);

async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, waiting)
        .await
        .expect("it did not happen");
}

/// The same for a condition that takes a query to check.
async fn until_async<F: Future<Output = bool>>(what: impl Fn() -> F) {
    let waiting = async { while !what().await {} };
    tokio::time::timeout(6 * SOON, waiting)
        .await
        .expect("it did not happen");
}

impl Forward {
    fn failures(&self, index: usize, reason: Reason) -> u64 {
        self.shared.upstreams()[index].counters.failures[reason as usize].load(Relaxed)
    }
}

/// An RCODE that fits into a header.
fn code(rcode: u16) -> u8 {
    u8::try_from(rcode).unwrap()
}
