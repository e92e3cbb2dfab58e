//! The life of a query.
//!
//! A listener takes a batch of messages from its socket and hands each one in:
//!
//! 1. [`Worker::admit`] reads the message ([`dns::query`](crate::dns::query)) and finds the zone that owns
//!    the name ([`zones`]). What may not be asked ([`gate`]), is malformed, special or nobody's is answered here.
//! 2. [`Worker::run`] sends the batch through its pipelines. [`advance`](Worker::advance) runs the filters
//!    on the way in: those that care are asked, all queries of the batch at once, unless a verdict is
//!    remembered.
//! 3. A query that comes to `cache` is looked up. A fresh entry is the response: nothing so far has
//!    allocated, waited or made a task.
//! 4. A source is asked from memory at once ([`sources`]), and what has to be waited for becomes a task of the worker
//!    ([`deferred`], [`miss`]); the batch does not wait.
//! 5. [`outward`](Worker::outward) takes responses back through the same filters, bottom to top.
//! 6. The reply is written into the listener's buffer, patched on the way
//!    ([`dns::reply`](crate::dns::reply)).
//! 7. When the answers have left, [`Worker::tell`] hands filters with an events phase what happened,
//!    many at a time.
//!
//! A [`Request`] is a query on its way in, a [`Response`] what comes back.

mod ask;
mod batch;
pub mod counters;
mod deferred;
mod delay;
mod designation;
mod edits;
mod events;
mod explain;
mod figures;
mod fingerprint;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod generation;
mod held;
pub mod interfaces;
mod inward;
mod live;
mod lookups;
mod meta;
mod miss;
mod notified;
pub mod observed;
mod observing;
mod outward;
mod phase;
mod queue;
mod rates;
mod records;
mod refusals;
mod request;
mod response;
mod sources;
mod steps;
mod stores;
mod tapping;
pub mod trace;
mod transfers;
mod worker;
mod zones;

use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;

use crate::cache::{Freshness, Key, KeyFlags};
use crate::config;
use crate::dns::edns::ExtendedError;
use crate::dns::query::Query;
use crate::dns::reply::Ttl;
use crate::dns::special;
use crate::dns::{CLASS_IN, Origin, rcode, rtype};
use crate::filter::{Decision, Verdict};

pub use crate::source::Transfer;
pub use batch::{Admission, Batch, DeferredReply, Replies};
use batch::{Immediate, Step};
use counters::add;
use generation::Stage;
pub use held::LOOKUP_OCTETS;
pub use live::Live;
pub use queue::WAITING_OCTETS;
use records::Sent;
use request::Request;
pub use request::{Client, MESSAGE_KEPT};
use response::{Content, Response};
pub use stores::Shared;
use trace::{Direction, Trace, TraceEvent};
use worker::Clocks;
pub use worker::{Worker, unix_milliseconds};
use zones::ZoneMatch;

impl Worker {
    /// Takes one message into the batch, or writes the reply to `out` if that needs no pipeline.
    pub fn admit(&self, batch: &mut Batch, message: &[u8], client: Client, out: &mut [u8]) -> Admission {
        let live = self.live.borrow();
        if let Some(gate) = live.gate(client.server)
            && let Some(refusal) = gate.refusal(&self.shared.ledger, &client)
        {
            return self.turn_away(&live, batch, message, client, refusal, out);
        }
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(error) => return self.admit_unanswerable(&live, message, client, error, out),
        };
        let request = batch.next(client);
        request.admit(&query, client, live.generation.keeps);
        if self.shared.trace_sink.is_some() {
            request.trace = Some(Trace::begin());
        }
        request.hash = self
            .shared
            .hasher
            .question(request.name.as_bytes(), request.qtype, request.qclass);
        let owner = match meta::is_unlike_others(query.qtype) {
            false => live.owner(request),
            true => match self.admit_unlike_others(&live, request, message, out) {
                Ok(owner) => owner,
                Err(admission) => return admission,
            },
        };
        let answer = match owner {
            Some(ZoneMatch::Pipeline { pipeline, zone }) => {
                (request.pipeline, request.zone) = (pipeline, zone);
                if let Some(gate) = &live.generation.pipelines[pipeline].gate
                    && let Some(refusal) = gate.refusal(&self.shared.ledger, &client)
                {
                    return self.refuse(&live, live.counters(request), request, refusal, out);
                }
                live.enter(request)
                    .request(client.transport, client.address.ip(), query.qtype);
                request.trace(|| {
                    let zone = &live.generation.pipelines[pipeline].zones[zone];
                    let did = format!("{zone} owns the name");
                    TraceEvent::new("zone", Direction::In, explain::question(request), did)
                });
                batch.length += 1;
                return Admission::Travelling;
            }
            Some(ZoneMatch::Special(special)) if query.qclass == CLASS_IN => Response::local(
                designation::answer(&live.generation.config.listen, special, &request.question),
            ),
            _ => Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative),
        };
        self.answer_outside(&live, request, &answer, out)
    }

    /// Answers a query that belongs to no zone.
    fn answer_outside(&self, live: &Live, request: &Request, answer: &Response, out: &mut [u8]) -> Admission {
        let client = request.client;
        let counters = live.counters_outside(client.server);
        counters.request(client.transport, client.address.ip(), request.qtype);
        counters.response(answer.rcode, self.now().saturating_sub(client.received));
        request.trace(|| {
            let did = "no zone is asked: the name is nobody's, or special".into();
            TraceEvent::new("zone", Direction::In, explain::question(request), did)
        });
        let head = request.reply_head(answer.error);
        let size = answer.write(out, &head);
        self.finish_outside(live, request, Some(answer), &out[..size]);
        Admission::Answered(size)
    }

    /// Sends the admitted queries through their pipelines and empties the batch. Replies that need no
    /// upstream are written before this returns.
    pub fn run(self: &Rc<Self>, batch: &mut Batch, replies: &mut dyn Replies) {
        let live = self.live();
        let length = std::mem::take(&mut batch.length);
        let requests = &mut batch.requests[..length];
        let steps = &mut batch.steps[..length];
        let responses = &mut batch.responses[..length];
        self.observe(requests);
        // `fill` would drop each, and few queries of a batch have become anything else.
        for step in steps.iter_mut().filter(|step| !matches!(step, Step::Passing)) {
            *step = Step::Passing;
        }
        self.advance(&live, requests, steps);

        for (index, request) in requests.iter_mut().enumerate() {
            // What is fresh when a query comes is fresh enough to answer it: no need for another look at the clock.
            let now_ms = request.client.received / 1000;
            responses[index] = match self.immediate(&live, request, &steps[index], now_ms) {
                Immediate::Response(response) => Some(response),
                Immediate::Drop => None,
                Immediate::Deferred => {
                    let step = std::mem::replace(&mut steps[index], Step::Gone);
                    self.defer(&live, request, step, || replies.defer(index))
                }
            };
        }
        let mut asking = self.outward(&live, requests, responses, 0);
        while !asking.is_empty() {
            for asking in asking {
                let index = asking.index;
                let step = Step::Responding(Box::new(asking));
                responses[index] = self.defer(&live, &mut requests[index], step, || replies.defer(index));
            }
            // Those for which there is no room to wait.
            asking = self.outward(&live, requests, responses, 0);
        }

        let clocks = self.clocks();
        let mut message = Vec::new();
        for (index, (request, place)) in requests.iter_mut().zip(responses).enumerate() {
            if request.delay > 0 {
                *place = self.reply_later(&live, request, place.take(), || replies.defer(index));
            }
            // It stays where it is: to take it out would be to copy it.
            if let Some(response) = &*place {
                let head = request.reply_head(response.error);
                let out = replies.buffer(index);
                let size = response.write(out, &head);
                let sent = Sent::of(out, size);
                if live.generation.hears_messages {
                    copy(&out[..size], &mut message);
                }
                replies.reply(index, size);
                self.count_response(&live, request, response, sent, &message, clocks);
                *place = None;
            } else if !request.is_empty() {
                request.end();
                self.hear(&live, request, None, Sent::default(), &[], clocks);
            }
        }
    }

    /// What a query that came as far as it could gets without waiting.
    // As `look_up`.
    #[inline(always)]
    fn immediate(self: &Rc<Self>, live: &Rc<Live>, request: &Request, step: &Step, now_ms: u64) -> Immediate {
        match step {
            Step::Decided(verdict) => decided(live, request, verdict),
            Step::Answered(answer, authoritative) => {
                let answer = Arc::clone(answer);
                Immediate::Response(Response::answer(answer, Origin::Local, *authoritative))
            }
            Step::Unresolved(error, local) => Immediate::Response(Response::unresolved(*error, *local)),
            // That a filter failed says nothing about the name: not to be kept (RFC 9520 section 2).
            Step::Failed(rcode) => Immediate::Response(Response {
                store: false,
                ..Response::error(*rcode, ExtendedError::Other)
            }),
            Step::Aliased(..) | Step::Responding(_) | Step::HeldBack(_) => Immediate::Deferred,
            Step::Passing | Step::AtSource | Step::Gone => {
                let pipeline = &live.generation.pipelines[request.pipeline];
                match pipeline.stages.get(request.stage) {
                    // The class matters only now: a filter may have rewritten it.
                    Some(Stage::Cache(_) | Stage::Source(_)) if request.qclass != CLASS_IN => {
                        Immediate::Response(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative))
                    }
                    // RFC 8482: nobody needs all that there is of a name but whoever sends it to somebody else.
                    Some(Stage::Cache(_) | Stage::Source(_))
                        if request.qtype == rtype::ANY && !pipeline.wants_any =>
                    {
                        Immediate::Response(Response::local(special::any(&request.question)))
                    }
                    Some(Stage::Cache(cache)) => match self.look_up(live, request, cache, now_ms) {
                        Some(response) => {
                            let hit = || format!("hit: {}", explain::response(&response));
                            request.trace(|| explain::cache(request, hit()));
                            Immediate::Response(response)
                        }
                        None => {
                            request.trace(|| explain::cache(request, explain::miss(request).into()));
                            Immediate::Deferred
                        }
                    },
                    Some(_) => Immediate::Deferred,
                    None => {
                        request.trace(|| {
                            let did = "refused: no stage is left that could answer".into();
                            TraceEvent::new("end", Direction::In, explain::question(request), did)
                        });
                        Immediate::Response(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative))
                    }
                }
            }
        }
    }

    /// The response that the cache holds for a query, if it is fresh.
    // The way of every hit, and short; left to itself, the compiler makes a call of it.
    #[inline(always)]
    fn look_up(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &Request,
        cache: &config::Cache,
        now_ms: u64,
    ) -> Option<Response> {
        if request.signed.is_some() || !request.may_store() {
            return None;
        }
        let key = self.key(live, request);
        let entry = self.shared.cache.lookup(&key, now_ms)?;
        let Freshness::Fresh { age_secs } = entry.lifetime().freshness(now_ms) else {
            return None;
        };
        let counters = live.counters(request);
        add(&counters.hits[entry.kind().index()], 1);
        if let Some(prefetch) = cache.prefetch
            && entry.prefetch_due(&prefetch, now_ms)
            && let Some(claim) = entry.claim_refresh(now_ms, 0)
        {
            add(&counters.prefetches, 1);
            self.spawn_refresh(live, request, claim);
        }
        Some(Response {
            rcode: u16::from(entry.rcode()),
            ttl: Ttl::Aged {
                by: age_secs,
                min: 0,
                max: u32::MAX,
            },
            origin: Origin::Cache,
            authoritative: false,
            error: entry.error(),
            content: Content::Entry(entry),
            store: true,
            stale: true,
        })
    }

    /// What the cache knows the query by.
    #[inline]
    fn key<'a>(&self, live: &Live, request: &'a Request) -> Key<'a> {
        let mut partition = live.generation.pipelines[request.pipeline].partition;
        if request.routed {
            partition = self.partition(live, request, partition);
        }
        let flags = KeyFlags::new(request.dnssec_ok(), request.checking_disabled());
        Key::new(
            request.hash,
            request.name.as_bytes(),
            request.qtype,
            request.qclass,
            flags,
            partition,
        )
    }

    /// The part of the cache that the answers for a query's route belong to, if it has one (RFC 7871 section 7.3.1).
    #[cold]
    fn partition(&self, live: &Live, request: &Request, pipelines: u64) -> u64 {
        match request.route() {
            (None, None) => pipelines,
            (source, subnet) => {
                let source = source.map(|index| live.generation.sources[index].fingerprint());
                self.shared.routes.hash_one((pipelines, source, subnet))
            }
        }
    }

    /// Tells the sink, if there is one, what became of a query; no response: it was dropped.
    // For every hit; left to itself, the compiler makes a call of it.
    #[inline(always)]
    fn finish_trace(&self, request: &Request, response: Option<&Response>, size: usize) {
        if let Some(trace) = &request.trace {
            self.tell_trace(trace, request, response, size);
        }
    }

    #[cold]
    fn tell_trace(&self, trace: &Trace, request: &Request, response: Option<&Response>, size: usize) {
        if let Some(trace_sink) = &self.shared.trace_sink {
            explain::finish(trace, request, response, size, |told| trace_sink(told));
        }
    }

    /// Counts a reply that was written, and notes it for the filters that want to hear of it.
    fn count_response(
        &self,
        live: &Live,
        request: &Request,
        response: &Response,
        sent: Sent,
        message: &[u8],
        clocks: Clocks,
    ) {
        let microseconds = clocks.now.saturating_sub(request.client.received);
        let counters = live.counters(request);
        counters.response(response.rcode, microseconds);
        if response.rcode == rcode::SERVFAIL {
            self.keep_trouble(request, response, microseconds, clocks);
        }
        self.hear(live, request, Some(response), sent, message, clocks);
    }
}

/// Keeps a reply for the filters that want to hear it whole.
#[cold]
fn copy(reply: &[u8], message: &mut Vec<u8>) {
    message.clear();
    message.extend_from_slice(reply);
}

fn decided(live: &Live, request: &Request, verdict: &Verdict) -> Immediate {
    let mut response = match &verdict.decision {
        Decision::Answer(records) => Response::from_filter(&request.question, records),
        Decision::Refuse(refusal) => Response::refused(&request.question, refusal),
        Decision::Drop(reason) => {
            live.count_drop(request, reason);
            return Immediate::Drop;
        }
        Decision::Alias(_) | Decision::Ask(_) | Decision::Pass | Decision::Rewrite(_) => {
            return Immediate::Deferred;
        }
    };
    if let Some(edit) = &verdict.edit {
        response.edit(edit, request, live, request.stage);
    }
    Immediate::Response(response)
}
