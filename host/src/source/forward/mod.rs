//! Asks other servers for what is not known here.
//!
//! [`Forwarder`] is what all workers share about the upstreams of one `forward` stage; [`Forward`] is one
//! worker's sockets for it. [`Forward::resolve`] is one query: a race of attempts, of which the first
//! answer wins.
//!
//! - The policy orders the upstreams; an attempt that fails is followed at once by one at the next. One
//!   upstream alone is asked again, if what went wrong may pass.
//! - An upstream that is silent for longer than it usually takes is not given up, but the next attempt
//!   begins beside it. So a lost packet costs ten milliseconds and not the whole timeout. `attempts` bounds
//!   what is sent for one query, and [`upstream`] what is sent early for all of them.
//! - An upstream that was silent three times is asked over TCP the fourth time.
//! - SERVFAIL and REFUSED make it try the next one. If no other says anything else, they are the answer.
//! - A truncated answer is asked for again over TCP, a query that an old server does not understand without
//!   EDNS, both at the same upstream and as part of the same attempt. One that is silent about EDNS gets the
//!   last attempt without; after two answers that came only so, all of them.
//! - Failures only raise the suspicion that an upstream is out of order: a [`probe`] decides.
//!
//! It does not cache, does not coalesce, does not follow CNAMEs, and changes nothing in an answer but its
//! ID (RFC 5625 section 4).

mod bounds;
mod counters;
mod descriptors;
mod failure;
mod health;
mod message;
mod pace;
mod policy;
mod probe;
mod tcp;
mod udp;
mod upstream;

#[cfg(test)]
mod tests;

use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

pub use counters::{Counters, Reason};
pub use descriptors::bound_sockets;
pub use failure::{Failure, Fault};
pub use message::NotAQuery;
pub use probe::PROBE_SOCKETS;
pub use upstream::Upstream;

use crate::admission::{Full, JOSTLE, Place, Room};
use crate::config::{self, Protocol};
use crate::dns::name::Name;
use crate::dns::rcode;
use bounds::Quota;
use message::{Query, Reply};
use policy::Rotation;

/// How often one query is sent to one upstream in a datagram (RFC 9520 section 3.1).
const MOST_DATAGRAMS: usize = 3;

/// One `forward` stage, as all workers share it. It outlives a reload that changes neither the stage nor its zone.
#[derive(Debug)]
pub struct Forwarder {
    config: config::Forward,
    /// What probes ask for, and below: the first name of the stage's zone.
    zone: Name,
    upstreams: Vec<Arc<Upstream>>,
    /// Queries so far, by which round-robin turns.
    position: AtomicUsize,
    /// The `concurrent` queries.
    under_way: Arc<Room>,
    sockets: Arc<Quota>,
    begun: AtomicBool,
    /// Whether any upstream has ever answered.
    answered: watch::Sender<bool>,
}

impl Forwarder {
    /// A stage of `zone`, for so many workers. Nothing is known about the upstreams yet: all count as healthy.
    pub fn new(config: &config::Forward, zone: &Name, workers: usize) -> Arc<Self> {
        let upstreams = config
            .upstreams
            .iter()
            .map(|&address| Arc::new(Upstream::new(address, config.max_fails)));
        Arc::new(Self {
            upstreams: upstreams.collect(),
            config: config.clone(),
            zone: zone.clone(),
            position: AtomicUsize::new(0),
            under_way: Room::new(config.concurrent),
            sockets: Quota::new(config.most_sockets(workers)),
            begun: AtomicBool::new(false),
            answered: watch::Sender::new(false),
        })
    }

    /// How long a query that is under way is safe from others: for what upstreams usually take, if nothing is written.
    fn jostle(&self) -> Duration {
        let usual = || self.upstreams.iter().map(|upstream| upstream.rto()).max();
        self.config
            .jostle
            .unwrap_or_else(|| usual().map_or(JOSTLE, |usual| usual.min(JOSTLE)))
    }

    /// Whether it is what [`Self::new`] would make of these.
    pub fn is_for(&self, config: &config::Forward, zone: &Name) -> bool {
        self.config == *config && self.zone == *zone
    }

    /// Has every upstream looked at: whether it answers, and whether it leads back. Only the first call does
    /// anything; it must come from a `LocalRuntime`.
    pub fn begin(self: &Arc<Self>) {
        if self.begun.swap(true, Relaxed) {
            return;
        }
        for (index, upstream) in self.upstreams.iter().enumerate() {
            if upstream.health.claim_probe() {
                probe::start(self, index, true);
            }
        }
    }

    /// The first name of its zone.
    pub fn zone(&self) -> &Name {
        &self.zone
    }

    /// Whether any upstream has ever answered, with something else than SERVFAIL and REFUSED.
    pub fn has_answer(&self) -> bool {
        *self.answered.borrow()
    }

    /// Waits until [`Self::has_answer`].
    pub async fn answer(&self) {
        // The sender lives as long as this does.
        let _ = self.answered.subscribe().wait_for(|answered| *answered).await;
    }

    /// Whether there is nobody to ask, since every upstream leads back to this proxy.
    pub fn only_loops(&self) -> bool {
        self.upstreams.iter().all(|upstream| upstream.looping())
    }

    /// In the order of the configuration.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// Queries being forwarded at the moment, over all workers.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Tells that a HINFO query for this name (in wire format) was received. If it is what one of the upstreams is
    /// being asked just now to see whether it comes back, that upstream leads back to us, and the result is
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

    /// An upstream has answered for the first time.
    fn heard(&self) {
        self.answered.send_replace(true);
    }

    /// Whether this upstream is to be probed on: it is out or leads back, or nobody would be told that it is neither.
    fn has_no_answer_of(&self, index: usize) -> bool {
        let upstream = &self.upstreams[index];
        !upstream.healthy() || !upstream.health.heard()
    }

    /// Has an upstream probed, if `suspect` says that the caller is the one to do so.
    fn probe(self: &Arc<Self>, index: usize, suspect: bool) {
        if suspect {
            probe::start(self, index, false);
        }
    }

    fn rotation(&self) -> Rotation {
        let (live, reserve) = (0..self.upstreams.len())
            .filter(|&index| !self.upstreams[index].looping())
            .partition(|&index| self.upstreams[index].healthy());
        Rotation::new(
            self.config.policy,
            self.position.fetch_add(1, Relaxed),
            live,
            reserve,
        )
    }

    /// A place among the `concurrent` queries, which whoever calls [`Forward::resolve`] holds meanwhile; `about` is what
    /// names share that are likely to be silent together, the end of a name. Until the place is dropped, another query
    /// may displace it: then this one is to be given up.
    ///
    /// # Errors
    /// As many are under way, and none has to give way.
    pub fn admit(&self, client: IpAddr, about: &[u8]) -> Result<Place, Failure> {
        self.under_way
            .enter(client, about, self.jostle())
            .map_err(|Full| Failure::Overloaded {
                concurrent: self.config.concurrent,
            })
    }
}

/// What an upstream said.
#[derive(Debug)]
pub struct Answer {
    /// Its message byte for byte, with the query's ID. Every record lies within it, unless TC is set; the
    /// question is the query's but for the case of its letters, or absent if the RCODE is an error.
    pub message: Vec<u8>,
    /// Who said it.
    pub upstream: SocketAddr,
    /// From the first attempt's start to the answer.
    pub duration: Duration,
}

/// One worker's sockets for a [`Forwarder`]. Lives on a `LocalRuntime`.
pub struct Forward {
    shared: Arc<Forwarder>,
    /// One per upstream.
    sockets: Vec<udp::Sockets>,
    /// One per upstream.
    pools: Vec<tcp::Pool>,
}

impl Forward {
    /// Opens nothing yet.
    pub fn new(shared: Arc<Forwarder>) -> Rc<Self> {
        let config = &shared.config;
        let pool = |upstream: &Arc<Upstream>| {
            tcp::Pool::new(
                upstream.clone(),
                shared.sockets.clone(),
                config.connections.max(1),
                config.idle,
                config.timeout,
            )
        };
        let pools = shared.upstreams.iter().map(pool).collect();
        let sockets = |upstream: &Arc<Upstream>| udp::Sockets::new(upstream.clone(), shared.sockets.clone());
        Rc::new(Self {
            sockets: shared.upstreams.iter().map(sockets).collect(),
            pools,
            shared,
        })
    }

    /// What all workers share of it.
    pub fn shared(&self) -> &Arc<Forwarder> {
        &self.shared
    }

    /// Asks the upstreams `query`, a whole message with one question, which has been [admitted](Forwarder::admit).
    /// Must be called on a `LocalRuntime`. Dropping the future gives up the query and leaves nothing behind.
    pub async fn resolve(self: &Rc<Self>, query: &[u8]) -> Result<Answer, Failure> {
        let config = &self.shared.config;
        let query = Rc::new(Query::new(query)?);
        let mut rotation = self.shared.rotation();
        if rotation.is_empty() {
            return Err(Failure::AllLoop);
        }
        let begin = Instant::now();
        let deadline = begin + config.deadline;
        let answer = |index: usize, reply: Reply| Answer {
            message: reply.into_message(query.id()),
            upstream: self.shared.upstreams[index].address,
            duration: begin.elapsed(),
        };
        let mut race: Vec<Attempt<'_>> = Vec::new();
        let mut begun = 0;
        let mut next = begin;
        let mut faults = Vec::new();
        let mut declined = None;
        loop {
            let now = Instant::now();
            if now >= next
                && begun < config.attempts
                && now < deadline
                && let Some(index) = rotation.next()
            {
                let (upstream, hedge) = (&self.shared.upstreams[index], !race.is_empty());
                if hedge && !upstream.hedge_budget.take() {
                    // When one that is under way fails, and not before.
                    next = deadline;
                } else {
                    rotation.advance();
                    if hedge {
                        upstream.counters.hedges.fetch_add(1, Relaxed);
                    }
                    let earlier = race.iter().filter(|attempt| attempt.index == index).count()
                        + faults
                            .iter()
                            .filter(|(address, _)| *address == upstream.address)
                            .count();
                    let over = self.protocol(&query, earlier);
                    let last = begun + 1 == config.attempts || earlier + 1 == MOST_DATAGRAMS;
                    let query = self.without_edns(index, &query, earlier > 0 && last);
                    race.push(Attempt {
                        index,
                        begin: now,
                        hedge,
                        reply: Box::pin(self.attempt(index, over, query, deadline)),
                    });
                    // Each attempt is given twice the time of the one before (RFC 6298 section 5.5).
                    next = now + self.rto(index, &rotation).saturating_mul(1 << begun.min(8));
                    begun += 1;
                }
            }
            if race.is_empty() {
                break;
            }
            let more = begun < config.attempts && now < deadline && !rotation.is_empty();
            let (attempt, outcome) = tokio::select! {
                biased;
                finished = first(&mut race) => finished,
                () = sleep_until(next), if more && next < deadline => continue,
            };
            let index = attempt.index;
            if outcome.is_ok() {
                self.shared.upstreams[index].hedge_budget.earn(attempt.hedge);
            }
            match outcome {
                Ok(reply) => match Reason::of_rcode(reply.rcode) {
                    None => {
                        self.note_overtaken(index, &race);
                        return Ok(answer(index, reply));
                    }
                    Some(reason) => {
                        self.shared.upstreams[index].counters.failure(reason);
                        declined = Some((index, reply));
                        rotation.remove(index);
                    }
                },
                Err(fault) => {
                    faults.push((self.shared.upstreams[index].address, fault));
                    if !fault.may_pass() {
                        rotation.remove(index);
                    }
                }
            }
            // An upstream that is out is asked for want of an answer only, not for want of a better one.
            if rotation.is_empty() && declined.is_none() {
                rotation.call_reserve();
            }
            next = Instant::now();
        }
        match declined {
            Some((index, reply)) => Ok(answer(index, reply)),
            None if faults.is_empty() => Err(Failure::NoTime),
            None => Err(Failure::NoReply(faults)),
        }
    }

    /// How long the upstream just asked may be silent before the next attempt begins. TCP repeats what is
    /// lost by itself: there, the same upstream is not asked again before the time is up.
    fn rto(&self, index: usize, rotation: &Rotation) -> Duration {
        let config = &self.shared.config;
        match config.protocol {
            Protocol::Tcp if rotation.has_one() => config.timeout,
            Protocol::Tcp | Protocol::Udp => self.shared.upstreams[index].rto().min(config.timeout),
        }
    }

    /// Those that were asked earlier and left behind are about to be forgotten together with their sockets.
    /// If they had time enough to answer, that is remembered: or a dead upstream would cost every query its
    /// rto, for ever.
    fn note_overtaken(&self, winner: usize, race: &[Attempt<'_>]) {
        for attempt in race.iter().filter(|attempt| attempt.index != winner) {
            let upstream = &self.shared.upstreams[attempt.index];
            if attempt.begin.elapsed() >= upstream.rto() {
                let suspect = upstream.overtaken(Instant::now());
                self.shared.probe(attempt.index, suspect);
            }
        }
    }

    /// The query as this upstream is asked it: without EDNS where that is not missed and the upstream is known to
    /// drop it, or may be, having been silent until the `last` time.
    fn without_edns(&self, index: usize, query: &Rc<Query>, last: bool) -> Rc<Query> {
        let upstream = &self.shared.upstreams[index];
        if (last || upstream.drops_edns())
            && let Some(plain) = query.without_idle_edns()
        {
            upstream.counters.without_edns.fetch_add(1, Relaxed);
            return Rc::new(plain);
        }
        query.clone()
    }

    /// What `query` goes over to an upstream that it was sent to so many times before.
    fn protocol(&self, query: &Query, earlier: usize) -> Protocol {
        // RFC 9520 section 3.1: three times over one transport, and then perhaps over another one. Where
        // datagrams are lost, TCP sends again by itself.
        if query.fits_datagram() && earlier < MOST_DATAGRAMS {
            self.shared.config.protocol
        } else {
            Protocol::Tcp
        }
    }

    /// All that is tried at one upstream before it counts as failed.
    async fn attempt(
        &self,
        index: usize,
        over: Protocol,
        mut query: Rc<Query>,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let upstream = &self.shared.upstreams[index];
        let counters = &upstream.counters;
        let mut reply = self.exchange(index, over, &query, deadline).await?;
        if let Some(with) = query.has_edns()
            && over == Protocol::Udp
            // What is remembered is not remembered for longer because it is acted upon.
            && (with || !upstream.drops_edns())
        {
            upstream.answered_edns(with);
        }
        // RFC 6891 section 6.2.2: an OPT record may be all that such a server does not like. What it thinks
        // of EDNS is not remembered, since an answer like this may be about the one query only.
        if matches!(reply.rcode, rcode::FORMERR | rcode::NOTIMP | rcode::BADVERS)
            && let Some(plain) = query.without_edns()
        {
            counters.without_edns.fetch_add(1, Relaxed);
            query = Rc::new(plain);
            reply = self.exchange(index, over, &query, deadline).await?;
        }
        if reply.truncated && over == Protocol::Udp {
            counters.truncated.fetch_add(1, Relaxed);
            reply = self.exchange(index, Protocol::Tcp, &query, deadline).await?;
        }
        Ok(reply)
    }

    /// One query, one reply, and what it says about the upstream.
    async fn exchange(
        &self,
        index: usize,
        over: Protocol,
        query: &Rc<Query>,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let (config, upstream) = (&self.shared.config, &self.shared.upstreams[index]);
        let counters = &upstream.counters;
        let begin = Instant::now();
        let limit = config.timeout.min(deadline.saturating_duration_since(begin));
        let outcome = match over {
            Protocol::Udp => {
                counters.udp.fetch_add(1, Relaxed);
                let reply = self.sockets[index].exchange(query);
                timeout(limit, reply).await.unwrap_or(Err(Fault::Timeout))
            }
            Protocol::Tcp => {
                counters.tcp.fetch_add(1, Relaxed);
                // In a box of its own, or every attempt over UDP would be as large.
                Box::pin(self.pools[index].exchange(query, limit)).await
            }
        };
        let took = begin.elapsed();
        match &outcome {
            Ok(reply) => {
                counters.reply(took);
                // The rare TCP of a UDP upstream takes several round trips.
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
                counters.failure((*fault).into());
                // Silence that the deadline cut short proves nothing, unless it was long already.
                let fair = *fault != Fault::Timeout || limit == config.timeout || took >= upstream.rto();
                // A server may do without TCP, and be well.
                if fair && over == config.protocol {
                    self.shared.probe(index, upstream.failed(*fault));
                }
            }
        }
        outcome
    }
}

/// An attempt under way.
struct Attempt<'q> {
    index: usize,
    begin: Instant,
    /// Whether others were under way when it began.
    hedge: bool,
    reply: Pin<Box<dyn Future<Output = Result<Reply, Fault>> + 'q>>,
}

/// The first attempt to end, which leaves the race. Polling all of a handful costs less than telling which
/// was woken.
async fn first<'q>(race: &mut Vec<Attempt<'q>>) -> (Attempt<'q>, Result<Reply, Fault>) {
    poll_fn(|context| {
        for place in 0..race.len() {
            if let Poll::Ready(outcome) = race[place].reply.as_mut().poll(context) {
                return Poll::Ready((race.swap_remove(place), outcome));
            }
        }
        Poll::Pending
    })
    .await
}
