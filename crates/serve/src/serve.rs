//! The life of a query, in the order of this file; the README has a picture.
//!
//! A listener reads a batch of messages from its socket and passes in each one:
//!
//! 1. [`Worker::admit`] parses the message ([`dns::query`](crate::dns::query)) and finds the zone that owns
//!    the name ([`zones`]). Queries that are refused ([`gate`]), malformed, special or in no zone are
//!    answered here.
//! 2. [`Worker::run`] has [`advance`](Worker::advance) take the batch through its pipelines: [in](RequestPass)
//!    until something answers, and [out](ResponsePass) past the same filters, bottom to top. A fresh cache entry
//!    is a response: up to here nothing has allocated, waited or spawned a task. The reply is patched while
//!    it is written into the listener's buffer ([`dns::reply`](crate::dns::reply)). Then the query [ends](finish).
//! 3. A query that has to wait continues in a task ([`tasks`]), and the batch does not wait for it:
//!    [`Worker::see_through`] alternates between advancing it and [waiting](Worker::wait_for), until it is
//!    answered.
//! 4. Once the replies are sent, [`Worker::tell`] passes batches of events to the filters with an events
//!    phase.
//!
//! A [`Request`] is a query with the changes to make on its way back, a [`Response`] what comes back, and
//! [`State`] where it is.

mod alias;
mod ask;
mod asked;
mod batch;
mod cached;
pub mod counters;
mod delay;
mod designation;
mod edits;
mod events;
mod explain;
mod fingerprint;
mod finish;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod generation;
pub mod interfaces;
mod live;
mod lookup_octets;
mod lookups;
mod meta;
mod metrics;
mod networks;
mod notified;
pub mod observed;
mod phase;
mod queue;
mod rates;
mod records;
mod refusals;
mod request;
mod request_pass;
mod response;
mod response_pass;
mod sampling;
mod sources;
mod state;
mod stores;
mod tasks;
pub mod trace;
mod transfers;
mod worker;
mod zones;

use std::rc::Rc;
use std::slice::from_mut;

use dnsweir_os::clock::{UnixTime, Uptime};

use crate::dns::edns::ExtendedError;
use crate::dns::query::Query as Message;
use crate::dns::{CLASS_IN, Origin, rcode};

pub use crate::source::Transfer;
pub use asked::{Client, MESSAGE_KEPT};
pub use batch::{Admission, Batch, DeferredReply, Replies};
pub use live::Live;
pub use lookup_octets::LOOKUP_OCTETS;
use queue::Query;
pub use queue::WAITING_OCTETS;
use request::Request;
use request_pass::RequestPass;
use response::Response;
use response_pass::ResponsePass;
use state::{State, Wait};
pub use stores::Shared;
use trace::Trace;
use worker::Clocks;
pub use worker::Worker;
use zones::ZoneMatch;

impl Worker {
    /// Admits one message to the batch, or writes the reply to `out` if it needs no pipeline.
    pub fn admit(&self, batch: &mut Batch, message: &[u8], client: Client, out: &mut [u8]) -> Admission {
        let live = self.live.borrow();
        if let Some(gate) = live.gate(client.server)
            && let Some(refusal) = gate.refusal(&self.shared.ledger, &client)
        {
            return self.turn_away(&live, batch, message, client, refusal, out);
        }
        let query = match Message::parse(message) {
            Ok(query) => query,
            Err(error) => return self.admit_unanswerable(&live, message, client, error, out),
        };
        let request = self.begin(&live, batch, &query, client);
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
                if let Some(refusal) = live.refusal(request, pipeline, &self.shared.ledger) {
                    return self.refuse(&live, live.counters(request), request, refusal, out);
                }
                live.enter(request);
                explain::on_way_in(request, "zone", || {
                    let zone = &live.generation.pipelines[pipeline].zones[zone];
                    format!("{zone} owns the name")
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

    /// Puts a query in the next slot of the batch; it counts only once the batch's `length` is raised.
    // Inlined like `look_up`.
    #[inline(always)]
    fn begin<'b>(
        &self,
        live: &Live,
        batch: &'b mut Batch,
        query: &Message<'_>,
        client: Client,
    ) -> &'b mut Request {
        let request = batch.next(client);
        request.admit(query, client, live.generation.keeps, &self.shared.hasher);
        if self.shared.trace_sink.is_some() {
            request.trace = Some(Trace::begin());
        }
        request
    }

    /// Answers a query that no zone owns.
    fn answer_outside(&self, live: &Live, request: &Request, answer: &Response, out: &mut [u8]) -> Admission {
        let counters = live.enter_outside(&request.asked.client, request.qtype);
        explain::on_way_in(request, "zone", || {
            "no zone is used: none matches, or the name is special".into()
        });
        let size = answer.write(out, &request.reply_head(answer.error));
        self.finish_outside(live, counters, request, answer, &out[..size])
    }

    /// Takes the admitted queries through their pipelines and empties the batch. Replies that need no waiting
    /// are written before this returns.
    pub fn run(self: &Rc<Self>, batch: &mut Batch, replies: &mut dyn Replies) {
        let live = self.live();
        let length = std::mem::take(&mut batch.length);
        let requests = &mut batch.requests[..length];
        let states = &mut batch.states[..length];
        self.observe(requests);
        // An entry that was fresh when the query arrived is fresh enough: the clock need not be read again.
        self.advance(&live, requests, states, None);

        let clocks = self.clocks();
        for (index, (request, state)) in requests.iter_mut().zip(states).enumerate() {
            if matches!(state, State::Waits(_)) {
                self.defer_or_settle(&live, request, state, || replies.defer(index));
            }
            // The response stays in place: taking it out would copy it.
            match &*state {
                State::Response(response) => {
                    let head = request.reply_head(response.error);
                    let out = replies.buffer(index);
                    let size = response.write(out, &head);
                    // Afterwards the buffer is the listener's.
                    self.finish(&live, request, Some(response), &out[..size], clocks);
                    replies.reply(index, size);
                }
                State::Gone => {}
                State::Dropped | State::Request | State::Waits(_) => {
                    self.without_reply(&live, request, clocks)
                }
            }
            *state = State::Request;
        }
    }

    /// Takes queries as far as they get without waiting: in until something answers, and out with the
    /// response. A filter that has to be called gets all queries of the batch that have reached it in one
    /// call.
    // Short, and on the path of every hit; without the hint, the compiler does not inline it.
    #[inline]
    fn advance(
        self: &Rc<Self>,
        live: &Rc<Live>,
        requests: &mut [Request],
        states: &mut [State],
        now: Option<Uptime>,
    ) {
        let mut scratch = self.scratch.borrow_mut();
        let scratch = &mut *scratch;
        let waiting = &mut scratch.waiting;
        waiting.resize_with(live.instances.len(), Vec::new);
        let mut pass = RequestPass {
            worker: self,
            live,
            requests,
            states,
            now,
            clock: None,
        };
        while pass.step(waiting) {
            self.ask(
                live,
                &mut pass,
                waiting,
                &mut scratch.queries,
                &mut scratch.verdicts,
            );
        }
        // The clock was read only if the pass came to filters.
        if pass.clock.is_some() {
            for instance in &live.instances {
                instance.borrow_mut().settle();
            }
        }
        let mut pass = ResponsePass {
            worker: self,
            live,
            requests,
            states,
            clock: UnixTime::default(),
        };
        while pass.step(waiting) {
            pass.clock = UnixTime::now();
            let (responses, verdicts) = (&mut scratch.responses, &mut scratch.response_verdicts);
            self.ask(live, &mut pass, waiting, responses, verdicts);
        }
    }

    /// Moves a query of a batch that has to wait into its own task and leaves nothing behind. If there is no
    /// room to wait, settles it with what it gets instead.
    #[inline(never)]
    fn defer_or_settle(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        state: &mut State,
        mut reply: impl FnMut() -> Box<dyn DeferredReply>,
    ) {
        // Each round brings it nearer to its client, so the loop ends.
        while let Some(wait) = state.take_wait() {
            let Some(response) = self.defer(live, request, wait, &mut reply) else {
                return;
            };
            *state = State::Response(response);
            self.advance(live, from_mut(request), from_mut(state), None);
        }
    }

    /// Takes a query that may wait to its end: a response, or none.
    async fn see_through(self: &Rc<Self>, live: &Rc<Live>, query: &mut Query) {
        loop {
            if let Some(wait) = query.state.take_wait() {
                query.state = self.wait_for(live, query, wait).await;
            }
            let now = Some(self.now());
            let (request, state) = (&mut query.request, &mut query.state);
            self.advance(live, from_mut(request), from_mut(state), now);
            if !matches!(state, State::Waits(_)) {
                return;
            }
        }
    }

    /// Waits for what a query needs to continue; returns its next state.
    // Rare cases are boxed, or they would enlarge the future of every waiting query.
    async fn wait_for(self: &Rc<Self>, live: &Rc<Live>, query: &mut Query, wait: Wait) -> State {
        match wait {
            Wait::Cache => self.miss(live, &mut query.request),
            Wait::Source => {
                let resolution = self.resolve(live, query).await;
                State::of_resolution(&mut query.request, resolution, Origin::Upstream)
            }
            Wait::Alias(lead) => Box::pin(self.follow(live, query, &lead)).await,
            Wait::Lookups(asking) => Box::pin(self.look_up_and_decide(live, query, *asking)).await,
            Wait::Delay(response) => {
                Box::pin(self.hold_back(live, query, &response)).await;
                State::Response(*response)
            }
        }
    }

    /// Sends the response of a query to its client.
    fn reply(&self, live: &Live, query: &mut Query, reply: Box<dyn DeferredReply>) {
        let request = &mut query.request;
        let State::Response(response) = &query.state else {
            return self.without_reply(live, request, self.clocks());
        };
        let mut buffer = self.reply.borrow_mut();
        let size = response.write(&mut buffer[..], &request.reply_head(response.error));
        reply.send(&buffer[..size]);
        self.finish(live, request, Some(response), &buffer[..size], self.clocks());
    }

    /// Finishes a query whose client gets no reply.
    fn without_reply(&self, live: &Live, request: &mut Request, clocks: Clocks) {
        request.end();
        self.finish(live, request, None, &[], clocks);
    }
}
