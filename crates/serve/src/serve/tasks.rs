//! Queries that outlive their batch, and those of the proxy's own, each on a task of the worker.
//!
//! A task is kept when its query is done, and takes the next one: to make and drop a task costs as much as
//! all other allocations of a miss together, since it is large and aligned to 128 octets, for which malloc
//! has no quick way.
//!
//! What one query leads to, an alias's target or a filter's lookup, goes through the same queue, and the query waits for what it
//! came to. So no task runs another query in the middle of its own, however deep they lead.

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
use super::response::Response;
use super::state::{State, Wait};
use super::worker::Worker;
use super::zones::ZoneMatch;

/// Tasks that are kept while there is nothing for them to do, and room for as many queries.
const KEPT: usize = 256;

impl Worker {
    /// Goes on with a query as a task of its own, which replies when it is done; leaves an empty one in its place. If
    /// there is no room to wait, what the client gets instead comes back.
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
        let mut query = self.room_for(request);
        std::mem::swap(request, &mut query.request);
        (query.state, query.waiting) = (State::Waits(wait), waiting);
        query.live = Some(Rc::clone(live));
        query.owed = Owed::Reply(self.queue.debts.owe(), reply());
        self.enqueue(query);
        None
    }

    /// A query of the proxy's own, to which its name's zone is still to be found.
    pub(super) fn ask_from_the_top(
        self: &Rc<Self>,
        live: &Rc<Live>,
        mut request: Request,
        waiting: Waiting,
    ) -> oneshot::Receiver<Box<Query>> {
        let hasher = &self.shared.hasher;
        request.hash = hasher.question(request.name.as_bytes(), request.qtype, request.qclass);
        let state = match live.answerer(&request) {
            Some(ZoneMatch::Pipeline { pipeline, zone }) => {
                (request.pipeline, request.zone) = (pipeline, zone);
                State::Inward
            }
            Some(ZoneMatch::Special(special)) => {
                State::Outward(Response::local(special.answer(&request.question)))
            }
            None => State::error(rcode::REFUSED, ExtendedError::NotAuthoritative),
        };
        self.ask_inner(live, request, state, waiting)
    }

    /// Goes on with a query of the proxy's own: it comes back with what it came to, or not at all.
    pub(super) fn ask_inner(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: Request,
        state: State,
        waiting: Waiting,
    ) -> oneshot::Receiver<Box<Query>> {
        let (sender, receiver) = oneshot::channel();
        self.enqueue(Box::new(Query {
            request,
            state,
            waiting,
            live: Some(Rc::clone(live)),
            owed: Owed::Query(sender),
        }));
        receiver
    }

    /// Room for a query, with an empty request.
    // In a box: a task that has moved what it works on keeps room for it in each place where it was.
    fn room_for(&self, request: &Request) -> Box<Query> {
        let spare = self.queue.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| {
            Box::new(Query {
                request: Request::new(request.asked.client),
                state: State::Gone,
                waiting: Waiting::default(),
                live: None,
                owed: Owed::Nothing,
            })
        })
    }

    /// Has a task take a query.
    pub(super) fn enqueue(self: &Rc<Self>, query: Box<Query>) {
        self.queue.queries.borrow_mut().push_back(query);
        match self.queue.idle.get().checked_sub(1) {
            Some(idle) => {
                self.queue.idle.set(idle);
                self.queue.query.notify_one();
            }
            None => drop(spawn_local(Rc::clone(self).run_queue())),
        }
    }

    /// One task: one query after the other, for as long as it is worth keeping.
    async fn run_queue(self: Rc<Self>) {
        loop {
            loop {
                let query = self.queue.queries.borrow_mut().pop_front();
                let Some(mut query) = query else { break };
                // It was put there with it.
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

    /// Gives what a query came to to whom it is owed, and keeps the room.
    fn hand_over(&self, live: &Live, mut query: Box<Query>) {
        match std::mem::replace(&mut query.owed, Owed::Nothing) {
            Owed::Reply(_debt, reply) => self.reply(live, &mut query, reply),
            // Nobody may wait for it any more.
            Owed::Query(sender) => return drop(sender.send(query)),
            // Of no consequence if a newer entry has taken its place.
            Owed::Cache(claim) => claim.entry().refresh_failed(self.now() / 1000),
            Owed::Nothing => {}
        }
        query.request.clear();
        (query.state, query.waiting) = (State::Gone, Waiting::default());
        let mut spare = self.queue.spare.borrow_mut();
        if spare.len() < KEPT {
            spare.push(query);
        }
    }

    /// Resolves when no query waits for an upstream any more.
    pub async fn drained(&self) {
        self.queue.debts.paid().await;
    }
}
