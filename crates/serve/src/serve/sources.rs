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
use crate::dns::{CLASS_IN, rtype};
use dnsweir_answer::{Refused, Resolution, Resolved};

use super::counters::add;
use super::explain;
use super::live::Live;
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
    /// What a source says from memory; none: it has to be waited for, or the question is one for no source.
    pub(super) fn resolve_at_once(&self, live: &Live, request: &Request, index: usize) -> Option<Resolution> {
        let any = request.qtype == rtype::ANY && !live.generation.pipelines[request.pipeline].wants_any;
        if request.qclass != CLASS_IN || any {
            return None;
        }
        let index = request.route().0.unwrap_or(index);
        let index = match request.qtype {
            rtype::DS => live.above_cut(request, index),
            _ => index,
        };
        let resolution = live.generation.sources[index].immediate(&live.question(request))?;
        request.trace(|| explain::resolution(request, &resolution));
        Some(resolution)
    }

    /// Asks a source, or waits for somebody else's answer to the same.
    pub(super) async fn resolve(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        index: usize,
    ) -> Resolution {
        let (routed, subnet) = request.route();
        let index = routed.unwrap_or(index);
        let index = match request.qtype {
            rtype::DS => live.above_cut(request, index),
            _ => index,
        };
        if request.signed.is_some() {
            // In a box: it is rare, and all who wait would have room for it.
            return Box::pin(self.resolve_alone(live, request, index)).await;
        }
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
            Join::Lead(leader) => self.lead(live, request, index, leader).await,
            Join::Follow(resolution) => {
                add(&live.counters(request).coalesced, 1);
                let did = || "waits for somebody else's upstream query".into();
                request.trace(|| explain::source(request, did()));
                match wait(request, pin!(resolution)).await {
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
        index: usize,
        leader: Leader<Resolution>,
    ) -> Resolution {
        let begun = request.trace.as_ref().map(|_| Instant::now());
        // In a box, or all who wait would be as large as one who asks.
        let mut asking = Box::pin(live.sources[index].ask(&live.question(request)));
        match wait(request, asking.as_mut()).await {
            Ok(resolved) => {
                self.note(live, request, &resolved, begun);
                if resolved.refused == Some(Refused::Rejected) {
                    return resolved.resolution;
                }
                match &resolved.resolution {
                    // Whoever goes on to another source holds nobody up who may be there already.
                    Resolution::NotMine => leader.finish(Resolution::NotMine),
                    // Those who follow are told when the answer is in the cache: who asks then finds it there.
                    resolution => request.led = Some(leader.with(resolution.clone())),
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
    async fn resolve_alone(&self, live: &Live, request: &Request, index: usize) -> Resolution {
        let begun = request.trace.as_ref().map(|_| Instant::now());
        let asking = Box::pin(live.sources[index].ask(&live.question(request)));
        match wait(request, asking).await {
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
    mut awaited: Pin<impl std::ops::DerefMut<Target = F>>,
) -> Result<F::Output, GaveUp> {
    let mut overtime = request.until.map(|until| Box::pin(sleep_until(until)));
    poll_fn(|context| {
        if let Poll::Ready(output) = awaited.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if request.poll_displaced(context).is_ready() {
            return Poll::Ready(Err(GaveUp::Displaced));
        }
        match &mut overtime {
            Some(overtime) => overtime.as_mut().poll(context).map(|()| Err(GaveUp::Overtime)),
            None => Poll::Pending,
        }
    })
    .await
}
