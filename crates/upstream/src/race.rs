//! One query: a race of attempts, of which the first answer wins.
//!
//! - The policy orders the upstreams; an attempt that fails is followed at once by one at the next. One
//!   upstream alone is asked again, if the fault may be temporary, or that of one of several servers that share its address.
//! - An upstream that is silent for longer than its retransmission timeout (RTO) is not given up, but the next attempt
//!   begins beside it: a hedge. So a lost packet costs ten milliseconds and not the whole timeout. `attempts` bounds
//!   what is sent for one query, and the [hedge budget](super::pace::HedgeBudget) how many hedges an upstream is sent.
//! - An upstream that was silent three times is asked over TCP the fourth time.
//! - An attempt that was left behind by another is still [listened for](super::left_behind), so that what got lost is counted.
//! - SERVFAIL, REFUSED and what else is no answer make it try the next one. If no other says anything else, they are the answer.

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

/// How often one query is sent to one upstream in a datagram (RFC 9520 section 3.1).
const MOST_DATAGRAMS: usize = 3;

/// What an upstream said.
#[derive(Debug)]
pub struct Answer {
    /// Its message byte for byte, with the query's ID. Every record lies within it, unless TC is set; the
    /// question is the query's but for the case of its letters, or absent if the RCODE is an error.
    pub message: Vec<u8>,
    /// Who said it.
    pub upstream: SocketAddr,
}

impl Forward {
    /// Asks the upstreams `query`, which has been [admitted](super::Forwarder::admit), and begins `now`. Must be called on a `LocalRuntime`.
    /// Dropping the future gives up the query and leaves nothing behind.
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

/// All that is tried for one query. Upstreams are told apart by their index.
struct Race<'q> {
    forward: &'q Rc<Forward>,
    query: &'q Rc<Query>,
    deadline: Instant,
    rotation: Rotation,
    /// Those under way.
    attempts: SmallVec<[Attempt; 1]>,
    /// How many attempts there were.
    begun: u32,
    /// When the next one may begin.
    next: Instant,
    /// How those that failed did.
    faults: Vec<(SocketAddr, Fault)>,
    /// The last reply that was no answer.
    declined: Option<(usize, Reply)>,
}

/// An attempt under way.
struct Attempt {
    index: usize,
    begin: Instant,
    /// Whether others were under way when it began.
    hedge: bool,
    reply: Attempted,
}

impl Race<'_> {
    /// The reply that wins, and whose it is. Begins `now`.
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

    /// Begins an attempt at the next upstream. A hedge needs that upstream's budget: without, nothing more is begun until
    /// an attempt under way fails.
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
        // Each attempt is given twice the time of the one before (RFC 6298 section 5.5).
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

    /// What the query goes over to an upstream that it was sent to so many times before.
    fn protocol(&self, earlier: usize) -> Protocol {
        // RFC 9520 section 3.1: three times over one transport, and then perhaps over another one. Where
        // datagrams are lost, TCP sends again by itself.
        match self.forward.shared.config.protocol {
            Protocol::Udp if self.query.fits_datagram() && earlier < MOST_DATAGRAMS => Protocol::Udp,
            Protocol::Udp | Protocol::Tcp => Protocol::Tcp,
            encrypted @ Protocol::Encrypted(_) => encrypted,
        }
    }

    /// How long the upstream just asked may be silent before the next attempt begins. TCP repeats what is
    /// lost by itself: there, the same upstream is not asked again before the time is up.
    fn rto(&self, index: usize) -> Duration {
        let shared = &self.forward.shared;
        match shared.config.protocol {
            Protocol::Tcp | Protocol::Encrypted(_) if self.rotation.has_one() => shared.config.timeout,
            Protocol::Udp | Protocol::Tcp | Protocol::Encrypted(_) => {
                shared.upstreams[index].rto().min(shared.config.timeout)
            }
        }
    }

    /// The reply of an attempt that has ended, if it wins. If not, notes why.
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
                // The next attempt leaves from another port, and behind the address of a service it may get to another server.
                let again = fault.may_pass() || fault.is_of_one_attempt() && self.rotation.is_last();
                if !again {
                    self.rotation.remove(index);
                }
            }
        }
        // An upstream that is out is asked only if there is no answer at all, not for a better one.
        if self.rotation.is_empty() && self.declined.is_none() {
            self.rotation.call_reserve();
        }
        None
    }

    /// Those that were asked earlier are left behind. If they had time enough to answer, that is remembered: or a dead upstream would cost every query its
    /// RTO, for ever.
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

/// The first attempt to end, which leaves the race. Polling all of a handful costs less than telling which
/// was woken.
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
