//! Probes: queries of our own that find out whether an upstream answers, and whether it loops back to us.
//!
//! *Whether it answers* is asked with the zone's own NS records, which an authoritative server of the zone knows and a
//! resolver has at hand (for the root, CoreDNS asks the same). SERVFAIL and REFUSED are no answer: a server that says so
//! of the zone itself has nothing better for the names in it.
//!
//! *Whether it loops back* is asked with a name below the zone that exists nowhere: a token of its own for each such
//! question, good once and until its exchange is over. Servers on the way can read it, so it must be worth nothing to
//! them later. A looping upstream is asked again and again, each time after twice the time: at boot, the rules
//! that keep our queries from ourselves may come later than we do.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Keeping;
use super::counters::Reason;
use super::failure::Fault;
use super::forwarder::Forwarder;
use super::message::{Query, Reply};
use super::multiplexed::Multiplexed;
use super::pool::Pool;
use super::quota::Quotas;
use super::udp;
use super::upstream::Upstream;
use crate::config::{Encryption, Protocol};
use crate::dns::name::{NAME_MAXIMUM, Name};
use crate::dns::{CLASS_IN, rtype};

/// Sockets that probes may hold at the same time, over all stages of the process. There may be thousands of zones, and
/// queries need some, too.
pub const PROBE_SOCKETS: usize = 16;
static SOCKETS: Semaphore = Semaphore::const_new(PROBE_SOCKETS);

/// An upstream that refuses at once is not asked in a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);
/// What does not come back within this time is held up elsewhere.
const LOOP_TIME: Duration = Duration::from_millis(500);
/// The longest time between two looks for a loop.
const LOOP_PAUSE: Duration = Duration::from_secs(8);

impl Forwarder {
    /// Starts to probe every upstream: whether it answers, and whether it loops back. Only the first call does
    /// anything; it must come from a `LocalRuntime`.
    pub fn begin(self: &Arc<Self>) {
        if self.begun.swap(true, Relaxed) {
            return;
        }
        for (index, upstream) in self.upstreams.iter().enumerate() {
            if upstream.health.claim_probe() {
                start(self, index, true);
            }
        }
    }

    /// Has an upstream probed, if `suspect` says that the caller is the one to do so.
    pub(super) fn probe(self: &Arc<Self>, index: usize, suspect: bool) {
        if suspect {
            start(self, index, false);
        }
    }

    /// Whether probing has to continue: the upstream is out or loops back, or has never answered.
    fn has_no_answer_of(&self, index: usize) -> bool {
        let upstream = &self.upstreams[index];
        !upstream.healthy() || !upstream.health.heard()
    }

    /// Tells that a HINFO query for this name (in wire format) was received. If it is what one of the upstreams is
    /// being asked just now to see whether it comes back, that upstream loops back to us, and the result is
    /// true: the query deserves no answer.
    pub fn loop_found(&self, name: &[u8]) -> bool {
        let Some((&length, rest)) = name.split_first() else {
            return false;
        };
        let Some((label, below)) = rest.split_at_checked(length.into()) else {
            return false;
        };
        let mut upstreams = self.upstreams.iter();
        let found = upstreams.find(|upstream| {
            below.eq_ignore_ascii_case(self.zone.as_bytes()) && upstream.health.found(label)
        });
        found
            .inspect(|upstream| {
                upstream.counters.loops.fetch_add(1, Relaxed);
            })
            .is_some()
    }
}

/// Probes an upstream, by its index, until it answers and does not loop back. The caller makes sure that only one
/// such task runs for it; the task ends with its forwarder, which it does not keep alive. `look`: for a loop as well,
/// from the start.
fn start(forwarder: &Arc<Forwarder>, index: usize, look: bool) {
    let every = forwarder.config.probe.max(SHORTEST);
    let mut watch = Watch {
        forwarder: Arc::downgrade(forwarder),
        index,
    };
    tokio::task::spawn_local(async move {
        let first = if look { Duration::ZERO } else { every };
        let (mut look_at, mut pause) = (Instant::now() + first, every);
        loop {
            {
                let Some(forwarder) = watch.forwarder.upgrade() else {
                    return;
                };
                if Instant::now() >= look_at {
                    look_for_loop(&forwarder, index).await;
                    pause = (pause * 2).min(LOOP_PAUSE.max(every));
                    look_at = Instant::now() + pause;
                }
                if !forwarder.upstreams[index].looping() {
                    probe(&forwarder, index).await;
                }
            }
            // The pause comes even if all is well: clients that ask for silent names must not make us probe all the time.
            sleep(every).await;
            let Some(forwarder) = watch.forwarder.upgrade() else {
                return;
            };
            let health = &forwarder.upstreams[index].health;
            if !forwarder.has_no_answer_of(index) && !health.probe_ended_unless_suspect() {
                // It has been given back.
                watch.forwarder = Weak::new();
                return drop(watch);
            }
        }
    });
}

/// The right to probe an upstream, given back even if the task is dropped half-way with its worker.
struct Watch {
    forwarder: Weak<Forwarder>,
    index: usize,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(forwarder) = self.forwarder.upgrade() {
            forwarder.upstreams[self.index].health.probe_ended();
        }
    }
}

/// Asks whether the upstream answers, twice if the first question or its answer may have been lost.
async fn probe(forwarder: &Forwarder, index: usize) {
    let upstream = &forwarder.upstreams[index];
    let Some(query) = question(&[], &forwarder.zone, rtype::NS) else {
        return;
    };
    let mut outcome = Err(Fault::Timeout);
    for _ in 0..2 {
        outcome = ask(forwarder, upstream, &query, forwarder.config.timeout / 2).await;
        if outcome.as_ref().err() != Some(&Fault::Timeout) {
            break;
        }
    }
    match outcome {
        Ok(reply) => match Reason::of_rcode(reply.rcode) {
            None => {
                if upstream.health.probe_answered() {
                    forwarder.heard();
                }
                return;
            }
            Some(reason) => upstream.health.probe_failed(&format_args!(
                "it answers {} for the zone {} itself",
                reason.as_str(),
                forwarder.zone
            )),
        },
        // Ours, not the upstream's.
        Err(Fault::Local(_) | Fault::Denied | Fault::Busy | Fault::Forged) => return,
        Err(fault) => upstream.health.probe_failed(&fault),
    }
    upstream.counters.failed_probes.fetch_add(1, Relaxed);
}

/// Asks for a name that must not come back.
async fn look_for_loop(forwarder: &Forwarder, index: usize) {
    let upstream = &forwarder.upstreams[index];
    let search = upstream.health.look_for_loop();
    // Where the zone's name leaves no room, nothing is looked for.
    if let Some(query) = question(&search.token.label(), &forwarder.zone, rtype::HINFO) {
        // The answer is of no interest.
        let _ = ask(
            forwarder,
            upstream,
            &query,
            forwarder.config.timeout.min(LOOP_TIME),
        )
        .await;
    }
}

async fn ask(
    forwarder: &Forwarder,
    upstream: &Arc<Upstream>,
    query: &Rc<Query>,
    limit: Duration,
) -> Result<Reply, Fault> {
    // Never closed; the probes' sockets are counted here, and not with those of queries.
    let _socket = SOCKETS.acquire().await;
    let once = Keeping {
        idle: Duration::ZERO,
        max_age: None,
    };
    match forwarder.config.protocol {
        Protocol::Udp => {
            // A socket of its own: it says nothing about queries, nor they about it.
            let sockets = udp::Sockets::new(upstream.clone(), Quotas::unbounded());
            timeout(limit, sockets.exchange(query, Instant::now()))
                .await
                .unwrap_or(Err(Fault::Timeout))
        }
        // A connection of its own: an old one is what may be broken.
        Protocol::Encrypted(Encryption::Https | Encryption::Quic) => {
            let (config, quotas) = (&forwarder.config, Quotas::unbounded());
            Multiplexed::new(upstream.clone(), quotas, config, once, limit)
                .exchange(query, limit)
                .await
        }
        Protocol::Tcp | Protocol::Encrypted(Encryption::Tls) => {
            Pool::new(upstream.clone(), Quotas::unbounded(), 1, once, limit)
                .exchange(query, limit)
                .await
        }
    }
}

/// A query with RD set for `label`, if there is one, below `zone`; none if that is no name any more.
fn question(label: &[u8], zone: &Name, rtype: u16) -> Option<Rc<Query>> {
    let mut message = vec![0, 0, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let start = message.len();
    if !label.is_empty() {
        message.push(u8::try_from(label.len()).ok()?);
        message.extend_from_slice(label);
    }
    message.extend_from_slice(zone.as_bytes());
    if message.len() - start > NAME_MAXIMUM {
        return None;
    }
    message.extend_from_slice(&rtype.to_be_bytes());
    message.extend_from_slice(&CLASS_IN.to_be_bytes());
    Query::new(message).ok().map(Rc::new)
}
