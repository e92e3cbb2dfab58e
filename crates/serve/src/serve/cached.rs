//! The cache's stage: a fresh entry is the response, and what comes back from below is kept; stale answers when there is
//! nothing better.

use std::hash::BuildHasher;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::{Entry, Freshness, Key, KeyFlags, Kind, Lifetime, RefreshClaim, Stored};
use crate::config;
use crate::dns::Origin;
use crate::dns::edns::ExtendedError;
use crate::dns::records::{Answer, Meaning};
use crate::dns::reply::Ttl;
use crate::dns::{build, rcode};

use super::counters::add;
use super::explain;
use super::generation::Stage;
use super::live::Live;
use super::queue::{Owed, Query, Waiting};
use super::request::{Fetch, Request};
use super::response::{Content, Response};
use super::state::{State, Wait};
use super::worker::Worker;

/// Longer than any query waits (`deadline` is a minute at most), in milliseconds: what took so long was on its way while the
/// machine slept, and nobody knows how old it is.
const LONGEST_WAIT_MS: u64 = 90_000;

/// How many times as long as the first a failure is kept at most. Three times five seconds is what clients wait anyway.
const FAILURES: u32 = 3;

/// How long a failure may be kept, in seconds (RFC 9520 section 3.2).
const LONGEST_FAILURE: u32 = 300;

impl Worker {
    /// The response that the cache holds for a query, if it is fresh.
    // The way of every hit, and short; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub(super) fn look_up(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &Request,
        cache: &config::Cache,
        now_ms: u64,
    ) -> Option<Response> {
        if request.asked.signed.is_some() || !request.may_store() {
            return None;
        }
        let key = self.key(live, request);
        let entry = self.shared.cache.lookup(&key, now_ms)?;
        let Freshness::Fresh { age_secs } = entry.lifetime().freshness(now_ms) else {
            return None;
        };
        let counters = live.counters(request);
        add(&counters.hits[entry.kind().index()], 1);
        if let Some(prefetch) = cache.prefetch
            && entry.prefetch_due(&prefetch, now_ms)
            && let Some(claim) = entry.claim_refresh(now_ms, 0)
        {
            add(&counters.prefetches, 1);
            self.refresh(live, request, claim);
        }
        Some(Response {
            rcode: u16::from(entry.rcode()),
            ttl: Ttl::Aged {
                by: age_secs,
                min: 0,
                max: u32::MAX,
            },
            origin: Origin::Cache,
            authoritative: false,
            error: entry.error(),
            content: Content::Entry(entry),
            store: true,
            stale: true,
        })
    }

    /// What the cache knows the query by.
    #[inline]
    fn key<'a>(&self, live: &Live, request: &'a Request) -> Key<'a> {
        let mut partition = live.generation.pipelines[request.pipeline].partition;
        if request.routed {
            partition = self.partition(live, request, partition);
        }
        let flags = KeyFlags::new(request.dnssec_ok(), request.checking_disabled());
        Key::new(
            request.hash,
            request.name.as_bytes(),
            request.qtype,
            request.qclass,
            flags,
            partition,
        )
    }

    /// The part of the cache that the answers for a query's route belong to, if it has one (RFC 7871 section 7.3.1).
    #[cold]
    fn partition(&self, live: &Live, request: &Request, pipelines: u64) -> u64 {
        match request.route() {
            (None, None) => pipelines,
            (source, subnet) => {
                let source = source.map(|index| live.generation.sources[index].fingerprint());
                self.shared.routes.hash_one((pipelines, source, subnet))
            }
        }
    }

    /// Fetches an entry again before it runs out, or after.
    pub(super) fn refresh(self: &Rc<Self>, live: &Rc<Live>, request: &Request, claim: RefreshClaim) {
        let request = request.refresh(self.now() / 1000);
        self.enqueue(Box::new(Query {
            request,
            state: State::Inward,
            waiting: Waiting::default(),
            live: Some(Rc::clone(live)),
            owed: Owed::Cache(claim),
        }));
    }

    /// The cache that a query stands at.
    fn cache<'a>(live: &'a Live, request: &Request, stage: usize) -> Option<&'a config::Cache> {
        match live.generation.pipelines[request.pipeline].stages.get(stage) {
            Some(Stage::Cache(cache)) => Some(cache),
            _ => None,
        }
    }

    /// Where a query goes on for which the cache had nothing fresh when it came.
    pub(super) fn miss(self: &Rc<Self>, live: &Rc<Live>, request: &mut Request) -> State {
        let Some(cache) = Self::cache(live, request, request.stage) else {
            return State::Inward;
        };
        // Somebody else's answer may have come into the cache since.
        let now_ms = self.now() / 1000;
        if let Some(response) = self.look_up(live, request, cache, now_ms) {
            return State::Outward(response);
        }
        add(&live.counters(request).misses, 1);
        if !request.may_share() {
            request.stage += 1;
            return State::Inward;
        }
        let stale = self.stale(live, request, cache);
        if let Some((entry, _)) = &stale {
            let recovered_ms = self.shared.recovered_ms();
            if let Some(claim) = entry.claim_refresh(now_ms, recovered_ms) {
                // The attempt goes on when the client has its answer.
                self.refresh(live, request, claim);
            } else if !entry.may_retry(now_ms, recovered_ms) {
                return State::Outward(self.stale_response(live, request, cache, entry.clone()));
            }
        }
        // RFC 8767 section 5: the client waits this long for something fresh.
        let stale = stale.map(|(entry, after)| (entry, Instant::now() + after));
        request.begin_fetch(now_ms, stale);
        State::Inward
    }

    /// What came from below the cache at a stage: it is kept, if it may be, or something stale is better.
    pub(super) fn fetched(
        &self,
        live: &Live,
        request: &mut Request,
        stage: usize,
        fetch: Fetch,
        response: &mut Response,
    ) {
        request.hash = fetch.hash;
        let Some(cache) = Self::cache(live, request, stage) else {
            return;
        };
        self.keep(live, request, cache, response, fetch.began_ms);
        // Those who follow go on only now.
        drop(fetch.led);
        if let Some((entry, _)) = fetch.stale
            && response.failed()
        {
            *response = self.stale_response(live, request, cache, entry);
        }
    }

    /// What a query gets for which there is no room to wait: what it has already, something stale, or SERVFAIL.
    pub(super) fn crowded_out(&self, live: &Live, request: &mut Request, wait: Wait) -> Response {
        if let Wait::Delay(response) = wait {
            self.not_held_back(live, request);
            return *response;
        }
        add(&live.counters(request).waiting_rejects, 1);
        if let Some(cache) = Self::cache(live, request, request.stage)
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
        request.trace(|| explain::cache(request, "stale: no fresh answer is available".into()));
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
}

/// How long a failure is kept, in seconds: longer each time that it comes to another one, up to [`FAILURES`] times as long
/// (RFC 9520 section 3.2). What was `before` is forgotten when it is over for as long as it was kept.
fn failure_ttl(first: u32, before: Option<(Kind, Lifetime)>) -> u32 {
    let before = before.filter(|(kind, _)| *kind == Kind::Failure);
    let ttl = before.map_or(first, |(_, lifetime)| lifetime.ttl_secs.saturating_add(first));
    ttl.min(first.saturating_mul(FAILURES)).min(LONGEST_FAILURE)
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
