//! The way out: takes responses through the same filters, bottom to top.

use std::time::Duration;

use dnsweir_os::clock::UnixTime;

use crate::filter::{self, Instance, Outcome, ResponseDecision, ResponseOutcome};

use super::explain;
use super::generation::{Stage, UsedFilter};
use super::live::Live;
use super::phase::Phase;
use super::request::{ChangeKind, Request};
use super::response::{Response, Store};
use super::state::{About, State, Wait};
use super::worker::Worker;

/// Responses on their way out, next to their queries.
pub(super) struct ResponsePass<'a> {
    pub worker: &'a Worker,
    pub live: &'a Live,
    pub requests: &'a mut [Request],
    pub states: &'a mut [State],
    /// The time for filters.
    pub clock: UnixTime,
}

impl ResponsePass<'_> {
    /// Takes each response as far as it gets without a filter call, and makes the changes decided on the way
    /// in; returns whether any needs a call.
    // Inlined like `RequestPass::step`.
    #[inline(always)]
    pub fn step(&mut self, waiting: &mut [Vec<usize>]) -> bool {
        let (worker, live) = (self.worker, self.live);
        let mut any_asked = false;
        for (index, (request, state)) in self.requests.iter_mut().zip(self.states.iter_mut()).enumerate() {
            let State::Response(response) = state else {
                continue;
            };
            let pipeline = &live.generation.pipelines[request.pipeline];
            // Without a filter call and a trace, all changes are made in one step.
            if !pipeline.looks_at_responses && request.trace.is_none() {
                if !request.changes.is_empty() {
                    undo(worker, live, request, response, request.floor);
                }
                request.stage = request.floor;
            }
            let mut asked = false;
            while request.stage > request.floor && !asked {
                request.stage -= 1;
                match pipeline.stages[request.stage] {
                    Stage::Source(_) => {}
                    Stage::Cache(_) => _ = undo(worker, live, request, response, request.stage),
                    Stage::Filter(UsedFilter { filter, .. }) => {
                        asked = meets_filter(worker, live, request, response, filter);
                        if asked {
                            waiting[filter].push(index);
                        }
                    }
                }
            }
            any_asked |= asked;
            if request.delay > 0 && !asked {
                state.hold(|response| Wait::Delay(Box::new(response)));
            }
        }
        any_asked
    }
}

/// Takes a response past a filter, and makes the changes it decided on the way in; returns whether to call
/// it.
fn meets_filter(
    worker: &Worker,
    live: &Live,
    request: &mut Request,
    response: &mut Response,
    filter: usize,
) -> bool {
    let changes = request.changes.len();
    let before = request.trace.as_ref().map(|_| explain::response(response));
    let skip = undo(worker, live, request, response, request.stage);
    if let Some(saw) = before.filter(|_| request.changes.len() < changes) {
        request.trace(|| explain::undone(live, request, filter, saw, response));
    }
    let interest = live.generation.filters[filter].filter.interest();
    interest.responses && !skip && interest.covers(request.qtype, request.name.as_bytes())
}

impl Phase for ResponsePass<'_> {
    type Record = filter::Response;
    type Outcome = ResponseOutcome;

    fn show(&self, filter: usize, index: usize, batch: &mut filter::Batch<filter::Response>) {
        let (request, State::Response(response)) = (&self.requests[index], &self.states[index]) else {
            return;
        };
        let live = self.live;
        let message = live.message(request, response, filter);
        let record = live.response_record(request, response);
        batch.push_response(record, live.asked(request, filter), &message);
    }

    fn call(
        &self,
        instance: &mut Instance,
        batch: &mut filter::Batch<filter::Response>,
        outcomes: &mut Vec<ResponseOutcome>,
    ) {
        instance.responses(self.clock, batch, outcomes);
    }

    fn apply(&mut self, filter: usize, index: usize, outcome: ResponseOutcome, took: Option<Duration>) {
        let live = self.live;
        let (request, state) = (&mut self.requests[index], &mut self.states[index]);
        if let State::Response(response) = state {
            request.trace(|| explain::changed(live, request, filter, response, &outcome, took));
        }
        change(live, request, state, filter, outcome);
    }
}

/// Applies the outcome of a filter call to a response.
pub(super) fn change(
    live: &Live,
    request: &mut Request,
    state: &mut State,
    filter: usize,
    outcome: ResponseOutcome,
) {
    let verdict = match outcome {
        Outcome::Passed => return,
        Outcome::Decided(verdict) => verdict,
        Outcome::Failed => {
            if let Some(failed) = State::after_failure(live, filter) {
                *state = failed;
            }
            return;
        }
    };
    live.delay(request, filter, verdict.delay);
    match verdict.decision {
        ResponseDecision::Pass => {}
        ResponseDecision::Replace(records) => {
            *state = State::Response(Response::from_filter(&request.question, &records));
        }
        ResponseDecision::Drop(reason) => {
            let counters = live.generation.filters[filter].filter.counters();
            counters.drops.add(&reason);
            *state = State::Dropped;
        }
        ResponseDecision::Ask(ask) => {
            return state.hold(|response| Wait::for_filter(About::Response(response, ask)));
        }
    }
    if let (State::Response(response), Some(edit)) = (state, &verdict.edit) {
        response.edit(edit, request, live, request.stage);
    }
}

/// Makes the changes recorded for `stage` and the stages below, last first; returns whether to skip a
/// filter's response phase.
pub(super) fn undo(
    worker: &Worker,
    live: &Live,
    request: &mut Request,
    response: &mut Response,
    stage: usize,
) -> bool {
    let mut skip = false;
    while let Some(change) = request.changes.pop_if(|change| change.stage >= stage) {
        match change.what {
            ChangeKind::Edit(verdict) => {
                if let Some(edit) = &verdict.edit {
                    response.edit(edit, request, live, change.stage);
                }
            }
            ChangeKind::SkipResponse => skip = true,
            // An answer for one client or subnet is not for all clients of a cache above.
            ChangeKind::Unshared | ChangeKind::Route(_, Some(_)) => response.store = Store::Never,
            ChangeKind::Route(_, None) => {}
            ChangeKind::Renamed {
                question,
                hash,
                revert,
            } => {
                let below = request.set_question(question);
                request.hash = hash;
                response.rename(&below, &request.question, revert);
            }
            ChangeKind::Keep(fetch) => worker.fetched(live, request, change.stage, *fetch, response),
        }
    }
    skip
}
