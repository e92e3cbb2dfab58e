//! The cache stage: a fresh entry is the response, and responses from below are stored. Stale answers are
//! served if there is nothing better.

use std::hash::BuildHasher;
use std::rc::Rc;
use std::time::Duration;

use dnsweir_os::clock::Uptime;
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
use super::queue::{Owed, Waiting};
use super::request::{Fetch, Request};
use super::response::{Content, Response, Store};
use super::state::{State, Wait};
use super::worker::Worker;

/// Longer than any query waits (`deadline` is at most a minute). An answer that took longer was in flight while
/// the machine slept, and its age is unknown.
const LONGEST_WAIT: Duration = Duration::from_secs(90);

/// A failure is cached for at most this many times its first duration. Clients wait three times five seconds
/// anyway.
const FAILURES: u32 = 3;

/// The longest time to cache a failure, in seconds (RFC 9520 section 3.2).
const LONGEST_FAILURE: u32 = 300;

impl Worker {
    /// Returns the cached response to a query, if it is fresh.
    // Short, and on the path of every hit; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub(super) fn look_up(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &Request,
        cache: &config::Cache,
        now: Uptime,
    ) -> Option<Response> {
        if request.asked.signed.is_some() || !request.may_store() {
            return None;
        }
        let key = self.key(live, request);
        let entry = self.shared.cache.lookup(&key, now)?;
        let Freshness::Fresh { age_secs } = entry.lifetime().freshness(now) else {
            return None;
        };
        let counters = live.counters(request);
        add(&counters.hits[entry.kind().index()], 1);
        if let Some(prefetch) = cache.prefetch
            && entry.prefetch_due(&prefetch, now)
            && let Some(claim) = entry.claim_refresh(now, Uptime::START)
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
            store: Store::Always,
            stale: true,
        })
    }

    /// The cache key of a query.
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

    /// The cache partition for answers over a query's route, if it has one (RFC 7871 section 7.3.1).
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

    /// Refreshes an entry in the background, before or after it expires.
    pub(super) fn refresh(self: &Rc<Self>, live: &Rc<Live>, request: &Request, claim: RefreshClaim) {
        let mut request = request.refresh(&self.shared.hasher, self.now());
        let (waiting, owed) = (Waiting::default(), Owed::Cache(claim));
        self.enqueue(live, &mut request, State::Request, waiting, owed);
    }

    /// The cache at this stage of a query's pipeline.
    fn cache<'a>(live: &'a Live, request: &Request, stage: usize) -> Option<&'a config::Cache> {
        match live.stage(request, stage) {
            Some(Stage::Cache(cache)) => Some(cache),
            _ => None,
        }
    }

    /// Returns where a query continues if the cache had nothing fresh when it arrived.
    pub(super) fn miss(self: &Rc<Self>, live: &Rc<Live>, request: &mut Request) -> State {
        let Some(cache) = Self::cache(live, request, request.stage) else {
            return State::Request;
        };
        // Another query's answer may have been cached since.
        let now = self.now();
        if let Some(response) = self.look_up(live, request, cache, now) {
            return State::Response(response);
        }
        add(&live.counters(request).misses, 1);
        if !request.may_share() {
            request.stage += 1;
            return State::Request;
        }
        let stale = self.stale(live, request, cache);
        if let Some((entry, _)) = &stale {
            let recovered = self.shared.recovered();
            if let Some(claim) = entry.claim_refresh(now, recovered) {
                // The refresh continues after the client has its answer.
                self.refresh(live, request, claim);
            } else if !entry.may_retry(now, recovered) {
                return State::Response(self.stale_response(live, request, cache, entry.clone()));
            }
        }
        // RFC 8767 section 5: the client waits this long for a fresh answer.
        let stale = stale.map(|(entry, after)| (entry, Instant::now() + after));
        request.begin_fetch(now, stale);
        State::Request
    }

    /// Handles the response from below the cache at a stage: stores it if it may, or replaces it if a stale
    /// answer is better.
    pub(super) fn fetched(
        &self,
        live: &Live,
        request: &mut Request,
        stage: usize,
        fetch: Fetch,
        response: &mut Response,
    ) {
        let Some(cache) = Self::cache(live, request, stage) else {
            return;
        };
        self.keep(live, request, cache, response, fetch.began);
        // Followers continue only now.
        drop(fetch.led);
        if let Some((entry, _)) = fetch.stale
            && response.failed()
        {
            *response = self.stale_response(live, request, cache, entry);
        }
    }

    /// The response to a query that has no room to wait: the one it has already, a stale answer, or SERVFAIL.
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
        explain::on_way_in(request, "forward", || "turned away: too many queries wait".into());
        Response::error(rcode::SERVFAIL, ExtendedError::Other)
    }

    /// An expired entry to serve if nothing better comes, and how long to wait for that.
    fn stale(&self, live: &Live, request: &Request, cache: &config::Cache) -> Option<(Entry, Duration)> {
        let after = cache.serve_stale?.after;
        if !request.may_store() || !request.may_be_stale() {
            return None;
        }
        let now = self.now();
        let key = self.key(live, request);
        let entry = self.shared.cache.lookup(&key, now)?;
        let usable = matches!(entry.lifetime().freshness(now), Freshness::Stale { .. });
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
        explain::on_way_in(request, "cache", || "stale: no fresh answer is available".into());
        let ttl = cache.serve_stale.map_or(Duration::ZERO, |stale| stale.ttl);
        let rcode = u16::from(entry.rcode());
        let error = match rcode {
            rcode::NXDOMAIN => ExtendedError::StaleNxdomain,
            _ => ExtendedError::StaleAnswer,
        };
        Response {
            rcode,
            ttl: Ttl::Fixed(seconds(ttl)),
            origin: Origin::Stale,
            content: Content::Entry(entry),
            ..Response::error(rcode, error)
        }
    }

    /// Caches a response from below, unless another query that waited for the same has done so. An answer that
    /// must not be cached replaces an older one all the same (RFC 8767 section 4). Afterwards the TTLs are
    /// within the cache's bounds, whether cached or not.
    fn keep(
        &self,
        live: &Live,
        request: &Request,
        cache: &config::Cache,
        response: &mut Response,
        began: Uptime,
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
        let done = before.is_some_and(|(_, lifetime)| lifetime.stored_at >= began);
        let now = self.now();
        let slept = now.since(began) > LONGEST_WAIT;
        if response.store != Store::Always || !request.may_store() || done || slept {
            return;
        }
        let stored = |answer: &Answer, kind, ttl: u32, stale: Duration| {
            let stored = Stored {
                wire: &answer.message,
                ttl_offsets: &answer.ttl_offsets,
                kind,
                // Our own errors are about the moment: a later hit on the failure gets Cached Error.
                error: response.lasting_error(),
                ttl_secs: ttl,
                stale_secs: seconds(stale),
                now,
            };
            explain::on_way_out(request, "cache", || explain::kept(kind, ttl, stale));
            self.shared.cache.insert(&key, &stored);
        };
        match (kept, response.to_answer()) {
            (Some((_, keeping)), _) if !keeping.store => {
                self.shared.cache.remove(&key);
            }
            (Some((kind, _)), Some(answer)) => {
                let window = cache.serve_stale.filter(|_| response.stale);
                let window = window.map_or(Duration::ZERO, |stale| stale.window);
                stored(&answer, kind, answer.ttl, window);
            }
            // RFC 9520 section 3.2: failures are cached, too, so that a dead upstream is not asked for every
            // query. They are never served stale, because they are no answers. A filter's refusal is not a
            // failure, and a query that began before an upstream recovered says nothing about now.
            (None, _) if response.failed() && response.rcode <= 15 && began >= self.shared.recovered() => {
                if let Ok(failure) = Answer::read(build::empty(&request.question, response.rcode)) {
                    let ttl = failure_ttl(seconds(cache.failure), before);
                    stored(&failure, Kind::Failure, ttl, Duration::ZERO);
                }
            }
            // A filter may have decided for this client alone.
            _ if meaning == Some(Meaning::Unkept) && response.origin != Origin::Filter => {
                self.shared.cache.remove(&key);
            }
            _ => {}
        }
    }
}

/// How long to cache a failure, in seconds: longer each time it repeats, up to [`FAILURES`] times as long
/// (RFC 9520 section 3.2). The failure `before` is forgotten once it has been expired for as long as it was
/// cached.
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
                stored_at: Uptime::START,
                ttl_secs,
                stale_secs: 0,
            };
            failure_ttl(first, Some((kind, lifetime)))
        };
        assert_eq!(failure_ttl(5, None), 5);
        assert_eq!(after(5, Kind::Failure, 5), 10);
        assert_eq!(after(5, Kind::Failure, 10), 15);
        assert_eq!(after(5, Kind::Failure, 15), 15);
        // Cached under another configuration.
        assert_eq!(after(5, Kind::Failure, 300), 15);
        assert_eq!(after(200, Kind::Failure, 200), 300);
        assert_eq!(after(5, Kind::Success, 3600), 5);
    }
}
