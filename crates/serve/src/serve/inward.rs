//! The way in: queries through the filters above the stage that will answer them.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::KeyHasher;
use crate::config::OnError;
use crate::dns::{QUESTION_TAIL, rcode};
use crate::filter::{self, Decision, Instance, Outcome, QueryOutcome, Rewrite, Verdict};
use dnsweir_answer::Resolution;

use super::batch::Step;
use super::explain;
use super::generation::Stage;
use super::live::Live;
use super::phase::Phase;
use super::request::{Change, ChangeKind, Request};
use super::worker::{Scratch, Worker, unix_milliseconds};

/// Queries on their way in.
struct Inward<'a> {
    worker: &'a Worker,
    live: &'a Live,
    requests: &'a mut [Request],
    steps: &'a mut [Step],
    /// Unix time in milliseconds, once a filter was looked at.
    clock: Option<u64>,
}

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
        let mut inward = Inward {
            worker: self,
            live,
            requests,
            steps,
            clock: None,
        };
        while inward.pass(waiting) {
            self.ask(live, &mut inward, waiting, queries, verdicts);
        }
        // Only a pass over filters that were looked at read the clock.
        if inward.clock.is_some() {
            for instance in &live.instances {
                instance.borrow_mut().settle();
            }
        }
    }
}

impl Inward<'_> {
    /// Takes each query as far as it comes without a call; whether any waits for one.
    // The way of every hit, and called from one place; left to itself, the compiler makes a call of it.
    #[inline(always)]
    fn pass(&mut self, waiting: &mut [Vec<usize>]) -> bool {
        let mut asked = false;
        let (worker, live) = (self.worker, self.live);
        for (index, (request, step)) in self.requests.iter_mut().zip(self.steps.iter_mut()).enumerate() {
            let stages = &live.generation.pipelines[request.pipeline].stages;
            while matches!(step, Step::Passing) {
                let (filter, zone_base) = match stages.get(request.stage) {
                    Some(&Stage::Filter { filter, zone_base }) => (filter, zone_base),
                    Some(&Stage::Source(source)) => {
                        match worker.resolve_at_once(live, request, source) {
                            Some(Resolution::NotMine) => request.stage += 1,
                            Some(Resolution::Answer {
                                answer,
                                authoritative,
                            }) => *step = Step::Answered(answer, authoritative),
                            Some(Resolution::Alias(alias)) => *step = Step::Aliased(alias),
                            Some(Resolution::Failed { error, local }) => {
                                *step = Step::Unresolved(error, local);
                            }
                            // What is relayed as it is has to be waited for.
                            Some(Resolution::Verbatim(_)) | None => *step = Step::AtSource,
                        }
                        continue;
                    }
                    Some(Stage::Cache(_)) | None => break,
                };
                let interest = live.generation.filters[filter].interest();
                if interest.queries {
                    let now = *self.clock.get_or_insert_with(unix_milliseconds);
                    let zone = (zone_base + request.zone) as u16;
                    let mut instance = live.instances[filter].borrow_mut();
                    // What is remembered was of interest when it was asked.
                    if let Some(recalled) = instance.recall(&live.memo_key(request, interest, zone), now) {
                        request.trace(|| explain::remembered(live, request, filter, recalled.verdict));
                        if recalled.passes {
                            request.stage += 1;
                        } else {
                            apply(worker, live, filter, request, step, recalled.verdict);
                        }
                        continue;
                    }
                    if interest.covers(request.qtype, request.name.as_bytes()) {
                        waiting[filter].push(index);
                        asked = true;
                        break;
                    }
                }
                request.trace(|| explain::unasked(live, request, filter));
                request.stage += 1;
            }
        }
        asked
    }
}

impl Phase for Inward<'_> {
    type Record = filter::Query;
    type Outcome = QueryOutcome;

    fn show(&self, filter: usize, index: usize, batch: &mut filter::Batch<filter::Query>) {
        let (live, request) = (self.live, &self.requests[index]);
        let interest = live.generation.filters[filter].interest();
        batch.push_query(
            live.query_record(request),
            live.asked(request, filter),
            live.memo_hash(request, interest),
        );
    }

    fn call(
        &self,
        instance: &mut Instance,
        batch: &mut filter::Batch<filter::Query>,
        outcomes: &mut Vec<QueryOutcome>,
    ) {
        instance.queries(self.clock.unwrap_or_else(unix_milliseconds), batch, outcomes);
    }

    fn apply(&mut self, filter: usize, index: usize, outcome: QueryOutcome, took: Option<Duration>) {
        let live = self.live;
        let (request, step) = (&mut self.requests[index], &mut self.steps[index]);
        request.trace(|| explain::decided(live, request, filter, &outcome, took));
        decide(self.worker, live, request, step, filter, outcome);
    }
}

/// Does to a query what came of asking a filter.
pub(super) fn decide(
    worker: &Worker,
    live: &Live,
    request: &mut Request,
    step: &mut Step,
    filter: usize,
    outcome: QueryOutcome,
) {
    match outcome {
        Outcome::Passed => request.stage += 1,
        Outcome::Decided(verdict) => apply(worker, live, filter, request, step, &verdict),
        Outcome::Failed => match live.generation.config.filters[filter].on_error {
            OnError::Bypass => request.stage += 1,
            OnError::Servfail => *step = Step::Failed(rcode::SERVFAIL),
            OnError::Refuse => *step = Step::Failed(rcode::REFUSED),
        },
    }
}

/// Does to a query what a filter decided.
fn apply(
    worker: &Worker,
    live: &Live,
    filter: usize,
    request: &mut Request,
    step: &mut Step,
    verdict: &Arc<Verdict>,
) {
    let stage = request.stage;
    live.delay(request, filter, verdict.delay);
    if matches!(verdict.decision, Decision::Pass | Decision::Rewrite(_)) {
        if verdict.edit.is_some() {
            request.changes.push(Change {
                stage,
                what: ChangeKind::Edit(Arc::clone(verdict)),
            });
        }
        if let Some(route) = &verdict.route {
            let routes = &live.generation.routes[filter];
            let source = route
                .source
                .as_ref()
                .and_then(|(index, _)| routes.get(usize::from(*index)));
            request.routed = true;
            request.changes.push(Change {
                stage,
                what: ChangeKind::Route(source.copied(), route.subnet),
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
        Decision::Rewrite(rewrite) => self::rewrite(&worker.shared.hasher, request, rewrite),
        Decision::Answer(_)
        | Decision::Alias(_)
        | Decision::Refuse(_)
        | Decision::Drop(_)
        | Decision::Ask(_) => {
            *step = Step::Decided(Arc::clone(verdict));
        }
    }
}

/// Gives a query another question, and notes what is to be put right on the way back.
fn rewrite(hasher: &KeyHasher, request: &mut Request, rewrite: &Rewrite) {
    let tail = request.question.len() - QUESTION_TAIL;
    let name = rewrite.name.as_deref().unwrap_or(&request.question[..tail]);
    let mut question = name.to_vec();
    request.name.set_lowercased(name);
    request.qtype = rewrite.qtype.unwrap_or(request.qtype);
    request.qclass = rewrite.qclass.unwrap_or(request.qclass);
    question.extend(request.qtype.to_be_bytes());
    question.extend(request.qclass.to_be_bytes());
    request.hash = hasher.question(request.name.as_bytes(), request.qtype, request.qclass);
    let question = std::mem::replace(&mut request.question, question);
    let what = ChangeKind::Renamed {
        question,
        revert: rewrite.revert,
    };
    let stage = request.stage;
    request.changes.push(Change { stage, what });
    request.stage += 1;
}
