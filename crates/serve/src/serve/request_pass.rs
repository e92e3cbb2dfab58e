//! The way in: takes queries through the filters above the stage that answers them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dnsweir_os::clock::{UnixTime, Uptime};

use crate::cache::KeyHasher;
use crate::dns::edns::ExtendedError;
use crate::dns::{CLASS_IN, Origin, QUESTION_TAIL, rcode, rtype, special, u16_at};
use crate::filter::{self, Decision, Instance, Outcome, QueryOutcome, Rewrite, Verdict};
use dnsweir_answer::Resolution;

use super::explain;
use super::generation::{Stage, UsedFilter};
use super::live::Live;
use super::phase::Phase;
use super::request::{ChangeKind, Request};
use super::response::Response;
use super::state::{About, Lead, State, Wait};
use super::worker::Worker;

/// Queries on their way in.
pub(super) struct RequestPass<'a> {
    pub worker: &'a Rc<Worker>,
    pub live: &'a Rc<Live>,
    pub requests: &'a mut [Request],
    pub states: &'a mut [State],
    /// The time at which cached answers must be fresh; `None`: when the query was received.
    pub now: Option<Uptime>,
    /// The time for filters, read when the first one is reached.
    pub clock: Option<UnixTime>,
}

impl RequestPass<'_> {
    /// Takes each query as far as it gets without a filter call; returns whether any needs one.
    // On the path of every hit, and has one caller; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub fn step(&mut self, waiting: &mut [Vec<usize>]) -> bool {
        let mut asked = false;
        let live = self.live;
        for (index, (request, state)) in self.requests.iter_mut().zip(self.states.iter_mut()).enumerate() {
            let pipeline = &live.generation.pipelines[request.pipeline];
            while matches!(state, State::Request) {
                match pipeline.stages.get(request.stage) {
                    Some(&Stage::Filter(used)) => {
                        if meets_filter(live, request, state, used, &mut self.clock) {
                            waiting[used.filter].push(index);
                            asked = true;
                            break;
                        }
                    }
                    // The class is checked only here: a filter may have rewritten it.
                    Some(_) if request.qclass != CLASS_IN => {
                        *state = State::error(rcode::REFUSED, ExtendedError::NotAuthoritative);
                    }
                    // RFC 8482: only an attack needs all records of a name, to send them to a victim.
                    Some(_) if request.qtype == rtype::ANY && !pipeline.wants_any => {
                        *state = State::Response(Response::local(special::any(&request.question)));
                    }
                    Some(Stage::Cache(cache)) => {
                        let now = self.now.unwrap_or(request.asked.client.received);
                        *state = match self.worker.look_up(live, request, cache, now) {
                            Some(response) => {
                                let hit = || format!("hit: {}", explain::response(&response));
                                explain::on_way_in(request, "cache", hit);
                                State::Response(response)
                            }
                            None => {
                                explain::on_way_in(request, "cache", || explain::miss(request).into());
                                State::Waits(Wait::Cache)
                            }
                        };
                    }
                    Some(&Stage::Source(source)) => *state = meets_source(live, request, source),
                    None => {
                        let did = || "refused: no stage is left that could answer".to_owned();
                        explain::on_way_in(request, "end", did);
                        *state = State::error(rcode::REFUSED, ExtendedError::NotAuthoritative);
                    }
                }
            }
        }
        asked
    }
}

/// Takes a query past a filter that need not be called, or applies the verdict it remembers; returns whether
/// to call it.
// Inlined like `pass`.
#[inline(always)]
fn meets_filter(
    live: &Live,
    request: &mut Request,
    state: &mut State,
    used: UsedFilter,
    clock: &mut Option<UnixTime>,
) -> bool {
    let filter = used.filter;
    let interest = live.generation.filters[filter].filter.interest();
    if interest.queries {
        let now = *clock.get_or_insert_with(UnixTime::now);
        let mut instance = live.instances[filter].borrow_mut();
        // A remembered verdict was within the filter's interest when it was made.
        let key = live.memo_key(request, interest, used.zone(request.zone));
        if let Some(recalled) = instance.recall(&key, now) {
            request.trace(|| explain::remembered(live, request, filter, recalled.verdict));
            if recalled.passes {
                request.stage += 1;
            } else {
                apply(live, request, state, filter, recalled.verdict);
            }
            return false;
        }
        if interest.covers(request.qtype, request.name.as_bytes()) {
            return true;
        }
    }
    request.trace(|| explain::unasked(live, request, filter));
    request.stage += 1;
    false
}

/// Asks a source for an answer from memory; returns the query's next state.
fn meets_source(live: &Live, request: &mut Request, index: usize) -> State {
    let index = live.source_of(request, index);
    let source = &live.generation.sources[index];
    let resolution = source.immediate(&live.question(request));
    if let Some(resolution) = &resolution {
        request.trace(|| explain::resolution(live, request, source, resolution));
    }
    match resolution {
        // A message that is relayed unchanged has to be waited for.
        None | Some(Resolution::Verbatim(_)) => State::Waits(Wait::Source),
        Some(resolution) => State::of_resolution(request, resolution, Origin::Local),
    }
}

impl Phase for RequestPass<'_> {
    type Record = filter::Query;
    type Outcome = QueryOutcome;

    fn show(&self, filter: usize, index: usize, batch: &mut filter::Batch<filter::Query>) {
        let (live, request) = (self.live, &self.requests[index]);
        let interest = live.generation.filters[filter].filter.interest();
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
        instance.queries(self.clock.unwrap_or_else(UnixTime::now), batch, outcomes);
    }

    fn apply(&mut self, filter: usize, index: usize, outcome: QueryOutcome, took: Option<Duration>) {
        let live = self.live;
        let (request, state) = (&mut self.requests[index], &mut self.states[index]);
        request.trace(|| explain::decided(live, request, filter, &outcome, took));
        decide(live, request, state, filter, outcome);
    }
}

/// Applies the outcome of a filter call to a query.
pub(super) fn decide(
    live: &Live,
    request: &mut Request,
    state: &mut State,
    filter: usize,
    outcome: QueryOutcome,
) {
    match outcome {
        Outcome::Passed => request.stage += 1,
        Outcome::Decided(verdict) => apply(live, request, state, filter, &verdict),
        Outcome::Failed => match State::after_failure(live, filter) {
            Some(failed) => *state = failed,
            None => request.stage += 1,
        },
    }
}

/// Applies a filter's verdict to a query.
fn apply(live: &Live, request: &mut Request, state: &mut State, filter: usize, verdict: &Arc<Verdict>) {
    live.delay(request, filter, verdict.delay);
    if matches!(verdict.decision, Decision::Pass | Decision::Rewrite(_)) {
        if verdict.edit.is_some() {
            request.add_change(ChangeKind::Edit(Arc::clone(verdict)));
        }
        if let Some(route) = &verdict.route {
            let routes = &live.generation.filters[filter].routes;
            let source = route
                .source
                .as_ref()
                .and_then(|(index, _)| routes.get(usize::from(*index)));
            request.routed = true;
            request.add_change(ChangeKind::Route(source.copied(), route.subnet));
        }
        if verdict.skip_response {
            request.add_change(ChangeKind::SkipResponse);
        }
    }
    *state = match &verdict.decision {
        Decision::Pass => {
            request.stage += 1;
            return;
        }
        // A signed query is relayed unchanged or not at all (RFC 5625 section 4.5): if it were relayed under
        // its old name, a signature, which nothing here can check, would be a way around a policy.
        Decision::Rewrite(_) if request.asked.signed.is_some() => State::failed(rcode::REFUSED),
        Decision::Rewrite(rewrite) => return self::rewrite(live.hasher(), request, rewrite),
        Decision::Answer(records) => {
            let response = Response::from_filter(&request.question, records);
            State::Response(edited(live, request, verdict, response))
        }
        Decision::Refuse(refusal) => {
            let response = Response::refused(&request.question, refusal);
            State::Response(edited(live, request, verdict, response))
        }
        Decision::Drop(reason) => {
            let counters = live.generation.filters[filter].filter.counters();
            counters.drops.add(reason);
            State::Dropped
        }
        Decision::Alias(_) => State::Waits(Wait::Alias(Lead::Filter(Arc::clone(verdict)))),
        Decision::Ask(_) => State::Waits(Wait::for_filter(About::Query(Arc::clone(verdict)))),
    };
}

/// Applies the verdict's edit to the filter's own response.
pub(super) fn edited(live: &Live, request: &Request, verdict: &Verdict, mut response: Response) -> Response {
    if let Some(edit) = &verdict.edit {
        response.edit(edit, request, live, request.stage);
    }
    response
}

/// Replaces a query's question, and records what to restore on the way back.
fn rewrite(hasher: &KeyHasher, request: &mut Request, rewrite: &Rewrite) {
    let hash = request.hash;
    let question = request.set_question(rewritten(&request.question, rewrite));
    request.hash = hasher.question(request.name.as_bytes(), request.qtype, request.qclass);
    request.add_change(ChangeKind::Renamed {
        question,
        hash,
        revert: rewrite.revert,
    });
    request.stage += 1;
}

/// The question that takes the place of this one.
pub(super) fn rewritten(question: &[u8], rewrite: &Rewrite) -> Vec<u8> {
    let (name, tail) = question.split_at(question.len() - QUESTION_TAIL);
    let (qtype, qclass) = (u16_at(tail, 0), u16_at(tail, 2));
    let mut question = rewrite.name.as_deref().unwrap_or(name).to_vec();
    question.extend(rewrite.qtype.unwrap_or(qtype).to_be_bytes());
    question.extend(rewrite.qclass.unwrap_or(qclass).to_be_bytes());
    question
}
