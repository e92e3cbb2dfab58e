//! One worker's sockets, and one attempt: everything tried at one upstream before it counts as failed.
//!
//! - A truncated answer is fetched again over TCP, and a query that an old server does not understand is
//!   repeated without EDNS; both at the same upstream and within the same attempt. If the upstream is silent
//!   about EDNS, the last attempt goes without; after two answers that came only that way, all attempts do.
//! - Failures only raise the suspicion that an upstream is down: a [`probe`](super::probe) decides.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::alarms::Alarms;
use super::connection::Keeping;
use super::counters::Reason;
use super::denied;
use super::failure::Fault;
use super::forwarder::Forwarder;
use super::left_behind::LeftBehind;
use super::message::{Query, Reply};
use super::multiplexed::Multiplexed;
use super::pool::Pool;
use super::quota::{Quota, Quotas};
use super::udp;
use super::upstream::Upstream;
use crate::config::{Encryption, Protocol};
use crate::dns::Transport;
use crate::dns::rcode;

/// One worker's sockets for a [`Forwarder`]. Lives on a `LocalRuntime`.
pub struct Forward {
    pub(super) shared: Arc<Forwarder>,
    /// One per upstream.
    sockets: Vec<udp::Sockets>,
    /// One per upstream.
    pub(super) pools: Vec<Pool>,
    /// One per upstream.
    multiplexed: Vec<Multiplexed>,
    /// The timers of this worker's queries.
    pub(super) alarms: Alarms,
    pub(super) left: Rc<LeftBehind>,
}

impl Forward {
    /// Opens nothing yet. `process` bounds the upstream sockets of all stages together.
    pub fn new(shared: Arc<Forwarder>, process: &Arc<Quota>) -> Rc<Self> {
        let config = &shared.config;
        let keeping = Keeping {
            idle: config.idle,
            max_age: config.max_age,
        };
        let quotas = || Quotas {
            stage: Arc::clone(&shared.sockets),
            process: Arc::clone(process),
        };
        let sockets = |upstream: &Arc<Upstream>| udp::Sockets::new(Arc::clone(upstream), quotas());
        let pool = |upstream: &Arc<Upstream>| {
            let limit = config.connections.max(1);
            Pool::new(Arc::clone(upstream), quotas(), limit, keeping, config.timeout)
        };
        let multiplexed = |upstream: &Arc<Upstream>| {
            Multiplexed::new(Arc::clone(upstream), quotas(), config, keeping, config.timeout)
        };
        Rc::new(Self {
            sockets: shared.upstreams.iter().map(sockets).collect(),
            pools: shared.upstreams.iter().map(pool).collect(),
            multiplexed: shared.upstreams.iter().map(multiplexed).collect(),
            alarms: Alarms::default(),
            left: LeftBehind::new(Arc::clone(process)),
            shared,
        })
    }

    /// The query in the form sent to this upstream: padded over TLS; without EDNS if nothing is lost by that
    /// and the upstream is known to drop it, or may (it was silent so far and this is the `last` try).
    pub(super) fn as_asked(&self, index: usize, query: &Rc<Query>, last: bool) -> Rc<Query> {
        let upstream = &self.shared.upstreams[index];
        if upstream.secured.is_some() {
            // A server that speaks TLS knows EDNS.
            return query.padded().map_or_else(|| Rc::clone(query), Rc::new);
        }
        if (last || upstream.drops_edns())
            && let Some(plain) = query.without_idle_edns()
        {
            upstream.counters.without_edns.fetch_add(1, Relaxed);
            return Rc::new(plain);
        }
        query.clone()
    }

    /// Tries one upstream until it counts as failed, starting at `now`.
    pub(super) async fn attempt(
        self: Rc<Self>,
        index: usize,
        over: Protocol,
        mut query: Rc<Query>,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let upstream = &self.shared.upstreams[index];
        let counters = &upstream.counters;
        let mut reply = self.exchange(index, over, &query, now, deadline).await?;
        if self.left.is_polled() {
            return Ok(reply);
        }
        if let Some(with) = query.has_edns()
            && over == Protocol::Udp
            // A query sent without EDNS because of that memory must not renew it.
            && (with || !upstream.drops_edns())
        {
            upstream.answered_edns(with);
        }
        // RFC 6891 section 6.2.2: the OPT record may be all that the server rejects. This is not remembered,
        // since the reply may concern only this one query.
        if matches!(reply.rcode, rcode::FORMERR | rcode::NOTIMP | rcode::BADVERS)
            && let Some(plain) = query.without_edns()
        {
            counters.without_edns.fetch_add(1, Relaxed);
            query = Rc::new(plain);
            reply = self
                .exchange(index, over, &query, Instant::now(), deadline)
                .await?;
        }
        if reply.truncated && over == Protocol::Udp {
            counters.truncated.fetch_add(1, Relaxed);
            reply = self
                .exchange(index, Protocol::Tcp, &query, Instant::now(), deadline)
                .await?;
        }
        Ok(reply)
    }

    /// Sends one query, waits for its reply and records the outcome; starts at `begin`, which is now.
    async fn exchange(
        &self,
        index: usize,
        over: Protocol,
        query: &Rc<Query>,
        begin: Instant,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let (config, upstream) = (&self.shared.config, &self.shared.upstreams[index]);
        let counters = &upstream.counters;
        let limit = config.timeout.min(deadline.saturating_duration_since(begin));
        let outcome = match over {
            Protocol::Udp => {
                counters.udp.fetch_add(1, Relaxed);
                let reply = self.sockets[index].exchange(query, begin);
                let reply = self.alarms.within(begin + limit, reply).await;
                reply.unwrap_or(Err(Fault::Timeout))
            }
            Protocol::Encrypted(Encryption::Https | Encryption::Quic) => {
                counters.tcp.fetch_add(1, Relaxed);
                Box::pin(self.multiplexed[index].exchange(query, limit)).await
            }
            Protocol::Tcp | Protocol::Encrypted(Encryption::Tls) => {
                counters.tcp.fetch_add(1, Relaxed);
                // Boxed, or every attempt over UDP would be as large.
                Box::pin(self.pools[index].exchange(query, limit)).await
            }
        };
        let took = begin.elapsed();
        if let Some(tap) = &query.tap {
            query.tell(
                tap,
                upstream.address,
                transport(over),
                took,
                outcome.as_ref().ok(),
            );
        }
        self.note(index, over, &outcome, took, limit);
        outcome
    }

    /// Counts the outcome of a query, and judges the upstream by it; it had at most `limit`.
    fn note(
        &self,
        index: usize,
        over: Protocol,
        outcome: &Result<Reply, Fault>,
        took: Duration,
        limit: Duration,
    ) {
        let (config, upstream) = (&self.shared.config, &self.shared.upstreams[index]);
        let is_left = self.left.is_polled();
        match outcome {
            Ok(reply) => {
                upstream.counters.reply(took);
                if is_left {
                    return;
                }
                // TCP after a truncated UDP answer takes several round trips, so it is not measured.
                if over == config.protocol {
                    upstream.measured(took);
                }
                match Reason::of_rcode(reply.rcode) {
                    Some(_) => self.shared.probe(index, upstream.declined()),
                    None if upstream.health.answered() => self.shared.heard(),
                    None => {}
                }
            }
            Err(fault) => {
                upstream.counters.failure((*fault).into());
                if *fault == Fault::Denied {
                    denied::tell(upstream.address);
                }
                // A timeout cut short by the deadline proves nothing, unless it exceeded the RTO.
                let fair = *fault != Fault::Timeout || limit == config.timeout || took >= upstream.rto();
                // A server that refuses TCP may be well otherwise.
                if !is_left && fair && over == config.protocol {
                    self.shared.probe(index, upstream.failed(*fault));
                }
            }
        }
    }
}

fn transport(over: Protocol) -> Transport {
    match over {
        Protocol::Udp => Transport::Udp,
        Protocol::Tcp => Transport::Tcp,
        Protocol::Encrypted(Encryption::Tls) => Transport::Tls,
        Protocol::Encrypted(Encryption::Https) => Transport::Https,
        Protocol::Encrypted(Encryption::Quic) => Transport::Quic,
    }
}
