//! The way out: responses through the same filters, bottom to top.

use std::time::Duration;

use crate::config::OnError;
use crate::dns::edns::ExtendedError;
use crate::dns::rcode;
use crate::filter::{self, Ask, Instance, Outcome, ResponseDecision, ResponseOutcome};

use super::explain;
use super::generation::Stage;
use super::live::Live;
use super::phase::Phase;
use super::request::{ChangeKind, Request};
use super::response::{AskingResponse, Response};
use super::worker::{Scratch, Worker, unix_milliseconds};

/// Responses on their way out, each beside its query.
struct Outward<'a> {
    live: &'a Live,
    requests: &'a mut [Request],
    responses: &'a mut [Option<Response>],
    /// Where they stop.
    floor: usize,
    /// Unix time in milliseconds.
    now: u64,
    /// Those whose filter asks first.
    asking: Vec<AskingResponse>,
}

impl Worker {
    /// Takes responses back from where each query stands to `floor`, doing what filters decided on the way
    /// in and asking those that look at responses. Those whose filter asks first are taken out: they go on when they are put
    /// back.
    pub(super) fn outward(
        &self,
        live: &Live,
        requests: &mut [Request],
        responses: &mut [Option<Response>],
        floor: usize,
    ) -> Vec<AskingResponse> {
        let mut scratch = self.scratch.borrow_mut();
        let Scratch {
            waiting,
            responses: batch,
            response_verdicts: verdicts,
            ..
        } = &mut *scratch;
        waiting.resize_with(live.instances.len(), Vec::new);
        let mut outward = Outward {
            live,
            requests,
            responses,
            floor,
            now: 0,
            asking: Vec::new(),
        };
        while outward.pass(waiting) {
            outward.now = unix_milliseconds();
            self.ask(live, &mut outward, waiting, batch, verdicts);
        }
        outward.asking
    }
}

impl Outward<'_> {
    /// Takes each response as far as it comes without a call; whether any waits for one.
    // As `Inward::pass`.
    #[inline(always)]
    fn pass(&mut self, waiting: &mut [Vec<usize>]) -> bool {
        let (live, floor) = (self.live, self.floor);
        let mut asked = false;
        for (index, (request, response)) in self
            .requests
            .iter_mut()
            .zip(self.responses.iter_mut())
            .enumerate()
        {
            let Some(response) = response else { continue };
            let pipeline = &live.generation.pipelines[request.pipeline];
            if !pipeline.looks_at_responses {
                if request.changes.is_empty() {
                    continue;
                }
                // Nobody is asked, and if nobody watches, all of it is done at once.
                if request.trace.is_none() {
                    undo(live, request, response, floor);
                    continue;
                }
            }
            while request.stage > floor {
                request.stage -= 1;
                let Stage::Filter { filter, .. } = pipeline.stages[request.stage] else {
                    continue;
                };
                let changes = request.changes.len();
                let before = request.trace.as_ref().map(|_| explain::response(response));
                let skip = undo(live, request, response, request.stage);
                if let Some(saw) = before.filter(|_| request.changes.len() < changes) {
                    request.trace(|| explain::undone(live, request, filter, saw, response));
                }
                let interest = live.generation.filters[filter].interest();
                if interest.responses && !skip && interest.covers(request.qtype, request.name.as_bytes()) {
                    waiting[filter].push(index);
                    asked = true;
                    break;
                }
            }
        }
        asked
    }
}

impl Phase for Outward<'_> {
    type Record = filter::Response;
    type Outcome = ResponseOutcome;

    fn show(&self, filter: usize, index: usize, batch: &mut filter::Batch<filter::Response>) {
        let (request, Some(response)) = (&self.requests[index], &self.responses[index]) else {
            return;
        };
        let message = if self.live.generation.filters[filter].interest().messages {
            response.message(&request.question)
        } else {
            Vec::new()
        };
        let record = self.live.response_record(request, response);
        batch.push_response(record, self.live.asked(request, filter), &message);
    }

    fn call(
        &self,
        instance: &mut Instance,
        batch: &mut filter::Batch<filter::Response>,
        outcomes: &mut Vec<ResponseOutcome>,
    ) {
        instance.responses(self.now, batch, outcomes);
    }

    fn apply(&mut self, filter: usize, index: usize, outcome: ResponseOutcome, took: Option<Duration>) {
        let live = self.live;
        let (request, response) = (&mut self.requests[index], &mut self.responses[index]);
        if let Some(response) = response {
            request.trace(|| explain::changed(live, request, filter, response, &outcome, took));
        }
        if let Some(ask) = change(live, request, response, filter, outcome)
            && let Some(response) = response.take()
        {
            self.asking.push(AskingResponse {
                index,
                filter,
                response,
                ask,
            });
        }
    }
}

/// Does to a response what came of asking a filter; or what the filter asks first.
pub(super) fn change(
    live: &Live,
    request: &mut Request,
    response: &mut Option<Response>,
    filter: usize,
    outcome: ResponseOutcome,
) -> Option<Ask> {
    match outcome {
        Outcome::Passed => {}
        Outcome::Decided(verdict) => {
            live.delay(request, filter, verdict.delay);
            match verdict.decision {
                ResponseDecision::Pass => {}
                ResponseDecision::Replace(records) => {
                    *response = Some(Response::from_filter(&request.question, &records));
                }
                ResponseDecision::Drop(reason) => {
                    live.count_drop(request, &reason);
                    *response = None;
                }
                ResponseDecision::Ask(ask) => return Some(ask),
            }
            if let (Some(response), Some(edit)) = (response, &verdict.edit) {
                response.edit(edit, request, live, request.stage);
            }
        }
        Outcome::Failed => {
            let rcode = match live.generation.config.filters[filter].on_error {
                OnError::Bypass => return None,
                OnError::Servfail => rcode::SERVFAIL,
                OnError::Refuse => rcode::REFUSED,
            };
            // That a filter failed says nothing about the name.
            *response = Some(Response {
                store: false,
                ..Response::error(rcode, ExtendedError::Other)
            });
        }
    }
    None
}

/// Does what the filters from `stage` on decided on the way in, last first; whether the response phase of one
/// is left out.
fn undo(live: &Live, request: &mut Request, response: &mut Response, stage: usize) -> bool {
    let mut skip = false;
    while let Some(change) = request.changes.pop_if(|change| change.stage >= stage) {
        match change.what {
            ChangeKind::Edit(verdict) => {
                if let Some(edit) = &verdict.edit {
                    response.edit(edit, request, live, change.stage);
                }
            }
            ChangeKind::SkipResponse => skip = true,
            ChangeKind::Route(..) => {}
            ChangeKind::Renamed { question, revert } => {
                let below = request.restore(question);
                response.rename(&below, &request.question, revert);
            }
        }
    }
    skip
}
