//! Probes: our own queries that find out whether an upstream answers, and whether it loops back to us.
//!
//! *Whether it answers*: a probe asks for the zone's NS records, which an authoritative server of the zone
//! knows and a resolver has at hand (for the root, CoreDNS asks the same). SERVFAIL and REFUSED count as
//! failures: a server that answers so for the zone itself has nothing better for the names in it.
//!
//! *Whether it loops back*: a probe asks for a name below the zone that does not exist, a fresh token per
//! probe, valid once and until its exchange is over. Servers on the way can read the token, so it must be
//! worthless to them later. A looping upstream is probed again and again, each time after twice the pause: at
//! boot, the rules that keep our queries from coming back may be installed after we start.

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

/// The most sockets that probes hold at a time, over all stages of the process. There may be thousands of
/// zones, and queries need sockets, too.
pub const PROBE_SOCKETS: usize = 16;
static SOCKETS: Semaphore = Semaphore::const_new(PROBE_SOCKETS);

/// The shortest pause, so that an upstream that refuses at once is not probed in a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);
/// A loop probe that is not back within this time is held up elsewhere.
const LOOP_TIME: Duration = Duration::from_millis(500);
/// The longest pause between two loop probes.
const LOOP_PAUSE: Duration = Duration::from_secs(8);

impl Forwarder {
    /// Starts probing every upstream: whether it answers, and whether it loops back. Only the first call has
    /// an effect; it must come from a `LocalRuntime`.
    pub(super) fn begin_probing(&self) {
        if self.begun.swap(true, Relaxed) {
            return;
        }
        for (index, upstream) in self.upstreams.iter().enumerate() {
            if upstream.health.claim_probe() {
                start(self, index, true);
            }
        }
    }

    /// Starts probing an upstream if `suspect` says that this is up to the caller.
    pub(super) fn probe(&self, index: usize, suspect: bool) {
        if suspect {
            start(self, index, false);
        }
    }

    /// Whether probing must go on: the upstream is out, loops back or has never answered.
    fn has_no_answer_of(&self, index: usize) -> bool {
        let upstream = &self.upstreams[index];
        !upstream.healthy() || !upstream.health.heard()
    }

    /// Handles a received HINFO query for this name (in wire format). If an upstream is being asked for that
    /// very name as a loop probe, it loops back to us: the result is true, and the query deserves no answer.
    pub(super) fn loop_found(&self, name: &[u8]) -> bool {
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

/// Probes the upstream with this index until it answers and does not loop back. The caller ensures that only
/// one such task runs per upstream; the task ends with its forwarder, which it does not keep alive. With
/// `look`, it also probes for a loop from the start.
fn start(forwarder: &Forwarder, index: usize, look: bool) {
    let every = forwarder.config.probe.max(SHORTEST);
    let mut watch = Watch {
        forwarder: forwarder.me.clone(),
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
            // Pause even if all is well: queries for names without an answer must not make us probe all the
            // time.
            sleep(every).await;
            let Some(forwarder) = watch.forwarder.upgrade() else {
                return;
            };
            let health = &forwarder.upstreams[index].health;
            if !forwarder.has_no_answer_of(index) && !health.probe_ended_unless_suspect() {
                // The right has been released already.
                watch.forwarder = Weak::new();
                return drop(watch);
            }
        }
    });
}

/// The right to probe an upstream, released even if its worker drops the task half-way.
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

/// Sends a probe, and repeats it once if the query or its answer may have been lost.
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
        // Our fault, not the upstream's.
        Err(Fault::Local(_) | Fault::Denied | Fault::Busy | Fault::Forged) => return,
        Err(fault) => upstream.health.probe_failed(&fault),
    }
    upstream.counters.failed_probes.fetch_add(1, Relaxed);
}

/// Sends a loop probe: a query that must not come back.
async fn look_for_loop(forwarder: &Forwarder, index: usize) {
    let upstream = &forwarder.upstreams[index];
    let search = upstream.health.look_for_loop();
    // If the zone's name leaves no room for the token, there is no loop probe.
    if let Some(query) = question(&search.token.label(), &forwarder.zone, rtype::HINFO) {
        // The answer does not matter.
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
    // Never closed. Probe sockets are counted here, not with those of queries.
    let _socket = SOCKETS.acquire().await;
    let once = Keeping {
        idle: Duration::ZERO,
        max_age: None,
    };
    match forwarder.config.protocol {
        Protocol::Udp => {
            // A fresh socket: it must neither affect queries nor be affected by them.
            let sockets = udp::Sockets::new(upstream.clone(), Quotas::unbounded());
            timeout(limit, sockets.exchange(query, Instant::now()))
                .await
                .unwrap_or(Err(Fault::Timeout))
        }
        // A fresh connection: an old one may be what is broken.
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

/// A query with RD for `zone`, or for `label` below it unless that is empty; none if the name gets too long.
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
