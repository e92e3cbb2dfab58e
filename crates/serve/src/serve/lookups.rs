//! Lookups: queries that filters make before they decide.
//!
//! A lookup is an internal query that goes through the worker's queue while the query it is for waits. All
//! lookups of one `ask` start together. Each takes a place among the waiting queries, as the client's own
//! query does, so that `waiting-queries` limits them together and the client with the most places gives way
//! first; if the query they are for gives way, so do they. A lookup ends on its own when its time is up, like
//! a query for which a stale answer is good enough: others that wait for the same answer keep waiting.
//!
//! A lookup that would exceed a limit gets the result `limited` immediately.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::admission::{JOSTLE, Place};
use crate::dns::edns::ExtendedError;
use crate::dns::{CLASS_IN, flag, rcode};
use crate::filter::{Ask, Found, Lookup, LookupPath, LookupStatus};

use super::explain;
use super::live::Live;
use super::lookup_octets::Held;
use super::queue::{Query, Waiting};
use super::request::Request;
use super::response::{Response, Store};
use super::sources::GaveUp;
use super::state::State;
use super::worker::Worker;

/// How deeply internal queries may be nested: aliases and lookups together. Anything deeper is a loop.
pub(super) const DEPTH: u8 = 8;

/// Maximum number of lookups for one client query, over all filters and all queries that it leads to.
const LOOKUPS: u8 = 32;

/// The result of a lookup, and what it holds until the filter has received it.
pub(super) struct Looked<'a> {
    status: LookupStatus,
    response: Option<Response>,
    /// The question of the response.
    question: Vec<u8>,
    /// Whether other clients would get the same.
    pub is_shared: bool,
    _place: Option<Place>,
    _held: Option<Held<'a>>,
}

impl Looked<'_> {
    fn limited() -> Self {
        Looked {
            status: LookupStatus::Limited,
            response: None,
            question: Vec::new(),
            is_shared: true,
            _place: None,
            _held: None,
        }
    }

    /// The result as a filter receives it, with the message if there is an answer.
    pub fn tell(&self) -> (Found, Vec<u8>) {
        let found = |response: &Response| Found {
            status: self.status,
            rcode: response.rcode,
            source: response.origin,
            ttl: response.lowest_ttl(),
            answer_count: response.answer_count(),
        };
        match &self.response {
            Some(response) if self.status == LookupStatus::Answered => {
                (found(response), response.message(&self.question))
            }
            _ => (
                found(&Response::error(rcode::SERVFAIL, ExtendedError::Other)),
                Vec::new(),
            ),
        }
    }
}

impl Worker {
    /// Makes all lookups that a query's filter asks for, concurrently. `held`: bytes that the query holds
    /// meanwhile.
    ///
    /// # Errors
    /// The query has lost its place, or a stale answer is good enough by now: there is no point in going on.
    pub(super) async fn look_up_all<'a>(
        self: &'a Rc<Self>,
        live: &Rc<Live>,
        query: &Query,
        filter: usize,
        ask: &Ask,
        held: usize,
    ) -> Result<Vec<Looked<'a>>, GaveUp> {
        let (request, waiting) = (&query.request, &query.waiting);
        let held = self.shared.lookup_octets.hold(held + ask.octets());
        let until = Instant::now() + ask.time;
        let own = waiting.until(request);
        let until = own.map_or(until, |sooner| sooner.min(until));
        let (mut looking, mut places, mut traces) = (Vec::new(), Vec::new(), Vec::new());
        for lookup in &ask.lookups {
            let inner = self.lookup(live, query, lookup, until).filter(|_| held.is_some());
            explain::on_way_in(request, "lookup", || explain::lookup(lookup, inner.is_some()));
            let result = inner.map(|(inner, waiting)| {
                places.extend(waiting.place.clone());
                traces.extend(inner.trace.clone());
                self.look(live, inner, waiting, &lookup.path, request.stage)
            });
            looking.push(async move {
                match result {
                    Some(result) => self.looked(live, &lookup.path, result.await.ok()),
                    None => Looked::limited(),
                }
            });
        }
        let mut looking = pin!(join_all(looking));
        let mut displaced = false;
        let looked = poll_fn(|context| {
            // The query has to give way, and they with it.
            if waiting.poll_displaced(context).is_ready() {
                displaced = true;
                places.iter().for_each(Place::give_up);
            }
            looking.as_mut().poll(context)
        })
        .await;
        if let Some(trace) = &request.trace {
            traces.iter().for_each(|branch| trace.join(branch));
        }
        let lookups = &live.generation.filters[filter].filter.counters().lookups;
        for looked in &looked {
            lookups[looked.status as usize].fetch_add(1, Ordering::Relaxed);
        }
        let late = own.is_some_and(|until| Instant::now() >= until);
        match (displaced, late) {
            (true, _) => Err(GaveUp::Displaced),
            (_, true) => Err(GaveUp::Overtime),
            _ => Ok(looked),
        }
    }

    /// The internal query for a lookup; `None` if a limit forbids it.
    fn lookup(
        &self,
        live: &Live,
        query: &Query,
        lookup: &Lookup,
        until: Instant,
    ) -> Option<(Request, Waiting)> {
        let request = &query.request;
        let made = query.waiting.lookups_made();
        if request.depth >= DEPTH || made.get() >= LOOKUPS {
            return None;
        }
        let mut inner = request.internal(live.hasher(), &lookup.name, lookup.qtype, CLASS_IN);
        // The filter gets its answer whether or not the client desires recursion.
        inner.asked.flags |= flag::RD;
        let client = inner.asked.client.address.ip();
        let place = self
            .shared
            .waiting
            .enter(client, inner.hash, Instant::now().into_std(), JOSTLE)
            .ok()?;
        made.set(made.get() + 1);
        inner.trace = request.trace.as_ref().map(|trace| trace.branch());
        let waiting = Waiting {
            place: Some(place),
            until: Some(until),
            // Without the trail of aliases: a loop through a lookup ends by its depth, and what a failed lookup
            // means for the names that led to it is the filter's decision.
            ..query.waiting.of_inner(request)
        };
        Some((inner, waiting))
    }

    /// Starts one lookup, for a filter at this stage.
    fn look(
        self: &Rc<Self>,
        live: &Rc<Live>,
        mut inner: Request,
        waiting: Waiting,
        path: &LookupPath,
        stage: usize,
    ) -> oneshot::Receiver<Box<Query>> {
        let state = match path {
            LookupPath::Top => return self.ask_from_the_top(live, inner, waiting),
            LookupPath::Below => {
                (inner.stage, inner.floor) = (stage + 1, stage + 1);
                State::Request
            }
            LookupPath::Zone(zone) => match live.generation.zone(zone) {
                Some(of) => {
                    (inner.pipeline, inner.zone) = of;
                    State::Request
                }
                None => State::Dropped,
            },
        };
        self.ask_inner(live, inner, state, waiting)
    }

    /// The result of a lookup.
    fn looked(&self, live: &Live, path: &LookupPath, inner: Option<Box<Query>>) -> Looked<'_> {
        let Some(inner) = inner else {
            return Looked::limited();
        };
        let Query {
            request,
            state,
            waiting,
            ..
        } = *inner;
        let response = match state {
            State::Response(response) => Some(response),
            _ => None,
        };
        let displaced = waiting.place.as_ref().is_some_and(|place| place.is_displaced());
        let late = waiting.until.is_some_and(|until| Instant::now() >= until);
        let failed = response
            .as_ref()
            .is_none_or(|response| response.failed() || response.rcode == rcode::SERVFAIL);
        let octets = response.as_ref().map_or(0, Response::octets);
        let held = self.shared.lookup_octets.hold(octets);
        let status = match (failed, &held) {
            (false, Some(_)) => LookupStatus::Answered,
            (false, None) => LookupStatus::Limited,
            (true, _) if displaced => LookupStatus::Limited,
            (true, _) if late => LookupStatus::TimedOut,
            (true, _) => LookupStatus::Failed,
        };
        request.trace(|| explain::looked_up(&request, status, response.as_ref()));
        // Through an alias, or by a filter, an answer may also be one that no cache may store.
        let may_be_stored = status != LookupStatus::Answered
            || response
                .as_ref()
                .is_some_and(|response| response.store != Store::Never);
        // From the top, another zone may answer other clients.
        let zones = &live.generation.zones;
        let varies =
            matches!(path, LookupPath::Top) && zones.depends_on_asker(request.name.as_bytes(), request.qtype);
        Looked {
            is_shared: may_be_stored && !varies && !live.tells_clients_apart(&request),
            status,
            response: response.filter(|_| held.is_some()),
            question: request.question,
            _place: waiting.place,
            _held: held,
        }
    }
}
