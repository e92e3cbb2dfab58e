//! Queries that outlive their batch, each on a task of the worker.
//!
//! A task is kept when its query is done, and takes the next one: to make and drop a task costs as much as
//! all other allocations of a miss together, since it is large and aligned to 128 octets, for which malloc
//! has no quick way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::task::spawn_local;

use crate::admission::{Full, JOSTLE};

use super::events::Sent;
use super::generation::Live;
use super::request::Request;
use super::response::Response;
use super::{DeferredReply, Step, Worker};

/// Octets of memory that one query takes while it waits for an upstream, its way back to the client included: what
/// `waiting-queries` costs at most is a multiple of this. Who asks an upstream itself takes some kilobytes more, and of
/// those there are at most `concurrent` for each `forward`.
pub const WAITING_OCTETS: usize = 2560;

/// Tasks that are kept while there is nothing for them to do.
const KEPT: usize = 256;

/// What is late.
#[derive(Default)]
pub(super) struct Deferred {
    /// Queries that no task has taken yet.
    queries: RefCell<VecDeque<Box<Query>>>,
    /// How many tasks wait, and have not been told of a query.
    idle: Cell<usize>,
    query: Notify,
    /// Replies that are owed to clients.
    owed: Cell<usize>,
    none_owed: Notify,
}

struct Query {
    owed: Owed,
    live: Rc<Live>,
    request: Request,
    step: Step,
    reply: Box<dyn DeferredReply>,
}

/// A reply is owed for as long as this lives; [`Worker::drained`] waits for all of them.
struct Owed(Rc<Worker>);

impl Owed {
    fn new(worker: &Rc<Worker>) -> Owed {
        worker.deferred.owed.set(worker.deferred.owed.get() + 1);
        Owed(Rc::clone(worker))
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let deferred = &self.0.deferred;
        deferred.owed.set(deferred.owed.get() - 1);
        if deferred.owed.get() == 0 {
            deferred.none_owed.notify_waiters();
        }
    }
}

impl Worker {
    /// Goes on with a query as a task of its own, which replies when it is done; leaves an empty one in its place. If
    /// there is no room to wait, what the client gets instead comes back.
    pub(super) fn defer(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &mut Request,
        step: Step,
        reply: impl FnOnce() -> Box<dyn DeferredReply>,
    ) -> Option<Response> {
        let client = request.client.address.ip();
        let place = match self.shared.waiting.enter(client, request.hash, JOSTLE) {
            Ok(place) => Rc::new(place),
            Err(Full) => return Some(self.crowded_out(live, request)),
        };
        let mut request = std::mem::replace(request, Request::new(request.client));
        request.place = Some(place);
        // In a box: a task that has moved what it works on keeps room for it in each place where it was.
        let query = Box::new(Query {
            owed: Owed::new(self),
            live: Rc::clone(live),
            request,
            step,
            reply: reply(),
        });
        self.deferred.queries.borrow_mut().push_back(query);
        match self.deferred.idle.get().checked_sub(1) {
            Some(idle) => {
                self.deferred.idle.set(idle);
                self.deferred.query.notify_one();
            }
            None => drop(spawn_local(Rc::clone(self).run_deferred())),
        }
        None
    }

    /// One task: one query after the other, for as long as it is worth keeping.
    async fn run_deferred(self: Rc<Self>) {
        loop {
            loop {
                let query = self.deferred.queries.borrow_mut().pop_front();
                match query {
                    Some(query) => query.finish().await,
                    None => break,
                }
            }
            let idle = self.deferred.idle.get();
            if idle >= KEPT {
                return;
            }
            self.deferred.idle.set(idle + 1);
            self.deferred.query.notified().await;
        }
    }

    /// Resolves when no query waits for an upstream any more.
    pub async fn drained(&self) {
        while self.deferred.owed.get() > 0 {
            self.deferred.none_owed.notified().await;
        }
    }
}

impl Query {
    async fn finish(mut self: Box<Self>) {
        let worker = Rc::clone(&self.owed.0);
        let step = std::mem::replace(&mut self.step, Step::Gone);
        let response = worker.finish(&self.live, &mut self.request, step).await;
        self.reply(&worker, response);
    }

    /// Takes a response back to the client; none: the query was dropped.
    fn reply(self, worker: &Worker, response: Option<Response>) {
        let Query {
            owed: _owed,
            live,
            mut request,
            reply,
            ..
        } = self;
        // Who has its answer leads nobody: those who ask from now on ask anew.
        request.led = None;
        let mut responses = [response];
        worker.outward(&live, std::slice::from_mut(&mut request), &mut responses, 0);
        let [response] = responses;
        match response {
            Some(response) => {
                let sent = {
                    let mut buffer = worker.reply.borrow_mut();
                    let head = request.reply_head(response.error);
                    let size = response.write(&mut buffer[..], &head);
                    reply.send(&buffer[..size]);
                    Sent::of(&buffer[..], size)
                };
                worker.count_response(&live, &request, &response, sent, worker.clocks());
            }
            None => worker.hear(&live, &request, None, Sent::default(), worker.clocks()),
        }
    }
}
