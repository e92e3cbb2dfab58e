//! What the cache has nothing fresh for: what is below it is asked and kept, stale answers when there is nothing
//! better, aliases.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::Instant;

use crate::cache::{Entry, Freshness, Kind, Lifetime, RefreshClaim, Stored};
use crate::config;
use crate::dns::Origin;
use crate::dns::edns::ExtendedError;
use crate::dns::records::{Answer, Meaning};
use crate::dns::reply::Ttl;
use crate::dns::{CLASS_IN, QUESTION_TAIL, build, rcode, rtype};
use crate::filter::Decision;
use dnsweir_answer::{Alias, Resolution};

use super::batch::{Immediate, Step};
use super::counters::add;
use super::explain;
use super::generation::Stage;
use super::live::Live;
use super::lookups::DEPTH;
use super::request::Request;
use super::response::{Content, Response};
use super::worker::Worker;
use super::zones::ZoneMatch;

/// The TTL of an alias whose target has no records.
const ALIAS_TTL: u32 = 30;

/// Longer than any query waits (`deadline` is a minute at most), in milliseconds: what took so long was on its way while the
/// machine slept, and nobody knows how old it is.
const LONGEST_WAIT_MS: u64 = 90_000;

/// How many times as long as the first a failure is kept at most. Three times five seconds is what clients wait anyway.
const FAILURES: u32 = 3;

/// How long a failure may be kept, in seconds (RFC 9520 section 3.2).
const LONGEST_FAILURE: u32 = 300;

impl Worker {
    /// Fetches an entry again before it runs out, or after.
    pub(super) fn spawn_refresh(self: &Rc<Self>, live: &Rc<Live>, request: &Request, claim: RefreshClaim) {
        let (worker, live) = (Rc::clone(self), Rc::clone(live));
        let mut request = request.refresh();
        spawn_local(async move {
            if let Some(Stage::Cache(cache)) = worker.stage(&live, &request) {
                worker
                    .fetch(&live, &mut request, cache, worker.now() / 1000)
                    .await;
            }
            // Of no consequence if a newer entry has taken its place; if none could be had, or kept, the next
            // attempt waits a while.
            claim.entry().refresh_failed(worker.now() / 1000);
        });
    }

    /// Takes a query from its stage, which needs waiting, to a response; none: it is dropped.
    pub(super) async fn finish(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        step: Step,
    ) -> Option<Response> {
        let step = match step {
            // In a box: it is rare, and all who wait would have room for it.
            Step::Responding(asking) => {
                return Box::pin(self.ask_about_response(live, request, *asking)).await;
            }
            Step::HeldBack(response) => return Some(*response),
            step => step,
        };
        match (&step, self.stage(live, request)) {
            (Step::Passing | Step::AtSource | Step::Gone, Some(Stage::Cache(cache))) => {
                self.cached(live, request, cache).await
            }
            _ => self.source(live, request, step).await,
        }
    }

    /// What a query gets that no cache is in front of.
    async fn source(self: &Rc<Self>, live: &Rc<Live>, request: &mut Request, step: Step) -> Option<Response> {
        if let Step::Decided(verdict) = &step
            && let Decision::Alias(targets) = &verdict.decision
        {
            // In a box, since what an alias leads to may be an alias.
            let mut response = Box::pin(self.alias(live, request, targets, Lead::Filter)).await?;
            if let Some(edit) = &verdict.edit {
                response.edit(edit, request, live, request.stage);
            }
            return Some(response);
        }
        if let Step::Decided(verdict) = &step
            && let Decision::Ask(_) = &verdict.decision
        {
            // As an alias.
            return Box::pin(self.ask_about_query(live, request, Arc::clone(verdict))).await;
        }
        if let Step::Aliased(alias) = step {
            return self.source_alias(live, request, &alias).await;
        }
        match self.stage(live, request) {
            Some(&Stage::Source(index)) => match self.resolve(live, request, index).await {
                Resolution::NotMine => Box::pin(self.pass_on(live, request)).await,
                Resolution::Alias(alias) => self.source_alias(live, request, &alias).await,
                resolution => Some(Response::of_source(resolution)),
            },
            _ => Some(Response::error(rcode::SERVFAIL, ExtendedError::Other)),
        }
    }

    /// What a query gets whose name stands for another one, as a source says.
    async fn source_alias(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &Request,
        alias: &Alias,
    ) -> Option<Response> {
        let response = Box::pin(self.alias(live, request, &alias.targets, Lead::Source(alias))).await?;
        Some(Response {
            // AA is about the name that was asked for (RFC 1035 section 4.1.1).
            authoritative: response.answer_count() > 0,
            origin: match response.origin {
                Origin::Filter => Origin::Local,
                origin => origin,
            },
            ..response
        })
    }

    /// What a query gets that its source leaves to the next stage.
    async fn pass_on(self: &Rc<Self>, live: &Rc<Live>, request: &mut Request) -> Option<Response> {
        request.stage += 1;
        self.go_on(live, request, Step::Passing).await
    }

    /// What a query gets that goes on by itself from where it stands.
    pub(super) async fn go_on(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        step: Step,
    ) -> Option<Response> {
        let (step, immediate) = self.inward(live, request, step, self.now() / 1000);
        match immediate {
            Immediate::Response(response) => Some(response),
            Immediate::Drop => None,
            Immediate::Deferred => self.finish(live, request, step).await,
        }
    }

    /// The stage that a query stands at.
    pub(super) fn stage<'a>(&self, live: &'a Live, request: &Request) -> Option<&'a Stage> {
        live.generation.pipelines[request.pipeline]
            .stages
            .get(request.stage)
    }

    /// What a query gets that the cache had nothing fresh for when it came.
    async fn cached(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        cache: &config::Cache,
    ) -> Option<Response> {
        // Somebody else's answer may have come into the cache since.
        let now_ms = self.now() / 1000;
        if let Some(response) = self.look_up(live, request, cache, now_ms) {
            return Some(response);
        }
        add(&live.counters(request).misses, 1);
        if !request.may_share() {
            return self.below(live, request, now_ms).await;
        }
        let Some((entry, after)) = self.stale(live, request, cache) else {
            return self.fetch(live, request, cache, now_ms).await;
        };
        let recovered_ms = self.shared.recovered_ms();
        if let Some(claim) = entry.claim_refresh(now_ms, recovered_ms) {
            // The attempt goes on when the client has its answer.
            self.spawn_refresh(live, request, claim);
        } else if !entry.may_retry(now_ms, recovered_ms) {
            return Some(self.stale_response(live, request, cache, entry));
        }
        // RFC 8767 section 5: the client waits this long for something fresh.
        let soon = Instant::now() + after;
        let before = request
            .until
            .replace(request.until.map_or(soon, |until| until.min(soon)));
        let fetched = self.fetch(live, request, cache, now_ms).await;
        request.until = before;
        match fetched {
            Some(response) if response.failed() => Some(self.stale_response(live, request, cache, entry)),
            fetched => fetched,
        }
    }

    /// What a query gets for which there is no room to wait: what it has already, something stale, or SERVFAIL.
    pub(super) fn crowded_out(&self, live: &Live, request: &Request, step: Step) -> Response {
        if let Step::HeldBack(response) = step {
            self.not_held_back(live, request);
            return *response;
        }
        add(&live.counters(request).waiting_rejects, 1);
        if let Some(Stage::Cache(cache)) = self.stage(live, request)
            && request.may_share()
            && let Some((entry, _)) = self.stale(live, request, cache)
        {
            return self.stale_response(live, request, cache, entry);
        }
        request.trace(|| explain::source(request, "turned away: too many queries wait".into()));
        Response::error(rcode::SERVFAIL, ExtendedError::Other)
    }

    /// An entry past its TTL that may be served if nothing better comes, and how long to wait for that.
    fn stale(&self, live: &Live, request: &Request, cache: &config::Cache) -> Option<(Entry, Duration)> {
        let after = cache.serve_stale?.after;
        if !request.may_store() || !request.may_be_stale() {
            return None;
        }
        let now_ms = self.now() / 1000;
        let key = self.key(live, request);
        let entry = self.shared.cache.lookup(&key, now_ms)?;
        let usable = matches!(entry.lifetime().freshness(now_ms), Freshness::Stale { .. });
        (usable && entry.kind() != Kind::Failure).then_some((entry, after))
    }

    fn stale_response(
        &self,
        live: &Live,
        request: &Request,
        cache: &config::Cache,
        entry: Entry,
    ) -> Response {
        add(&live.counters(request).stale, 1);
        request.trace(|| explain::cache(request, "stale: nothing fresher is to be had".into()));
        let ttl = cache
            .serve_stale
            .map_or(Duration::ZERO, |stale| stale.ttl)
            .as_secs() as u32;
        let rcode = u16::from(entry.rcode());
        let error = match rcode {
            rcode::NXDOMAIN => ExtendedError::StaleNxdomain,
            _ => ExtendedError::StaleAnswer,
        };
        Response {
            rcode,
            ttl: Ttl::Fixed(ttl),
            origin: Origin::Stale,
            content: Content::Entry(entry),
            ..Response::error(rcode, error)
        }
    }

    /// Asks what is below the cache, and keeps what may be kept; begins now.
    async fn fetch(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        cache: &config::Cache,
        began_ms: u64,
    ) -> Option<Response> {
        let mut response = self.below(live, request, began_ms).await;
        if let Some(response) = &mut response {
            self.keep(live, request, cache, response, began_ms);
        }
        // Those who follow go on only now.
        request.led = None;
        response
    }

    /// What the stages below the one the query stands at make of it; then it stands there again. What filters above
    /// decided stays untouched.
    async fn below(self: &Rc<Self>, live: &Rc<Live>, request: &mut Request, now_ms: u64) -> Option<Response> {
        let (stage, hash) = (request.stage, request.hash);
        request.stage += 1;
        let (step, immediate) = self.inward(live, request, Step::Passing, now_ms);
        let response = match immediate {
            Immediate::Response(response) => Some(response),
            Immediate::Drop => None,
            Immediate::Deferred => self.source(live, request, step).await,
        };
        // What is for one subnet is not for all who ask here.
        let private = request.tells_subnet_below(stage);
        let response = response.map(|response| Response {
            store: response.store && !private,
            ..response
        });
        let response = self.back(live, request, response, stage + 1).await;
        (request.stage, request.hash) = (stage, hash);
        response
    }

    /// Keeps a response that came from below, unless somebody who waited for the same has done so meanwhile. Its TTLs
    /// are within the cache's bounds afterwards, kept or not.
    fn keep(
        &self,
        live: &Live,
        request: &Request,
        cache: &config::Cache,
        response: &mut Response,
        began_ms: u64,
    ) {
        let meaning = response.meaning();
        let kept = match meaning {
            Some(Meaning::Success) => Some((Kind::Success, cache.success)),
            Some(Meaning::Denial) => Some((Kind::Denial, cache.denial)),
            _ => None,
        };
        if let Some((_, keeping)) = kept {
            response.bound_ttl(seconds(keeping.min), seconds(keeping.max));
        }
        let key = self.key(live, request);
        let before = self.shared.cache.peek(&key);
        let done = before.is_some_and(|(_, lifetime)| lifetime.stored_at_ms >= began_ms);
        let never = kept.is_some_and(|(_, keeping)| !keeping.store);
        let now_ms = self.now() / 1000;
        let slept = now_ms.saturating_sub(began_ms) > LONGEST_WAIT_MS;
        if never || !response.store || !request.may_store() || done || slept {
            return;
        }
        let stored = |answer: &Answer, kind, ttl: u32, stale: Duration| {
            let stored = Stored {
                wire: &answer.message,
                ttl_offsets: &answer.ttl_offsets,
                kind,
                // Reasons of our own are about the moment: who meets the failure again is told that it was kept.
                error: response.lasting_error(),
                ttl_secs: ttl,
                stale_secs: seconds(stale),
                now_ms,
            };
            request.trace(|| explain::kept(request, kind, Duration::from_secs(ttl.into()), stale));
            self.shared.cache.insert(&key, &stored);
        };
        match (kept, response.to_answer()) {
            (Some((kind, _)), Some(answer)) => {
                let window = cache.serve_stale.filter(|_| response.stale);
                let window = window.map_or(Duration::ZERO, |stale| stale.window);
                stored(&answer, kind, answer.ttl, window);
            }
            // RFC 9520 section 3.2: that a resolution failed is kept, too, so that a dead upstream is not asked for
            // every query; never stale, since it is no answer. What a filter refuses is not a failure, and what was asked before
            // an upstream recovered says nothing about now.
            (None, _)
                if response.failed() && response.rcode <= 15 && began_ms >= self.shared.recovered_ms() =>
            {
                if let Ok(failure) = Answer::read(build::empty(&request.question, response.rcode)) {
                    let ttl = failure_ttl(seconds(cache.failure), before);
                    stored(&failure, Kind::Failure, ttl, Duration::ZERO);
                }
            }
            _ => {}
        }
    }

    /// The answer that leads to the first of `targets` that exists, or else to the last.
    async fn alias(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &Request,
        targets: &[Box<[u8]>],
        lead: Lead<'_>,
    ) -> Option<Response> {
        // Lists in lists would multiply what one query costs, so that only the first alias may have several names.
        if request.depth >= DEPTH || request.depth > 0 && targets.len() > 1 {
            tracing::warn!(name = %request.name, "aliases form a loop");
            return Some(Response::error(rcode::SERVFAIL, ExtendedError::Other));
        }
        let mut targets = targets.iter();
        let (target, inner, found) = loop {
            let target = targets.next()?;
            let mut inner = request.internal(target);
            request.trace(|| explain::alias(request, &inner));
            let found = self.from_the_top(live, &mut inner).await?;
            if found.rcode != rcode::NXDOMAIN || targets.len() == 0 {
                break (target, inner, found);
            }
        };
        if inner.name == request.name {
            return Some(found);
        }
        let so_far = match lead {
            Lead::Source(Alias {
                so_far: Some(so_far), ..
            }) => so_far.message.clone(),
            _ => cname(request, target, lead, &found),
        };
        // Where nobody here knows the target, or nobody wanted it to be found out, it is the client's to ask for (RFC 1034 section
        // 4.3.2, step 3a). That a filter's target is nobody's is the filter's mistake.
        let nobodys = found.rcode == rcode::REFUSED || found.failed() && !request.recursion_desired();
        let whole = match (request.qtype, lead) {
            // The CNAME itself was asked for.
            (rtype::CNAME, _) => Some(so_far),
            (_, Lead::Source(_)) if nobodys => Some(so_far),
            _ => {
                let message = found.message(&inner.question);
                build::continued(&so_far, &message)
            }
        };
        let answer = whole.and_then(|message| Answer::read(message).ok());
        Some(match answer {
            Some(answer) => {
                let answer = Response::answer(Arc::new(answer), Origin::Filter, false);
                Response {
                    error: found.error.filter(|_| answer.rcode == found.rcode),
                    store: found.store,
                    // That the target could not be found out is nobody's decision.
                    origin: if answer.rcode == found.rcode && found.failed() {
                        found.origin
                    } else {
                        Origin::Filter
                    },
                    ..answer
                }
            }
            None => Response::error(rcode::SERVFAIL, ExtendedError::Other),
        })
    }

    /// What a query of the proxy's own comes to in the zone that owns its name.
    pub(super) async fn from_the_top(
        self: &Rc<Self>,
        live: &Rc<Live>,
        inner: &mut Request,
    ) -> Option<Response> {
        inner.hash = self
            .shared
            .hasher
            .question(inner.name.as_bytes(), inner.qtype, inner.qclass);
        match live.answerer(inner) {
            Some(ZoneMatch::Pipeline { pipeline, zone }) => {
                (inner.pipeline, inner.zone) = (pipeline, zone);
                self.travel(live, inner, 0).await
            }
            Some(ZoneMatch::Special(special)) => Some(Response::local(special.answer(&inner.question))),
            None => Some(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative)),
        }
    }

    /// Takes one query by itself through the filters from where it stands: how far it came, and what it gets there without
    /// waiting.
    fn inward(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        mut step: Step,
        now_ms: u64,
    ) -> (Step, Immediate) {
        self.advance(
            live,
            std::slice::from_mut(request),
            std::slice::from_mut(&mut step),
        );
        let immediate = self.immediate(live, request, &step, now_ms);
        (step, immediate)
    }

    /// Takes a query of the proxy's own on through its pipeline, and the response back as far as `floor`.
    pub(super) async fn travel(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        floor: usize,
    ) -> Option<Response> {
        let response = self.go_on(live, request, Step::Passing).await;
        request.led = None;
        self.back(live, request, response, floor).await
    }

    /// Takes a response back as far as `floor`.
    pub(super) async fn back(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        response: Option<Response>,
        floor: usize,
    ) -> Option<Response> {
        let mut responses = [response];
        while let Some(asking) = self
            .outward(live, std::slice::from_mut(request), &mut responses, floor)
            .pop()
        {
            // As in `finish`.
            responses = [Box::pin(self.ask_about_response(live, request, asking)).await];
        }
        let [response] = responses;
        response
    }
}

/// How long a failure is kept, in seconds: longer each time that it comes to another one, up to [`FAILURES`] times as long
/// (RFC 9520 section 3.2). What was `before` is forgotten when it is over for as long as it was kept.
fn failure_ttl(first: u32, before: Option<(Kind, Lifetime)>) -> u32 {
    let before = before.filter(|(kind, _)| *kind == Kind::Failure);
    let ttl = before.map_or(first, |(_, lifetime)| lifetime.ttl_secs.saturating_add(first));
    ttl.min(first.saturating_mul(FAILURES)).min(LONGEST_FAILURE)
}

/// Who says that a name stands for another one.
#[derive(Clone, Copy)]
enum Lead<'a> {
    Filter,
    Source(&'a Alias),
}

/// The answer that is nothing but a CNAME record to a target that has come to this.
fn cname(request: &Request, target: &[u8], lead: Lead<'_>, found: &Response) -> Vec<u8> {
    let told = match lead {
        Lead::Filter => None,
        Lead::Source(alias) => alias.ttl,
    };
    let ttl = told.unwrap_or_else(|| match found.answer_count() {
        0 => ALIAS_TTL,
        _ => found.lowest_ttl(),
    });
    let mut message = build::empty(&request.question, rcode::NOERROR);
    let owner = &request.question[..request.question.len() - QUESTION_TAIL];
    build::push_record(&mut message, 6, owner, rtype::CNAME, CLASS_IN, ttl, target);
    message
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9520 section 3.2: at least 1 s, longer each time, at most 5 min.
    #[test]
    fn failures_are_kept_longer_each_time() {
        let after = |first, kind, ttl_secs| {
            let lifetime = Lifetime {
                stored_at_ms: 0,
                ttl_secs,
                stale_secs: 0,
            };
            failure_ttl(first, Some((kind, lifetime)))
        };
        assert_eq!(failure_ttl(5, None), 5);
        assert_eq!(after(5, Kind::Failure, 5), 10);
        assert_eq!(after(5, Kind::Failure, 10), 15);
        assert_eq!(after(5, Kind::Failure, 15), 15);
        // By another configuration.
        assert_eq!(after(5, Kind::Failure, 300), 15);
        assert_eq!(after(200, Kind::Failure, 200), 300);
        assert_eq!(after(5, Kind::Success, 3600), 5);
    }
}
