//! The way in: queries through the filters above the stage that will answer them.

use std::sync::Arc;

use crate::config::OnError;
use crate::dns::{QUESTION_TAIL, rcode};
use crate::filter::{Decision, Outcome, Verdict};

use super::generation::{Live, Stage};
use super::request::{Change, ChangeKind, Request};
use super::{Scratch, Step, Worker, trace, unix_milliseconds};

impl Worker {
    /// Takes queries on through their filters until each has come to something else, or been decided.
    pub(super) fn advance(&self, live: &Live, requests: &mut [Request], steps: &mut [Step]) {
        let mut scratch = self.scratch.borrow_mut();
        let Scratch {
            waiting,
            queries,
            verdicts,
            ..
        } = &mut *scratch;
        waiting.resize_with(live.instances.len(), Vec::new);
        let mut unix_ms = None;
        loop {
            let mut asked = false;
            for (index, (request, step)) in requests.iter_mut().zip(steps.iter_mut()).enumerate() {
                let stages = &live.generation.pipelines[request.pipeline].stages;
                while matches!(step, Step::Passing) {
                    let Some(&Stage::Filter { filter, zone_base }) = stages.get(request.stage) else {
                        *step = Step::Arrived;
                        break;
                    };
                    let interest = live.generation.filters[filter].interest();
                    if interest.queries {
                        let now = *unix_ms.get_or_insert_with(unix_milliseconds);
                        let zone = (zone_base + request.zone) as u16;
                        let mut instance = live.instances[filter].borrow_mut();
                        // What is remembered was of interest when it was asked.
                        if let Some(recalled) = instance.recall(&request.memo_key(zone), now) {
                            request.trace(|| trace::remembered(live, request, filter, recalled.verdict));
                            if recalled.passes {
                                request.stage += 1;
                            } else {
                                self.apply(request, step, recalled.verdict);
                            }
                            continue;
                        }
                        if interest.covers(request.qtype, request.name.as_bytes()) {
                            waiting[filter].push(index);
                            asked = true;
                            break;
                        }
                    }
                    request.trace(|| trace::unasked(live, request, filter));
                    request.stage += 1;
                }
            }
            if !asked {
                break;
            }
            let now = *unix_ms.get_or_insert_with(unix_milliseconds);
            for (filter, waiting) in waiting
                .iter_mut()
                .enumerate()
                .filter(|(_, waiting)| !waiting.is_empty())
            {
                queries.clear();
                for &index in waiting.iter() {
                    let request = &requests[index];
                    queries.push_query(live.query_record(request), request.name.as_bytes(), request.hash);
                }
                let begun = self.begun();
                live.instances[filter]
                    .borrow_mut()
                    .queries(now, queries, verdicts);
                let took = begun.map(|begun| begun.elapsed());
                for (index, verdict) in waiting.drain(..).zip(verdicts.drain(..)) {
                    let (request, step) = (&mut requests[index], &mut steps[index]);
                    request.trace(|| trace::decided(live, request, filter, &verdict, took));
                    match verdict {
                        Outcome::Passed => request.stage += 1,
                        Outcome::Decided(verdict) => self.apply(request, step, &verdict),
                        Outcome::Failed => match live.generation.config.filters[filter].on_error {
                            OnError::Bypass => request.stage += 1,
                            OnError::Servfail => *step = Step::Failed(rcode::SERVFAIL),
                            OnError::Refuse => *step = Step::Failed(rcode::REFUSED),
                        },
                    }
                }
            }
        }
        // Only a pass over filters that were looked at read the clock.
        if unix_ms.is_some() {
            for instance in &live.instances {
                instance.borrow_mut().settle();
            }
        }
    }

    /// Does to a query what a filter decided.
    fn apply(&self, request: &mut Request, step: &mut Step, verdict: &Arc<Verdict>) {
        let stage = request.stage;
        if matches!(verdict.decision, Decision::Pass | Decision::Rewrite(_)) {
            if let Some(edit) = &verdict.edit {
                request.changes.push(Change {
                    stage,
                    what: ChangeKind::Edit(edit.clone()),
                });
            }
            if verdict.skip_response {
                request.changes.push(Change {
                    stage,
                    what: ChangeKind::SkipResponse,
                });
            }
        }
        match &verdict.decision {
            Decision::Pass => request.stage += 1,
            // A signed query is relayed as it is or not at all (RFC 5625 section 4.5): to relay it under the name that
            // the filter did not want would make a signature, which nobody here can check, the way around a policy.
            Decision::Rewrite(_) if request.signed.is_some() => *step = Step::Failed(rcode::REFUSED),
            Decision::Rewrite(rewrite) => {
                let tail = request.question.len() - QUESTION_TAIL;
                let name = rewrite.name.as_deref().unwrap_or(&request.question[..tail]);
                let mut question = name.to_vec();
                request.name.set_lowercased(name);
                request.qtype = rewrite.qtype.unwrap_or(request.qtype);
                request.qclass = rewrite.qclass.unwrap_or(request.qclass);
                question.extend(request.qtype.to_be_bytes());
                question.extend(request.qclass.to_be_bytes());
                request.hash =
                    self.shared
                        .hasher
                        .question(request.name.as_bytes(), request.qtype, request.qclass);
                let question = std::mem::replace(&mut request.question, question);
                let what = ChangeKind::Renamed {
                    question,
                    revert: rewrite.revert,
                };
                request.changes.push(Change { stage, what });
                request.stage += 1;
            }
            Decision::Answer(_) | Decision::Alias(_) | Decision::Refuse(_) | Decision::Drop => {
                *step = Step::Decided(Arc::clone(verdict));
            }
        }
    }
}
