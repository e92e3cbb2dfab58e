//! What has to wait: upstream queries, shared by all who ask the same; stale answers when there is
//! nothing better; aliases.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::cache::{Entry, Freshness, Join, Key, Kind, RefreshClaim, Stored};
use crate::config;
use crate::dns::edns::ExtendedError;
use crate::dns::records::{Answer, Meaning};
use crate::dns::reply::Ttl;
use crate::dns::{HEADER, build, flag, rcode, rtype, u16_at};
use crate::filter::{Decision, Source, Transport};
use crate::forward::Failure;

use super::counters::add;
use super::generation::{Live, Stage};
use super::response::{Content, Response};
use super::story;
use super::transit::Transit;
use super::zones::Owner;
use super::{AtOnce, Step, Worker};

/// How many aliases a query may lead through; a longer chain is a loop. Only the first may have several names.
const ALIASES: u8 = 8;

/// The TTL of an alias whose target has no records.
const ALIAS_TTL: u32 = 30;

/// What came of an upstream query, for all who waited for it.
#[derive(Clone)]
pub enum Fetched {
    /// A response with octets: from an upstream, or a filter below the cache.
    Answer {
        /// The octets, as they would be kept.
        answer: Arc<Answer>,
        /// Where they came from.
        source: Source,
        /// Whether AA is set.
        authoritative: bool,
    },
    /// An empty response.
    Error(u16, Option<ExtendedError>),
    /// A filter below the cache left the query unanswered.
    Dropped,
}

impl Worker {
    /// Fetches an entry again before it runs out.
    pub(super) fn spawn_refresh(self: &Rc<Self>, live: &Rc<Live>, transit: &Transit, claim: RefreshClaim) {
        let (worker, live) = (Rc::clone(self), Rc::clone(live));
        let mut transit = Transit {
            stage: transit.stage,
            hash: transit.hash,
            ..transit.internal(transit.name.as_bytes())
        };
        (transit.depth, transit.awaited, transit.story) = (0, false, None);
        spawn_local(async move {
            if let Some(cache) = cache_of(&live, &transit) {
                worker.fetch(&live, &transit, cache).await;
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
        transit: &mut Transit,
        step: Step,
    ) -> Option<Response> {
        if let Step::Decided(verdict) = &step
            && let Decision::Alias(targets) = &verdict.decision
        {
            let mut response = self.alias(live, transit, targets).await?;
            if let Some(edit) = &verdict.edit {
                response.edit(edit);
            }
            return Some(response);
        }
        match &live.generation.pipelines[transit.pipeline].stages[transit.stage] {
            Stage::Cache(cache) => self.cached(live, transit, cache).await,
            Stage::Forward(index) => Some(self.forwarded(live, transit, *index).await),
            Stage::Filter { .. } => Some(Response::error(rcode::SERVFAIL, ExtendedError::Other)),
        }
    }

    /// Takes a query of the proxy's own through its pipeline from its stage on, and the response back to
    /// `floor`.
    async fn travel(
        self: &Rc<Self>,
        live: &Rc<Live>,
        transit: &mut Transit,
        floor: usize,
    ) -> Option<Response> {
        let mut step = Step::Passing;
        self.advance(
            live,
            std::slice::from_mut(transit),
            std::slice::from_mut(&mut step),
        );
        let response = match self.at_once(live, transit, &step, self.now() / 1000) {
            AtOnce::Response(response) => Some(response),
            AtOnce::Drop => None,
            // A future that holds itself needs a box.
            AtOnce::Later => Box::pin(self.finish(live, transit, step)).await,
        };
        let mut responses = [response];
        self.outward(live, std::slice::from_mut(transit), &mut responses, floor);
        let [response] = responses;
        response
    }

    /// What a query gets that the cache has nothing fresh for.
    async fn cached(
        self: &Rc<Self>,
        live: &Rc<Live>,
        transit: &Transit,
        cache: &config::Cache,
    ) -> Option<Response> {
        let counters = live.counters(transit);
        add(&counters.misses, 1);
        // What may only be relayed, and what may not make an upstream recurse, concerns nobody else.
        if transit.signed.is_some() || !transit.recursion_desired() {
            return self.below(live, transit.clone()).await;
        }
        let Some((entry, after)) = self.stale(live, transit, cache) else {
            return self.fetch(live, transit, cache).await.response();
        };
        let now_ms = self.now() / 1000;
        if entry.may_retry(now_ms) {
            let (worker, fetching) = (Rc::clone(self), Rc::clone(live));
            let asked = transit.clone();
            let fetch = spawn_local(async move {
                match cache_of(&fetching, &asked) {
                    Some(cache) => worker.fetch(&fetching, &asked, cache).await,
                    None => Fetched::Dropped,
                }
            });
            // RFC 8767 section 5: the client waits this long for something fresh; the attempt goes on.
            match timeout(after, fetch).await {
                Ok(Ok(fetched)) if !fetched.failed() => return fetched.response(),
                Ok(_) => entry.refresh_failed(self.now() / 1000),
                Err(_) => {}
            }
        }
        add(&counters.stale, 1);
        transit.tell(|| story::cache(transit, "stale: nothing fresher is to be had".into()));
        let ttl = cache
            .serve_stale
            .map_or(Duration::ZERO, |stale| stale.ttl)
            .as_secs() as u32;
        let rcode = u16::from(entry.rcode());
        let nonexistent = rcode == rcode::NXDOMAIN;
        Some(Response {
            rcode,
            ttl: Ttl::Fixed(ttl),
            source: Source::Stale,
            authoritative: false,
            error: Some(if nonexistent {
                ExtendedError::StaleNxdomain
            } else {
                ExtendedError::StaleAnswer
            }),
            content: Content::Entry(entry),
            store: true,
            stale: true,
        })
    }

    /// An entry past its TTL that may be served if nothing better comes, and how long to wait for that.
    fn stale(&self, live: &Live, transit: &Transit, cache: &config::Cache) -> Option<(Arc<Entry>, Duration)> {
        let after = cache.serve_stale?.after;
        if !transit.may_store() || !transit.may_be_stale() {
            return None;
        }
        let now_ms = self.now() / 1000;
        let key = self.key(&live.generation.pipelines[transit.pipeline], transit);
        let entry = self.shared.cache.lookup(&key, now_ms)?;
        let usable = matches!(entry.lifetime().freshness(now_ms), Freshness::Stale { .. });
        (usable && entry.kind() != Kind::Failure).then_some((entry, after))
    }

    /// Asks what is below the cache, once for all who ask the same at the time, and keeps the answer.
    async fn fetch(self: &Rc<Self>, live: &Rc<Live>, transit: &Transit, cache: &config::Cache) -> Fetched {
        let key = self.key(&live.generation.pipelines[transit.pipeline], transit);
        // Below the cache, a name of an alias may turn out to be what its asker is waited for.
        if transit.awaited {
            return self.fetch_alone(live, transit, cache).await;
        }
        match self.shared.flights.join(&key) {
            Join::Lead(leader) => {
                // Another leader may have come and gone since the cache was looked at; a refresh, which
                // stands at a fresh entry, wants a newer one.
                let refresh = transit.arrival.transport == Transport::Internal && transit.depth == 0;
                let found = if refresh { None } else { self.just_fetched(&key) };
                let fetched = match found {
                    Some(found) => found,
                    None => self.fetch_alone(live, transit, cache).await,
                };
                leader.finish(fetched.clone());
                fetched
            }
            Join::Follow(fetched) => {
                add(&live.counters(transit).coalesced, 1);
                let did = || "waits for somebody else's upstream query".into();
                transit.tell(|| story::cache(transit, did()));
                fetched
                    .await
                    .unwrap_or(Fetched::Error(rcode::SERVFAIL, Some(ExtendedError::Other)))
            }
            Join::Full => Fetched::Error(rcode::SERVFAIL, Some(ExtendedError::Other)),
        }
    }

    /// A fresh answer that came into the cache meanwhile.
    fn just_fetched(&self, key: &Key<'_>) -> Option<Fetched> {
        let now_ms = self.now() / 1000;
        let entry = self.shared.cache.lookup(key, now_ms)?;
        let Freshness::Fresh { age_secs } = entry.lifetime().freshness(now_ms) else {
            return None;
        };
        let mut answer = Answer::read(entry.wire().to_vec()).ok()?;
        answer.age(age_secs);
        Some(Fetched::Answer {
            answer: Arc::new(answer),
            source: Source::Cache,
            authoritative: false,
        })
    }

    async fn fetch_alone(
        self: &Rc<Self>,
        live: &Rc<Live>,
        transit: &Transit,
        cache: &config::Cache,
    ) -> Fetched {
        let asked = Transit {
            awaited: true,
            ..transit.clone()
        };
        let Some(response) = self.below(live, asked).await else {
            return Fetched::Dropped;
        };
        let (store, stale) = (response.store && transit.may_store(), response.stale);
        let (rcode, error, source) = (response.rcode, response.error, response.source);
        let authoritative = response.authoritative;
        let Some(mut answer) = response.into_answer() else {
            // A failure of ours is kept, too, so that a dead upstream is not asked for every query
            // (RFC 9520 section 3.2); a refusal by a filter is not, since it may be about the client.
            if store && matches!(source, Source::Local | Source::Upstream) && rcode == rcode::SERVFAIL {
                self.keep_failure(live, transit, rcode, cache.failure);
            }
            return Fetched::Error(rcode, error);
        };
        let (kind, bounds) = match answer.meaning {
            Meaning::Success => (Kind::Success, cache.success),
            Meaning::Denial => (Kind::Denial, cache.denial),
            Meaning::Failure | Meaning::Unkept => {
                if store && answer.meaning == Meaning::Failure && rcode <= 15 {
                    self.keep_failure(live, transit, rcode, cache.failure);
                }
                return Fetched::Answer {
                    answer: Arc::new(answer),
                    source,
                    authoritative,
                };
            }
        };
        answer.clamp(seconds(bounds.min), seconds(bounds.max));
        if store {
            let window = cache
                .serve_stale
                .filter(|_| stale)
                .map_or(Duration::ZERO, |stale| stale.window);
            let ttl = Duration::from_secs(answer.ttl.into());
            self.keep(
                live,
                transit,
                &answer.message,
                &answer.ttl_offsets,
                kind,
                ttl,
                window,
            );
        }
        Fetched::Answer {
            answer: Arc::new(answer),
            source,
            authoritative,
        }
    }

    /// Keeps the fact that a resolution failed; never stale, since it is no answer.
    fn keep_failure(&self, live: &Live, transit: &Transit, rcode: u16, ttl: Duration) {
        let message = build::empty(&transit.question, rcode);
        self.keep(live, transit, &message, &[], Kind::Failure, ttl, Duration::ZERO);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one cache entry")]
    fn keep(
        &self,
        live: &Live,
        transit: &Transit,
        wire: &[u8],
        ttl_offsets: &[u16],
        kind: Kind,
        ttl: Duration,
        stale: Duration,
    ) {
        transit.tell(|| story::kept(transit, kind, ttl, stale));
        let key = self.key(&live.generation.pipelines[transit.pipeline], transit);
        let (ttl_secs, stale_secs) = (seconds(ttl), seconds(stale));
        let now_ms = self.now() / 1000;
        self.shared.cache.insert(
            &key,
            &Stored {
                wire,
                ttl_offsets,
                kind,
                ttl_secs,
                stale_secs,
                now_ms,
            },
        );
    }

    /// What the stages below the one the query stands at make of it. What filters above decided is not
    /// theirs to see.
    async fn below(self: &Rc<Self>, live: &Rc<Live>, transit: Transit) -> Option<Response> {
        let floor = transit.stage + 1;
        let mut inner = Transit {
            stage: floor,
            changes: Vec::new(),
            ..transit
        };
        self.travel(live, &mut inner, floor).await
    }

    /// Asks the upstreams of a `forward` stage.
    async fn forwarded(&self, live: &Live, transit: &Transit, index: usize) -> Response {
        let query = match &transit.signed {
            Some(message) => message.to_vec(),
            None => build::upstream_query(
                transit.name.as_bytes(),
                transit.qtype,
                transit.qclass,
                transit.flags,
                transit.dnssec_ok(),
            ),
        };
        let begun = transit.story.as_ref().map(|_| Instant::now());
        let took = || begun.map(|begun| begun.elapsed());
        let message = match live.forwards[index].resolve(&query).await {
            Ok(answer) => {
                transit.tell(|| story::forwarded(transit, answer.upstream, &answer.message, took()));
                answer.message
            }
            Err(failure) => {
                transit.tell(|| story::unanswered(transit, &failure, took()));
                if matches!(failure, Failure::Overloaded { .. }) {
                    add(&live.counters(transit).rejects, 1);
                }
                tracing::debug!(name = %transit.name, %failure, "no upstream answered");
                return Response::error(rcode::SERVFAIL, failure.extended_error());
            }
        };
        if message.len() < HEADER {
            return Response::error(rcode::SERVFAIL, ExtendedError::NetworkError);
        }
        let flags = u16_at(&message, 2);
        if transit.signed.is_some() {
            let content = Content::Verbatim(message.into());
            let rcode = flags & flag::RCODE;
            let response = Response::error(rcode, ExtendedError::Other);
            return Response {
                content,
                source: Source::Upstream,
                error: None,
                ..response
            };
        }
        // Servers that cannot read a query answer it without the question: put it back.
        let message = match u16_at(&message, 4) {
            0 => build::empty(&transit.question, flags & flag::RCODE),
            _ => message,
        };
        match Answer::read(message) {
            Ok(answer) => Response::answer(Arc::new(answer), Source::Upstream, flags & flag::AA != 0),
            Err(error) => {
                tracing::debug!(name = %transit.name, %error, "an upstream's answer is malformed");
                Response::error(rcode::SERVFAIL, ExtendedError::NetworkError)
            }
        }
    }

    /// The answer that leads through a CNAME to the first of `targets` that exists, or else to the last.
    async fn alias(
        self: &Rc<Self>,
        live: &Rc<Live>,
        transit: &Transit,
        targets: &[Box<[u8]>],
    ) -> Option<Response> {
        // Lists in lists would multiply what one query costs.
        if transit.depth >= ALIASES || transit.depth > 0 && targets.len() > 1 {
            tracing::warn!(name = %transit.name, "aliases go round in a circle");
            return Some(Response::error(rcode::SERVFAIL, ExtendedError::Other));
        }
        let mut targets = targets.iter();
        let (target, inner, found) = loop {
            let target = targets.next()?;
            let mut inner = transit.internal(target);
            transit.tell(|| story::alias(transit, &inner));
            let found = self.from_the_top(live, &mut inner).await?;
            if found.rcode != rcode::NXDOMAIN || targets.len() == 0 {
                break (target, inner, found);
            }
        };
        if inner.name == transit.name {
            return Some(found);
        }
        let ttl = match found.answer_count() {
            0 => ALIAS_TTL,
            _ => found.lowest_ttl(),
        };
        let message = match transit.qtype {
            // The CNAME itself was asked for.
            rtype::CNAME => build::empty(&inner.question, rcode::NOERROR),
            _ => found.message(&inner.question),
        };
        let message = build::aliased(&message, &transit.question, target, ttl);
        let answer = message.and_then(|message| Answer::read(message).ok());
        Some(match answer {
            Some(answer) => {
                let answer = Response::answer(Arc::new(answer), Source::Filter, false);
                Response {
                    error: found.error,
                    ..answer
                }
            }
            None => Response::error(rcode::SERVFAIL, ExtendedError::Other),
        })
    }

    /// What a query of the proxy's own comes to in the zone that owns its name.
    async fn from_the_top(self: &Rc<Self>, live: &Rc<Live>, inner: &mut Transit) -> Option<Response> {
        inner.hash = self
            .shared
            .hasher
            .question(inner.name.as_bytes(), inner.qtype, inner.qclass);
        match live.generation.zones.find(inner.name.as_bytes()) {
            Some(Owner::Pipeline { pipeline, zone }) => {
                (inner.pipeline, inner.zone) = (pipeline, zone);
                Box::pin(self.travel(live, inner, 0)).await
            }
            Some(Owner::Special(special)) => Some(super::special_answer(special, inner)),
            None => Some(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative)),
        }
    }
}

impl Fetched {
    /// The response for one of those who waited; none: they get none.
    fn response(self) -> Option<Response> {
        match self {
            Fetched::Answer {
                answer,
                source,
                authoritative,
            } => Some(Response::answer(answer, source, authoritative)),
            Fetched::Error(rcode, error) => Some(Response {
                error,
                ..Response::error(rcode, ExtendedError::Other)
            }),
            Fetched::Dropped => None,
        }
    }

    /// Whether a stale answer is better (RFC 8767 section 4).
    fn failed(&self) -> bool {
        match self {
            Fetched::Answer { answer, .. } => answer.meaning == Meaning::Failure,
            Fetched::Error(rcode, _) => *rcode == rcode::SERVFAIL,
            Fetched::Dropped => false,
        }
    }
}

/// The `cache` stage that a query stands at.
fn cache_of<'a>(live: &'a Live, transit: &Transit) -> Option<&'a config::Cache> {
    match live.generation.pipelines[transit.pipeline]
        .stages
        .get(transit.stage)
    {
        Some(Stage::Cache(cache)) => Some(cache),
        _ => None,
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}
