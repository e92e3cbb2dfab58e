//! Filters that look names up: their queries wait for the lookups, and continue with the filter's next
//! decision.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::filter::{
    Answers, Ask, Decision, Outcome, QueryOutcome, ROUNDS, ResponseDecision, ResponseOutcome,
};
use dnsweir_answer::Resolution;
use dnsweir_os::clock::UnixTime;

use super::explain;
use super::generation::Stage;
use super::live::Live;
use super::lookups::Looked;
use super::queue::Query;
use super::request::Request;
use super::request_pass;
use super::response::{AskingResponse, Response};
use super::response_pass;
use super::sources::GaveUp;
use super::state::{Asking, State, Wait};
use super::trace::Direction;
use super::worker::Worker;

impl Worker {
    /// Makes the lookups of a query's filter, which then decides; returns where the query continues.
    pub(super) async fn ask_about_query(
        self: &Rc<Self>,
        live: &Rc<Live>,
        query: &mut Query,
        asking: Asking,
    ) -> State {
        let stages = &live.generation.pipelines[query.request.pipeline].stages;
        let (Decision::Ask(ask), Some(&Stage::Filter { filter, zone_base })) =
            (&asking.verdict.decision, stages.get(query.request.stage))
        else {
            // Unreachable: only a query whose filter asks waits here.
            return State::Response(Response::of_source(Resolution::BOUNDED));
        };
        let rounds = asking.rounds + 1;
        let looked = match self.look_up_all(live, query, filter, ask, 0).await {
            Ok(looked) => looked,
            Err(why) => return self.without_answers(live, query, why),
        };
        let request = &mut query.request;
        if !are_shared(&looked) {
            request.unshare();
        }
        let zone = (zone_base + request.zone) as u16;
        let mut outcome = self.query_answers(live, request, (filter, zone), ask, &looked);
        let asks_again = match &outcome {
            Outcome::Decided(verdict) => matches!(verdict.decision, Decision::Ask(_)),
            _ => false,
        };
        if asks_again && rounds == ROUNDS {
            let counters = live.generation.filters[filter].filter.counters();
            counters.query_answers.failed.fetch_add(1, Ordering::Relaxed);
            request.trace(|| explain::asks_too_often(live, request, filter, Direction::In, ROUNDS));
            outcome = Outcome::Failed;
        }
        let mut state = State::Request;
        request_pass::decide(live, request, &mut state, filter, outcome);
        if let State::Waits(Wait::Lookups(again)) = &mut state {
            again.rounds = rounds;
        }
        state
    }

    /// Gives a filter the answers, and returns the outcome; `filter` is its index and its index of the zone.
    fn query_answers(
        &self,
        live: &Live,
        request: &Request,
        (filter, zone): (usize, u16),
        ask: &Ask,
        looked: &[Looked<'_>],
    ) -> QueryOutcome {
        let record = live.query_record(request);
        let found = looked.iter().map(Looked::tell);
        let answers = Answers::about_query(record, live.asked(request, filter), &ask.state, found);
        let begun = request.trace.as_ref().map(|_| Instant::now());
        let mut instance = live.instances[filter].borrow_mut();
        let interest = live.generation.filters[filter].filter.interest();
        // Others do not get what was found for this client alone.
        let key = are_shared(looked).then(|| live.memo_key(request, interest, zone));
        let outcome = instance.query_answers(UnixTime::now(), key.as_ref(), &answers);
        let took = begun.map(|begun| begun.elapsed());
        request.trace(|| explain::decided(live, request, filter, &outcome, took));
        outcome
    }

    /// Makes the lookups of a response's filter, which then decides; returns where the response continues.
    pub(super) async fn ask_about_response(
        self: &Rc<Self>,
        live: &Rc<Live>,
        query: &mut Query,
        mut asking: Box<AskingResponse>,
    ) -> State {
        // A lookup may ask the same question as this query: its followers have to continue now.
        drop(query.request.fetch().and_then(|fetch| fetch.led.take()));
        asking.rounds += 1;
        let AskingResponse {
            filter,
            response,
            ask,
            rounds,
        } = *asking;
        let looked = self.look_up_all(live, query, filter, &ask, response.octets());
        let looked = match looked.await {
            Ok(looked) => looked,
            Err(why) => return self.without_answers(live, query, why),
        };
        let request = &mut query.request;
        if !are_shared(&looked) {
            request.unshare();
        }
        let mut outcome = self.response_answers(live, request, filter, &response, &ask, &looked);
        let asks_again = match &outcome {
            Outcome::Decided(verdict) => matches!(verdict.decision, ResponseDecision::Ask(_)),
            _ => false,
        };
        if asks_again && rounds == ROUNDS {
            let counters = live.generation.filters[filter].filter.counters();
            counters.response_answers.failed.fetch_add(1, Ordering::Relaxed);
            request.trace(|| explain::asks_too_often(live, request, filter, Direction::Out, ROUNDS));
            outcome = Outcome::Failed;
        }
        let mut state = State::Response(response);
        response_pass::change(live, request, &mut state, filter, outcome);
        if let State::Waits(Wait::ResponseLookups(again)) = &mut state {
            again.rounds = rounds;
        }
        state
    }

    /// The response to a query that may not wait any longer for its filter's lookups.
    fn without_answers(&self, live: &Live, query: &Query, why: GaveUp) -> State {
        State::Response(Response::of_source(self.gave_up(live, &query.request, why)))
    }

    /// Gives a filter the answers, and returns the outcome.
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
        let message = match live.generation.filters[filter].filter.interest().messages {
            true => response.message(&request.question),
            false => Vec::new(),
        };
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
