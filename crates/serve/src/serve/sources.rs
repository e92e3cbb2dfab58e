//! Asking sources that have to be waited for: once for all clients that ask the same thing concurrently.
//!
//! Queries are merged here, below every filter, and not at the cache: each has been through its own filters,
//! so that a filter's decision about one client never reaches another. Only the source's answer is shared. A
//! leader waits for the source only and never for another query, so that there is no circular wait.
//!
//! Two things are limited, and when full, their largest users give way ([`admission`](crate::admission)):
//! concurrent queries to a source (`concurrent`), and waiting client queries (`waiting-queries`). A query
//! that gave way is not a failed resolution (RFC 9520 section 2), so it is not cached.

use std::future::poll_fn;
use std::hash::BuildHasher;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use tokio::task::spawn_local;
use tokio::time::sleep_until;

use crate::cache::{Join, Key, KeyFlags, Leader};
use dnsweir_answer::{Refused, Resolution, Resolved};

use super::counters::add;
use super::explain;
use super::generation::Stage;
use super::live::Live;
use super::queue::{Query, Waiting};
use super::request::Request;
use super::worker::Worker;

/// How often a query waits for others' answers to its question, while their leaders have to give way.
const JOINS: usize = 4;

/// Why a query stops waiting before its answer has arrived.
pub(super) enum GaveUp {
    /// Another query took its place.
    Displaced,
    /// A stale answer is good enough by now.
    Overtime,
}

impl Worker {
    /// Asks the source at a query's stage, or waits for another query's answer to the same question.
    pub(super) async fn resolve(self: &Rc<Self>, live: &Rc<Live>, query: &mut Query) -> Resolution {
        let (request, waiting) = (&mut query.request, &query.waiting);
        let Some(&Stage::Source(index)) = live.stage(request, request.stage) else {
            return Resolution::BOUNDED;
        };
        let index = live.source_of(request, index);
        if request.asked.signed.is_some() {
            // Its answer is not shared.
            return self.ask_source(live, request, waiting, index, None).await;
        }
        let (_, subnet) = request.route();
        let flags = KeyFlags::new(request.dnssec_ok(), request.checking_disabled())
            .with_recursion(request.recursion_desired());
        let key = Key::new(
            request.hash,
            request.name.as_bytes(),
            request.qtype,
            request.qclass,
            flags,
            match (live.generation.sources[index].fingerprint(), subnet) {
                (source, None) => source,
                told => self.shared.routes.hash_one(told),
            },
        );
        for _ in 0..JOINS {
            let resolution = match self.shared.flights.join(&key) {
                Join::Lead(leader) => {
                    return self.ask_source(live, request, waiting, index, Some(leader)).await;
                }
                Join::Follow(resolution) => resolution,
            };
            add(&live.counters(request).coalesced, 1);
            let did = || "waits for an upstream query already in flight".to_owned();
            explain::on_way_in(request, "forward", did);
            match wait(request, waiting, pin!(resolution)).await {
                Ok(Some(resolution)) => return resolution,
                // The leader had to give way, which was about its client, not this one.
                Ok(None) => {}
                Err(why) => return self.gave_up(live, request, why),
            }
        }
        Resolution::BOUNDED
    }

    /// Asks the source for this query and, if it leads, its followers.
    async fn ask_source(
        &self,
        live: &Live,
        request: &mut Request,
        waiting: &Waiting,
        index: usize,
        leader: Option<Leader<Resolution>>,
    ) -> Resolution {
        let begun = request.trace.as_ref().map(|_| Instant::now());
        // Boxed, or every follower's future would be as large as a leader's.
        let mut asking = Box::pin(live.sources[index].ask(&live.question(request)));
        match wait(request, waiting, asking.as_mut()).await {
            Ok(resolved) => {
                self.note(live, request, &resolved, begun);
                if let Some(leader) = leader.filter(|_| resolved.refused.is_none()) {
                    match &resolved.resolution {
                        // The leader goes on elsewhere: it must not hold up followers that it may meet there.
                        Resolution::NotMine | Resolution::Alias(_) => {
                            leader.finish(resolved.resolution.clone());
                        }
                        // Followers continue once the nearest cache above has the answer, so that later
                        // queries find it there. Without a cache they continue immediately.
                        resolution => {
                            let leader = leader.with(resolution.clone());
                            if let Some(fetch) = request.fetch() {
                                fetch.led = Some(leader);
                            }
                        }
                    }
                }
                resolved.resolution
            }
            Err(why) => {
                // This query waits no longer. Its followers may.
                if let Some(leader) = leader.filter(|leader| leader.followers() > 0) {
                    spawn_local(async move { leader.finish(asking.await.resolution) });
                }
                self.gave_up(live, request, why)
            }
        }
    }

    /// Counts and traces the result of asking.
    fn note(&self, live: &Live, request: &Request, resolved: &Resolved, begun: Option<Instant>) {
        let counters = live.counters(request);
        match resolved.refused {
            Some(Refused::Rejected) => add(&counters.rejects, 1),
            Some(Refused::Displaced) => add(&counters.displaced, 1),
            None => {}
        }
        request.trace(|| {
            let words = resolved.words.clone().unwrap_or_default();
            let begun = begun.filter(|_| resolved.refused != Some(Refused::Rejected));
            explain::asked(request, words, begun.map(|begun| begun.elapsed()))
        });
    }

    /// Counts a query that stops waiting; returns what it gets instead.
    pub(super) fn gave_up(&self, live: &Live, request: &Request, why: GaveUp) -> Resolution {
        if matches!(why, GaveUp::Displaced) {
            add(&live.counters(request).waiting_displaced, 1);
            explain::on_way_in(request, "forward", || "gave way: too many queries wait".into());
        }
        Resolution::BOUNDED
    }
}

/// Waits for something, for as long as the query may wait.
pub(super) async fn wait<F: Future>(
    request: &Request,
    waiting: &Waiting,
    mut awaited: Pin<impl std::ops::DerefMut<Target = F>>,
) -> Result<F::Output, GaveUp> {
    let mut overtime = waiting.until(request).map(|until| Box::pin(sleep_until(until)));
    poll_fn(|context| {
        if let Poll::Ready(output) = awaited.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if waiting.poll_displaced(context).is_ready() {
            return Poll::Ready(Err(GaveUp::Displaced));
        }
        match &mut overtime {
            Some(overtime) => overtime.as_mut().poll(context).map(|()| Err(GaveUp::Overtime)),
            None => Poll::Pending,
        }
    })
    .await
}
