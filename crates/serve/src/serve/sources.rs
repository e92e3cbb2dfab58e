//! Asking sources: at once, or, for those that have to be waited for, once for all who ask the same at the time.
//!
//! Queries come together here, below every filter, and not at the cache: each has been through filters of its own, so
//! that what they said of one client reaches nobody else. Shared is what the source said, and nothing more. Whoever
//! leads waits for the source alone and never for another query, so nobody can wait in a circle.
//!
//! Two things are bounded, and both let go of those who take most when they are full ([`admission`](crate::admission)):
//! the queries that a source is asked at a time (`concurrent`), and the clients' queries that wait
//! (`waiting-queries`). To be let go is no failure of the name's resolution (RFC 9520 section 2): it is not kept.

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

/// Why a client's query waits no longer, although what it waited for is still to come.
pub(super) enum GaveUp {
    /// Another query took its place.
    Displaced,
    /// Something stale is good enough by now.
    Overtime,
}

impl Worker {
    /// Asks the source that a query stands at, or waits for somebody else's answer to the same.
    pub(super) async fn resolve(self: &Rc<Self>, live: &Rc<Live>, query: &mut Query) -> Resolution {
        let (request, waiting) = (&mut query.request, &query.waiting);
        let stages = &live.generation.pipelines[request.pipeline].stages;
        let Some(&Stage::Source(index)) = stages.get(request.stage) else {
            return Resolution::BOUNDED;
        };
        let index = live.source_of(request, index);
        if request.asked.signed.is_some() {
            // In a box: it is rare, and all who wait would have room for it.
            return Box::pin(self.resolve_alone(live, request, waiting, index)).await;
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
        match self.shared.flights.join(&key) {
            Join::Lead(leader) => self.lead(live, request, waiting, index, leader).await,
            Join::Follow(resolution) => {
                add(&live.counters(request).coalesced, 1);
                let did = || "waits for an upstream query already in flight".into();
                request.trace(|| explain::source(request, did()));
                match wait(request, waiting, pin!(resolution)).await {
                    Ok(Some(resolution)) => resolution,
                    // Whoever asked was turned away.
                    Ok(None) => Resolution::BOUNDED,
                    Err(why) => self.gave_up(live, request, why),
                }
            }
        }
    }

    /// Asks, for itself and those who follow.
    async fn lead(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        waiting: &Waiting,
        index: usize,
        leader: Leader<Resolution>,
    ) -> Resolution {
        let begun = request.trace.as_ref().map(|_| Instant::now());
        // In a box, or all who wait would be as large as one who asks.
        let mut asking = Box::pin(live.sources[index].ask(&live.question(request)));
        match wait(request, waiting, asking.as_mut()).await {
            Ok(resolved) => {
                self.note(live, request, &resolved, begun);
                if resolved.refused == Some(Refused::Rejected) {
                    return resolved.resolution;
                }
                match &resolved.resolution {
                    // Whoever goes on elsewhere holds nobody up who may be there already.
                    Resolution::NotMine | Resolution::Alias(_) => leader.finish(resolved.resolution.clone()),
                    // Those who follow are told when the answer is in the cache: who asks then finds it there.
                    resolution => request.lead(leader.with(resolution.clone())),
                }
                resolved.resolution
            }
            Err(why) => {
                // Who asked waits no longer. Others may.
                if leader.followers() > 0 {
                    spawn_local(async move { leader.finish(asking.await.resolution) });
                }
                self.gave_up(live, request, why)
            }
        }
    }

    /// Asks for one who shares the answer with nobody.
    async fn resolve_alone(
        &self,
        live: &Live,
        request: &Request,
        waiting: &Waiting,
        index: usize,
    ) -> Resolution {
        let begun = request.trace.as_ref().map(|_| Instant::now());
        let asking = Box::pin(live.sources[index].ask(&live.question(request)));
        match wait(request, waiting, asking).await {
            Ok(resolved) => {
                self.note(live, request, &resolved, begun);
                resolved.resolution
            }
            Err(why) => self.gave_up(live, request, why),
        }
    }

    /// Traces what came of asking, and counts.
    fn note(&self, live: &Live, request: &Request, resolved: &Resolved, begun: Option<Instant>) {
        let counters = live.counters(request);
        match resolved.refused {
            Some(Refused::Rejected) => add(&counters.rejects, 1),
            Some(Refused::Displaced) => add(&counters.displaced, 1),
            None => {}
        }
        request.trace(|| {
            let words = resolved.words.clone().unwrap_or_default();
            let took = begun.map(|begun| begun.elapsed());
            explain::asked(
                request,
                words,
                took.filter(|_| resolved.refused != Some(Refused::Rejected)),
            )
        });
    }

    /// Counts that a query waits no longer: what it gets instead.
    pub(super) fn gave_up(&self, live: &Live, request: &Request, why: GaveUp) -> Resolution {
        if matches!(why, GaveUp::Displaced) {
            add(&live.counters(request).waiting_displaced, 1);
            let did = || "gave way: too many queries wait".into();
            request.trace(|| explain::source(request, did()));
        }
        Resolution::BOUNDED
    }
}

/// Waits for something as long as the client may.
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
