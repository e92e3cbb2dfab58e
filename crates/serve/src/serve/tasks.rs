//! Queries that outlive their batch, and internal ones, each in a task of the worker.
//!
//! A task whose query is done takes the next one: creating and dropping a task costs as much as all other
//! allocations of a miss together, since it is large and aligned to 128 bytes, for which malloc has no fast
//! path.
//!
//! What a query leads to, an alias's target or a filter's lookup, goes through the same queue, and the query
//! waits for the result. So no task runs another query inside its own, however deeply they are nested.

use std::rc::Rc;

use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::Instant;

use crate::admission::{Full, JOSTLE};
use crate::dns::edns::ExtendedError;
use crate::dns::rcode;

use super::batch::DeferredReply;
use super::live::Live;
use super::queue::{Owed, Query, Waiting};
use super::request::Request;
use super::response::{Response, Store};
use super::response_pass;
use super::state::{State, Wait};
use super::worker::Worker;
use super::zones::ZoneMatch;

/// How many idle tasks are kept, and how many boxes for queries.
const KEPT: usize = 256;

impl Worker {
    /// Continues a query in its own task, which replies when it is done; leaves an empty request in its
    /// place. If there is no room to wait, returns the response that the client gets instead.
    pub(super) fn defer(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        wait: Wait,
        reply: impl FnOnce() -> Box<dyn DeferredReply>,
    ) -> Option<Response> {
        let client = request.asked.client.address.ip();
        let room = &self.shared.waiting;
        let place = match room.enter(client, request.hash, Instant::now().into_std(), JOSTLE) {
            Ok(place) => place,
            Err(Full) => {
                let response = self.crowded_out(live, request, wait);
                request.delay = 0;
                return Some(response);
            }
        };
        let waiting = Waiting {
            place: Some(place),
            ..Waiting::default()
        };
        let owed = Owed::Reply(self.queue.debt.clone(), reply());
        self.enqueue(live, request, State::Waits(wait), waiting, owed);
        None
    }

    /// Starts an internal query, after finding the zone of its name.
    pub(super) fn ask_from_the_top(
        self: &Rc<Self>,
        live: &Rc<Live>,
        mut request: Request,
        waiting: Waiting,
    ) -> oneshot::Receiver<Box<Query>> {
        let state = match live.answerer(&request) {
            Some(ZoneMatch::Pipeline { pipeline, zone }) => {
                (request.pipeline, request.zone) = (pipeline, zone);
                State::Request
            }
            Some(ZoneMatch::Special(special)) => {
                State::Response(Response::local(special.answer(&request.question)))
            }
            None => State::error(rcode::REFUSED, ExtendedError::NotAuthoritative),
        };
        self.ask_inner(live, request, state, waiting)
    }

    /// Starts an internal query in this state; it comes back with its result, or not at all.
    pub(super) fn ask_inner(
        self: &Rc<Self>,
        live: &Rc<Live>,
        mut request: Request,
        state: State,
        waiting: Waiting,
    ) -> oneshot::Receiver<Box<Query>> {
        let (sender, receiver) = oneshot::channel();
        self.enqueue(live, &mut request, state, waiting, Owed::Query(sender));
        receiver
    }

    /// Passes a query to a task, and leaves an empty request in its place.
    // Inlined, so that everything is written into the box without a copy.
    #[inline(always)]
    pub(super) fn enqueue(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        state: State,
        waiting: Waiting,
        owed: Owed,
    ) {
        let spare = self.queue.spare.borrow_mut().pop();
        // Boxed: a future reserves space for a moved value in every place that held it.
        let mut query = spare.unwrap_or_else(|| {
            Box::new(Query {
                request: Request::new(request.asked.client),
                state: State::Gone,
                waiting: Waiting::default(),
                live: None,
                owed: Owed::Nothing,
            })
        });
        std::mem::swap(request, &mut query.request);
        (query.state, query.waiting, query.owed) = (state, waiting, owed);
        query.live = Some(Rc::clone(live));
        self.queue.queries.borrow_mut().push_back(query);
        self.wake_task();
    }

    /// Notifies an idle task of a query, or starts one.
    fn wake_task(self: &Rc<Self>) {
        match self.queue.idle.get().checked_sub(1) {
            Some(idle) => {
                self.queue.idle.set(idle);
                self.queue.query.notify_one();
            }
            None => drop(spawn_local(Rc::clone(self).run_queue())),
        }
    }

    /// One task: runs one query after the other, for as long as it is worth keeping.
    async fn run_queue(self: Rc<Self>) {
        loop {
            loop {
                let query = self.queue.queries.borrow_mut().pop_front();
                let Some(mut query) = query else { break };
                // Every queued query has one.
                let Some(live) = query.live.take() else { continue };
                self.see_through(&live, &mut query).await;
                self.hand_over(&live, query);
            }
            let idle = self.queue.idle.get();
            if idle >= KEPT {
                return;
            }
            self.queue.idle.set(idle + 1);
            self.queue.query.notified().await;
        }
    }

    /// Passes a query's result to its recipient, and keeps the box.
    fn hand_over(&self, live: &Live, mut query: Box<Query>) {
        match std::mem::replace(&mut query.owed, Owed::Nothing) {
            Owed::Reply(_debt, reply) => self.reply(live, &mut query, reply),
            Owed::Query(sender) => {
                let Query { request, state, .. } = &mut *query;
                // Where it was answered at its first stage, nothing has made the changes of that stage.
                if let State::Response(response) = state {
                    let floor = request.floor;
                    response_pass::undo(self, live, request, response, floor);
                }
                // The receiver may be gone.
                return drop(sender.send(query));
            }
            Owed::Cache(claim) => match &query.state {
                State::Response(response) if response.store == Store::Always && !response.failed() => {}
                // Harmless if a newer entry has replaced it.
                _ => claim.entry().refresh_failed(self.now()),
            },
            Owed::Nothing => {}
        }
        // Otherwise nobody would ever pass on the events of a generation that has been replaced meanwhile.
        if !std::ptr::eq(live, &**self.live.borrow()) {
            self.tell_all(live);
        }
        query.request.clear();
        (query.state, query.waiting) = (State::Gone, Waiting::default());
        let mut spare = self.queue.spare.borrow_mut();
        if spare.len() < KEPT {
            spare.push(query);
        }
    }

    /// Resolves when no client's query waits any more.
    pub async fn drained(&self) {
        self.queue.debt.paid().await;
    }
}
