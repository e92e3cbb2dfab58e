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
use super::response::Response;
use super::transit::Transit;
use super::{LateReply, Step, Worker};

/// Octets of memory that one query takes while it waits for an upstream, its way back to the client included: what
/// `waiting-queries` costs at most is a multiple of this. Who asks an upstream itself takes some kilobytes more, and of
/// those there are at most `concurrent` for each `forward`.
pub const WAITING_OCTETS: usize = 2560;

/// Tasks that are kept while there is nothing for them to do.
const KEPT: usize = 256;

/// What is late.
#[derive(Default)]
pub(super) struct Late {
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
    transit: Transit,
    step: Step,
    reply: Box<dyn LateReply>,
}

/// A reply is owed for as long as this lives; [`Worker::drained`] waits for all of them.
struct Owed(Rc<Worker>);

impl Owed {
    fn new(worker: &Rc<Worker>) -> Owed {
        worker.late.owed.set(worker.late.owed.get() + 1);
        Owed(Rc::clone(worker))
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let late = &self.0.late;
        late.owed.set(late.owed.get() - 1);
        if late.owed.get() == 0 {
            late.none_owed.notify_waiters();
        }
    }
}

impl Worker {
    /// Goes on with a query as a task of its own, which replies when it is done; leaves an empty one in its place. If
    /// there is no room to wait, what the client gets instead comes back.
    pub(super) fn spawn_late(
        self: &Rc<Self>,
        live: &Rc<Live>,
        transit: &mut Transit,
        step: Step,
        reply: impl FnOnce() -> Box<dyn LateReply>,
    ) -> Option<Response> {
        let client = transit.arrival.client.ip();
        let place = match self.shared.waiting.enter(client, transit.hash, JOSTLE) {
            Ok(place) => Rc::new(place),
            Err(Full) => return Some(self.crowded_out(live, transit)),
        };
        let mut transit = std::mem::replace(transit, Transit::new(transit.arrival));
        transit.place = Some(place);
        // In a box: a task that has moved what it works on keeps room for it in each place where it was.
        let query = Box::new(Query {
            owed: Owed::new(self),
            live: Rc::clone(live),
            transit,
            step,
            reply: reply(),
        });
        self.late.queries.borrow_mut().push_back(query);
        match self.late.idle.get().checked_sub(1) {
            Some(idle) => {
                self.late.idle.set(idle);
                self.late.query.notify_one();
            }
            None => drop(spawn_local(Rc::clone(self).finish_late())),
        }
        None
    }

    /// One task: one query after the other, for as long as it is worth keeping.
    async fn finish_late(self: Rc<Self>) {
        loop {
            loop {
                let query = self.late.queries.borrow_mut().pop_front();
                match query {
                    Some(query) => query.finish().await,
                    None => break,
                }
            }
            let idle = self.late.idle.get();
            if idle >= KEPT {
                return;
            }
            self.late.idle.set(idle + 1);
            self.late.query.notified().await;
        }
    }

    /// Resolves when no query waits for an upstream any more.
    pub async fn drained(&self) {
        while self.late.owed.get() > 0 {
            self.late.none_owed.notified().await;
        }
    }
}

impl Query {
    async fn finish(mut self: Box<Self>) {
        let worker = Rc::clone(&self.owed.0);
        let step = std::mem::replace(&mut self.step, Step::Gone);
        let response = worker.finish(&self.live, &mut self.transit, step).await;
        self.reply(&worker, response);
    }

    /// Takes a response back to the client; none: the query was dropped.
    fn reply(self, worker: &Worker, response: Option<Response>) {
        let Query {
            owed: _owed,
            live,
            mut transit,
            reply,
            ..
        } = self;
        // Who has its answer leads nobody: those who ask from now on ask anew.
        transit.led = None;
        let mut responses = [response];
        worker.outward(&live, std::slice::from_mut(&mut transit), &mut responses, 0);
        let [response] = responses;
        match response {
            Some(response) => {
                let sent = {
                    let mut buffer = worker.reply.borrow_mut();
                    let client = transit.client(response.error);
                    let size = response.write(&mut buffer[..], &client);
                    reply.send(&buffer[..size]);
                    Sent::of(&buffer[..], size)
                };
                worker.count_response(&live, &transit, &response, sent, worker.clocks());
            }
            None => worker.hear(&live, &transit, None, Sent::default(), worker.clocks()),
        }
    }
}
