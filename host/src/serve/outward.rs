//! The way out: responses through the same filters, bottom to top.

use crate::config::OnError;
use crate::dns::edns::ExtendedError;
use crate::dns::{QUESTION_TAIL, rcode, u16_at};
use crate::filter::Outcome;

use super::generation::{Live, Stage};
use super::response::Response;
use super::transit::{ChangeKind, Transit};
use super::{Scratch, Worker, story, unix_milliseconds};

impl Worker {
    /// Takes responses back from where each query stands to `floor`, doing what filters decided on the way
    /// in and asking those that look at responses.
    pub(super) fn outward(
        &self,
        live: &Live,
        transits: &mut [Transit],
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
            for (index, (transit, response)) in transits.iter_mut().zip(responses.iter_mut()).enumerate() {
                let Some(response) = response else { continue };
                let pipeline = &live.generation.pipelines[transit.pipeline];
                if !pipeline.looks_at_responses {
                    if transit.changes.is_empty() {
                        continue;
                    }
                    // Nobody is asked, and if nobody watches, all of it is done at once.
                    if transit.story.is_none() {
                        self.undo(transit, response, floor);
                        continue;
                    }
                }
                while transit.stage > floor {
                    transit.stage -= 1;
                    let Stage::Filter { filter, .. } = pipeline.stages[transit.stage] else {
                        continue;
                    };
                    let changes = transit.changes.len();
                    let before = transit.story.as_ref().map(|_| story::response(response));
                    let skip = self.undo(transit, response, transit.stage);
                    if let Some(saw) = before.filter(|_| transit.changes.len() < changes) {
                        transit.tell(|| story::undone(live, transit, filter, saw, response));
                    }
                    let interest = live.generation.filters[filter].interest();
                    if interest.responses && !skip && interest.covers(transit.qtype, transit.name.as_bytes())
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
                    let (transit, Some(response)) = (&transits[index], &responses[index]) else {
                        continue;
                    };
                    let message = if messages {
                        response.message(&transit.question)
                    } else {
                        Vec::new()
                    };
                    batch.push_response(
                        live.response_record(transit, response),
                        transit.name.as_bytes(),
                        &message,
                    );
                }
                let begun = self.begun();
                live.instances[filter]
                    .borrow_mut()
                    .responses(now, batch, verdicts);
                let took = begun.map(|begun| begun.elapsed());
                for (index, verdict) in waiting.drain(..).zip(verdicts.drain(..)) {
                    let (transit, Some(response)) = (&transits[index], &mut responses[index]) else {
                        continue;
                    };
                    transit.tell(|| story::changed(live, transit, filter, response, &verdict, took));
                    match verdict {
                        Outcome::Passed => {}
                        Outcome::Decided(verdict) => {
                            if let Some(records) = &verdict.replace {
                                *response = Response::from_filter(&transit.question, records);
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
    fn undo(&self, transit: &mut Transit, response: &mut Response, stage: usize) -> bool {
        let mut skip = false;
        while transit.changes.last().is_some_and(|change| change.stage >= stage) {
            match transit.changes.pop().map(|change| change.what) {
                Some(ChangeKind::Edit(edit)) => response.edit(&edit),
                Some(ChangeKind::SkipResponse) => skip = true,
                Some(ChangeKind::Renamed { question, revert }) => {
                    let below = std::mem::replace(&mut transit.question, question);
                    response.rename(&below, &transit.question, revert);
                    let tail = transit.question.len() - QUESTION_TAIL;
                    transit.name.set_lowercased(&transit.question[..tail]);
                    transit.qtype = u16_at(&transit.question, tail);
                    transit.qclass = u16_at(&transit.question, tail + 2);
                }
                None => {}
            }
        }
        skip
    }
}
