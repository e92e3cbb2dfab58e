//! One query: a race of attempts that the first answer wins.
//!
//! - The policy orders the upstreams; a failed attempt is followed at once by one at the next upstream. A
//!   single upstream is asked again if the fault may be temporary, or may be that of one of several servers
//!   behind its address.
//! - An upstream that exceeds its retransmission timeout (RTO) is not given up; the next attempt starts
//!   beside it: a hedge. So a lost packet costs ten milliseconds, not the whole timeout. `attempts` bounds
//!   what is sent for one query, and the [hedge budget](super::pace::HedgeBudget) bounds the hedges sent to
//!   an upstream.
//! - An upstream that was silent three times is asked over TCP the fourth time.
//! - A losing attempt is still [listened for](super::left_behind), so that lost queries are counted.
//! - SERVFAIL, REFUSED and other replies that are no answer lead to the next upstream. If none does better,
//!   the last such reply is the answer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::attempt::Forward;
use super::counters::Reason;
use super::failure::{Failure, Fault};
use super::left_behind::Attempted;
use super::message::{Query, Reply};
use super::policy::Rotation;
use crate::config::Protocol;

/// How often one query is sent to one upstream over UDP (RFC 9520 section 3.1).
const MOST_DATAGRAMS: usize = 3;

/// An upstream's reply.
#[derive(Debug)]
pub struct Answer {
    /// The message byte for byte, with the query's ID. Every record lies within it, unless TC is set. The
    /// question is the query's, except for letter case, or absent if the RCODE is an error.
    pub message: Vec<u8>,
    /// The upstream that sent it.
    pub upstream: SocketAddr,
}

impl Forward {
    /// Asks the upstreams `query`, which has been [admitted](super::Forwarder::admit), starting at `now`.
    /// Must be called on a `LocalRuntime`. Dropping the future gives up the query and leaves nothing behind.
    pub(super) async fn race(self: &Rc<Self>, query: &Rc<Query>, now: Instant) -> Result<Answer, Failure> {
        let rotation = self.shared.rotation();
        if rotation.is_empty() {
            return Err(match self.shared.only_loops() {
                true => Failure::AllLoop,
                false => Failure::NoUpstreams,
            });
        }
        let mut race = Race {
            forward: self,
            query,
            deadline: now + self.shared.config.deadline,
            rotation,
            attempts: SmallVec::new(),
            begun: 0,
            next: now,
            faults: Vec::new(),
            declined: None,
        };
        let (index, reply) = race.run(now).await?;
        Ok(Answer {
            message: reply.into_message(query.id()),
            upstream: self.shared.upstreams[index].address,
        })
    }
}

/// The state of one query's race. Upstreams are identified by index.
struct Race<'q> {
    forward: &'q Rc<Forward>,
    query: &'q Rc<Query>,
    deadline: Instant,
    rotation: Rotation,
    /// Attempts under way.
    attempts: SmallVec<[Attempt; 1]>,
    /// Count of attempts so far.
    begun: u32,
    /// When the next attempt may start.
    next: Instant,
    /// The faults of failed attempts.
    faults: Vec<(SocketAddr, Fault)>,
    /// The last reply that was no answer.
    declined: Option<(usize, Reply)>,
}

/// An attempt under way.
struct Attempt {
    index: usize,
    begin: Instant,
    /// Whether other attempts were under way when it started.
    hedge: bool,
    reply: Attempted,
}

impl Race<'_> {
    /// Returns the winning reply and its upstream's index. Starts at `now`.
    async fn run(&mut self, mut now: Instant) -> Result<(usize, Reply), Failure> {
        loop {
            if now >= self.next && self.has_attempts_left(now) {
                self.begin_next(now);
            }
            if self.attempts.is_empty() {
                break;
            }
            let waits_for_next = self.next < self.deadline && self.has_attempts_left(now);
            let (attempt, outcome) = tokio::select! {
                biased;
                finished = first(&mut self.attempts) => finished,
                () = self.forward.alarms.at(self.next), if waits_for_next => {
                    now = Instant::now();
                    continue;
                }
            };
            if let Some(reply) = self.judge(&attempt, outcome) {
                self.attempts
                    .drain(..)
                    .for_each(|left| self.forward.left.listen_for(left.reply));
                return Ok((attempt.index, reply));
            }
            now = Instant::now();
            self.next = now;
        }
        match self.declined.take() {
            Some(declined) => Ok(declined),
            None if self.faults.is_empty() => Err(Failure::NoTime),
            None => Err(Failure::NoReply(std::mem::take(&mut self.faults))),
        }
    }

    fn has_attempts_left(&self, now: Instant) -> bool {
        self.begun < self.forward.shared.config.attempts && now < self.deadline && !self.rotation.is_empty()
    }

    /// Starts an attempt at the next upstream. A hedge needs budget from that upstream; without it, no
    /// attempt starts until one under way fails.
    fn begin_next(&mut self, now: Instant) {
        let Some(index) = self.rotation.next() else {
            return;
        };
        let (upstream, hedge) = (&self.forward.shared.upstreams[index], !self.attempts.is_empty());
        if hedge && !upstream.hedge_budget.take() {
            self.next = self.deadline;
            return;
        }
        self.rotation.advance();
        if hedge {
            upstream.counters.hedges.fetch_add(1, Relaxed);
        }
        let earlier = self.earlier(index);
        let last = self.begun + 1 == self.forward.shared.config.attempts || earlier + 1 == MOST_DATAGRAMS;
        let query = self.forward.as_asked(index, self.query, earlier > 0 && last);
        let over = self.protocol(earlier);
        self.attempts.push(Attempt {
            index,
            begin: now,
            hedge,
            reply: Box::pin(Rc::clone(self.forward).attempt(index, over, query, now, self.deadline)),
        });
        // Each attempt gets twice the time of the previous one (RFC 6298 section 5.5).
        self.next = now + self.rto(index).saturating_mul(1 << self.begun.min(8));
        self.begun += 1;
    }

    /// How often the query was sent to an upstream so far.
    fn earlier(&self, index: usize) -> usize {
        let address = self.forward.shared.upstreams[index].address;
        let under_way = self.attempts.iter().filter(|attempt| attempt.index == index);
        let failed = self.faults.iter().filter(|(failed, _)| *failed == address);
        under_way.count() + failed.count()
    }

    /// The transport to an upstream that got this query `earlier` times already.
    fn protocol(&self, earlier: usize) -> Protocol {
        // RFC 9520 section 3.1: at most three times over one transport, then possibly over another. Where
        // datagrams are lost, TCP retransmits by itself.
        match self.forward.shared.config.protocol {
            Protocol::Udp if self.query.fits_datagram() && earlier < MOST_DATAGRAMS => Protocol::Udp,
            Protocol::Udp | Protocol::Tcp => Protocol::Tcp,
            encrypted @ Protocol::Encrypted(_) => encrypted,
        }
    }

    /// How long the upstream just asked may be silent before the next attempt starts. TCP retransmits by
    /// itself, so there the same upstream is not asked again before the timeout.
    fn rto(&self, index: usize) -> Duration {
        let shared = &self.forward.shared;
        match shared.config.protocol {
            Protocol::Tcp | Protocol::Encrypted(_) if self.rotation.has_one() => shared.config.timeout,
            Protocol::Udp | Protocol::Tcp | Protocol::Encrypted(_) => {
                shared.upstreams[index].rto().min(shared.config.timeout)
            }
        }
    }

    /// Returns the reply of a finished attempt if it wins; otherwise records why not.
    fn judge(&mut self, attempt: &Attempt, outcome: Result<Reply, Fault>) -> Option<Reply> {
        let (index, upstream) = (attempt.index, &self.forward.shared.upstreams[attempt.index]);
        match outcome {
            Ok(reply) => {
                upstream.hedge_budget.earn(attempt.hedge);
                let Some(reason) = Reason::to_ask_another(&reply) else {
                    self.note_overtaken(index);
                    return Some(reply);
                };
                upstream.counters.failure(reason);
                self.declined = Some((index, reply));
                self.rotation.remove(index);
            }
            Err(fault) => {
                self.faults.push((upstream.address, fault));
                // The next attempt uses another port, and may reach another server behind the same address.
                let again = fault.may_pass() || fault.is_of_one_attempt() && self.rotation.is_last();
                if !again {
                    self.rotation.remove(index);
                }
            }
        }
        // An upstream that is out is asked only if there is no reply at all, not for a better one.
        if self.rotation.is_empty() && self.declined.is_none() {
            self.rotation.call_reserve();
        }
        None
    }

    /// Records the losing attempts that had time enough to answer; otherwise a dead upstream would cost every
    /// query its RTO, forever.
    fn note_overtaken(&self, winner: usize) {
        let shared = &self.forward.shared;
        for attempt in self.attempts.iter().filter(|attempt| attempt.index != winner) {
            let upstream = &shared.upstreams[attempt.index];
            if attempt.begin.elapsed() >= upstream.rto() {
                let suspect = upstream.overtaken(Instant::now());
                shared.probe(attempt.index, suspect);
            }
        }
    }
}

/// Waits for the first attempt to end and removes it. Polling a handful is cheaper than tracking wake-ups.
async fn first(attempts: &mut SmallVec<[Attempt; 1]>) -> (Attempt, Result<Reply, Fault>) {
    poll_fn(|context| {
        for at in 0..attempts.len() {
            if let Poll::Ready(outcome) = attempts[at].reply.as_mut().poll(context) {
                return Poll::Ready((attempts.swap_remove(at), outcome));
            }
        }
        Poll::Pending
    })
    .await
}
