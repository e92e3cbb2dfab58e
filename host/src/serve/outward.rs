//! The way out: responses through the same filters, bottom to top.

use crate::config::OnError;
use crate::dns::edns::ExtendedError;
use crate::dns::{QUESTION_TAIL, rcode, u16_at};
use crate::filter::Outcome;

use super::generation::{Live, Stage};
use super::request::{ChangeKind, Request};
use super::response::Response;
use super::{Scratch, Worker, trace, unix_milliseconds};

impl Worker {
    /// Takes responses back from where each query stands to `floor`, doing what filters decided on the way
    /// in and asking those that look at responses.
    pub(super) fn outward(
        &self,
        live: &Live,
        requests: &mut [Request],
        responses: &mut [Option<Response>],
        floor: usize,
    ) {
        let mut scratch = self.scratch.borrow_mut();
        let Scratch {
            waiting,
            responses: batch,
            response_verdicts: verdicts,
            ..
        } = &mut *scratch;
        waiting.resize_with(live.instances.len(), Vec::new);
        loop {
            let mut asked = false;
            for (index, (request, response)) in requests.iter_mut().zip(responses.iter_mut()).enumerate() {
                let Some(response) = response else { continue };
                let pipeline = &live.generation.pipelines[request.pipeline];
                if !pipeline.looks_at_responses {
                    if request.changes.is_empty() {
                        continue;
                    }
                    // Nobody is asked, and if nobody watches, all of it is done at once.
                    if request.trace.is_none() {
                        self.undo(request, response, floor);
                        continue;
                    }
                }
                while request.stage > floor {
                    request.stage -= 1;
                    let Stage::Filter { filter, .. } = pipeline.stages[request.stage] else {
                        continue;
                    };
                    let changes = request.changes.len();
                    let before = request.trace.as_ref().map(|_| trace::response(response));
                    let skip = self.undo(request, response, request.stage);
                    if let Some(saw) = before.filter(|_| request.changes.len() < changes) {
                        request.trace(|| trace::undone(live, request, filter, saw, response));
                    }
                    let interest = live.generation.filters[filter].interest();
                    if interest.responses && !skip && interest.covers(request.qtype, request.name.as_bytes())
                    {
                        waiting[filter].push(index);
                        asked = true;
                        break;
                    }
                }
            }
            if !asked {
                return;
            }
            let now = unix_milliseconds();
            for (filter, waiting) in waiting
                .iter_mut()
                .enumerate()
                .filter(|(_, waiting)| !waiting.is_empty())
            {
                let messages = live.generation.filters[filter].interest().messages;
                batch.clear();
                for &index in waiting.iter() {
                    let (request, Some(response)) = (&requests[index], &responses[index]) else {
                        continue;
                    };
                    let message = if messages {
                        response.message(&request.question)
                    } else {
                        Vec::new()
                    };
                    batch.push_response(
                        live.response_record(request, response),
                        request.name.as_bytes(),
                        &message,
                    );
                }
                let begun = self.begun();
                live.instances[filter]
                    .borrow_mut()
                    .responses(now, batch, verdicts);
                let took = begun.map(|begun| begun.elapsed());
                for (index, verdict) in waiting.drain(..).zip(verdicts.drain(..)) {
                    let (request, Some(response)) = (&requests[index], &mut responses[index]) else {
                        continue;
                    };
                    request.trace(|| trace::changed(live, request, filter, response, &verdict, took));
                    match verdict {
                        Outcome::Passed => {}
                        Outcome::Decided(verdict) => {
                            if let Some(records) = &verdict.replace {
                                *response = Response::from_filter(&request.question, records);
                            }
                            if let Some(edit) = &verdict.edit {
                                response.edit(edit);
                            }
                        }
                        Outcome::Failed => {
                            let rcode = match live.generation.config.filters[filter].on_error {
                                OnError::Bypass => continue,
                                OnError::Servfail => rcode::SERVFAIL,
                                OnError::Refuse => rcode::REFUSED,
                            };
                            // That a filter failed says nothing about the name.
                            *response = Response {
                                store: false,
                                ..Response::error(rcode, ExtendedError::Other)
                            };
                        }
                    }
                }
            }
        }
    }

    /// Does what the filters from `stage` on decided on the way in, last first; whether the response phase of one
    /// is left out.
    fn undo(&self, request: &mut Request, response: &mut Response, stage: usize) -> bool {
        let mut skip = false;
        while request.changes.last().is_some_and(|change| change.stage >= stage) {
            match request.changes.pop().map(|change| change.what) {
                Some(ChangeKind::Edit(edit)) => response.edit(&edit),
                Some(ChangeKind::SkipResponse) => skip = true,
                Some(ChangeKind::Renamed { question, revert }) => {
                    let below = std::mem::replace(&mut request.question, question);
                    response.rename(&below, &request.question, revert);
                    let tail = request.question.len() - QUESTION_TAIL;
                    request.name.set_lowercased(&request.question[..tail]);
                    request.qtype = u16_at(&request.question, tail);
                    request.qclass = u16_at(&request.question, tail + 2);
                }
                None => {}
            }
        }
        skip
    }
}
