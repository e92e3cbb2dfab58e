//! Filters that look names up: their queries wait for the lookups, and continue with the filter's next
//! decision.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::dns::rcode;
use crate::filter::{Answers, Ask, Decision, QueryOutcome, ROUNDS, ResponseOutcome};
use dnsweir_os::clock::UnixTime;

use super::explain;
use super::generation::{Stage, UsedFilter};
use super::live::Live;
use super::lookups::Looked;
use super::queue::Query;
use super::request::Request;
use super::request_pass;
use super::response::Response;
use super::response_pass;
use super::state::{About, Asking, State, Wait};
use super::trace::Direction;
use super::worker::Worker;

impl Worker {
    /// Makes the lookups that the filter at a query's stage asks for. Then the filter decides about the query
    /// or its response; returns where that continues.
    pub(super) async fn look_up_and_decide(
        self: &Rc<Self>,
        live: &Rc<Live>,
        query: &mut Query,
        asking: Asking,
    ) -> State {
        let Asking { about, rounds } = asking;
        let lookups = match &about {
            About::Query(verdict) => match &verdict.decision {
                Decision::Ask(ask) => Some((ask, 0)),
                _ => None,
            },
            About::Response(response, ask) => Some((ask, response.octets())),
        };
        let stage = live.stage(&query.request, query.request.stage);
        let (Some((ask, held)), Some(&Stage::Filter(used))) = (lookups, stage) else {
            // Unreachable: only a query whose filter asks waits here.
            return State::failed(rcode::SERVFAIL);
        };
        // A lookup may ask the same question as this query: its followers have to continue now.
        drop(query.request.fetch().and_then(|fetch| fetch.led.take()));
        let looked = match self.look_up_all(live, query, used.filter, ask, held).await {
            Ok(looked) => looked,
            Err(why) => {
                self.gave_up(live, &query.request, why);
                return State::failed(rcode::SERVFAIL);
            }
        };
        let request = &mut query.request;
        if !are_shared(&looked) {
            request.unshare();
        }
        let mut state = State::Request;
        if let About::Response(response, ask) = about {
            let outcome = self.response_answers(live, request, used.filter, &response, &ask, &looked);
            state = State::Response(response);
            response_pass::change(live, request, &mut state, used.filter, outcome);
        } else {
            let outcome = self.query_answers(live, request, used, ask, &looked);
            request_pass::decide(live, request, &mut state, used.filter, outcome);
        }
        match state {
            State::Waits(Wait::Lookups(again)) if rounds + 1 == ROUNDS => {
                asks_too_often(live, request, used.filter, again.about)
            }
            State::Waits(Wait::Lookups(mut again)) => {
                again.rounds = rounds + 1;
                State::Waits(Wait::Lookups(again))
            }
            state => state,
        }
    }

    /// Gives a filter the answers about a query, and returns the outcome.
    fn query_answers(
        &self,
        live: &Live,
        request: &Request,
        used: UsedFilter,
        ask: &Ask,
        looked: &[Looked<'_>],
    ) -> QueryOutcome {
        let filter = used.filter;
        let record = live.query_record(request);
        let found = looked.iter().map(Looked::tell);
        let answers = Answers::about_query(record, live.asked(request, filter), &ask.state, found);
        let begun = request.trace.as_ref().map(|_| Instant::now());
        let mut instance = live.instances[filter].borrow_mut();
        let interest = live.generation.filters[filter].filter.interest();
        // Others do not get what was found for this client alone.
        let key = are_shared(looked).then(|| live.memo_key(request, interest, used.zone(request.zone)));
        let outcome = instance.query_answers(UnixTime::now(), key.as_ref(), &answers);
        let took = begun.map(|begun| begun.elapsed());
        request.trace(|| explain::decided(live, request, filter, &outcome, took));
        outcome
    }

    /// The same about a response.
    fn response_answers(
        &self,
        live: &Live,
        request: &Request,
        filter: usize,
        response: &Response,
        ask: &Ask,
        looked: &[Looked<'_>],
    ) -> ResponseOutcome {
        let record = live.response_record(request, response);
        let message = live.message(request, response, filter);
        let found = looked.iter().map(Looked::tell);
        let asked = live.asked(request, filter);
        let answers = Answers::about_response(record, asked, &message, &ask.state, found);
        let begun = request.trace.as_ref().map(|_| Instant::now());
        let mut instance = live.instances[filter].borrow_mut();
        let outcome = instance.response_answers(UnixTime::now(), &answers);
        let took = begun.map(|begun| begun.elapsed());
        request.trace(|| explain::changed(live, request, filter, response, &outcome, took));
        outcome
    }
}

/// Whether other clients would find the same.
fn are_shared(looked: &[Looked<'_>]) -> bool {
    looked.iter().all(|looked| looked.is_shared)
}

/// The state after a filter asked once more than it may, which counts as a failure. It decided nothing else:
/// a verdict that asks has no edit and no delay.
fn asks_too_often(live: &Live, request: &mut Request, filter: usize, about: About) -> State {
    let counters = live.generation.filters[filter].filter.counters();
    let (calls, on) = match about {
        About::Query(_) => (&counters.query_answers, Direction::In),
        About::Response(..) => (&counters.response_answers, Direction::Out),
    };
    calls.failed.fetch_add(1, Ordering::Relaxed);
    request.trace(|| explain::asks_too_often(live, request, filter, on));
    match (State::after_failure(live, filter), about) {
        (Some(failed), _) => failed,
        (None, About::Query(_)) => {
            request.stage += 1;
            State::Request
        }
        (None, About::Response(response, _)) => State::Response(response),
    }
}
