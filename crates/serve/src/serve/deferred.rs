//! Queries that outlive their batch, each on a task of the worker.
//!
//! A task is kept when its query is done, and takes the next one: to make and drop a task costs as much as
//! all other allocations of a miss together, since it is large and aligned to 128 octets, for which malloc
//! has no quick way.

use std::rc::Rc;
use std::time::Instant;

use tokio::task::spawn_local;

use crate::admission::{Full, JOSTLE};
use crate::dns::rcode;

use super::batch::{DeferredReply, Step};
use super::live::Live;
use super::observed::SLOW;
use super::queue::{Owed, Query};
use super::records::Sent;
use super::request::Request;
use super::response::Response;
use super::worker::Worker;

/// Tasks that are kept while there is nothing for them to do, and room for as many queries.
const KEPT: usize = 256;

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
        let place = match self
            .shared
            .waiting
            .enter(client, request.hash, Instant::now(), JOSTLE)
        {
            Ok(place) => place,
            Err(Full) => return Some(self.crowded_out(live, request, step)),
        };
        // In a box: a task that has moved what it works on keeps room for it in each place where it was.
        let spare = self.queue.spare.borrow_mut().pop();
        let mut query = spare.unwrap_or_else(|| {
            Box::new(Query {
                request: Request::new(request.client),
                step: Step::Gone,
                owed: None,
            })
        });
        std::mem::swap(request, &mut query.request);
        query.request.place = Some(place);
        query.step = step;
        query.owed = Some(Owed {
            _debt: self.queue.debts.owe(),
            live: Rc::clone(live),
            reply: reply(),
        });
        self.queue.queries.borrow_mut().push_back(query);
        match self.queue.idle.get().checked_sub(1) {
            Some(idle) => {
                self.queue.idle.set(idle);
                self.queue.query.notify_one();
            }
            None => drop(spawn_local(Rc::clone(self).run_deferred())),
        }
        None
    }

    /// One task: one query after the other, for as long as it is worth keeping.
    async fn run_deferred(self: Rc<Self>) {
        loop {
            loop {
                let query = self.queue.queries.borrow_mut().pop_front();
                let Some(mut query) = query else { break };
                let step = std::mem::replace(&mut query.step, Step::Gone);
                // It was put there with it.
                let Some(owed) = query.owed.take() else { continue };
                let (live, request) = (&owed.live, &mut query.request);
                let response = self.finish(live, request, step).await;
                // Who has its answer leads nobody: those who ask from now on ask anew.
                request.led = None;
                let response = self.back(live, request, response, 0).await;
                if request.delay > 0
                    && let Some(response) = &response
                {
                    // In a box: it is rare, and all who wait would have room for it.
                    Box::pin(self.hold_back(live, request, response)).await;
                }
                self.reply(owed, request, response);
                request.clear();
                let mut spare = self.queue.spare.borrow_mut();
                if spare.len() < KEPT {
                    spare.push(query);
                }
            }
            let idle = self.queue.idle.get();
            if idle >= KEPT {
                return;
            }
            self.queue.idle.set(idle + 1);
            self.queue.query.notified().await;
        }
    }

    /// Sends a response to the client; none: the query was dropped.
    fn reply(&self, owed: Owed, request: &mut Request, response: Option<Response>) {
        // The debt is paid at the end.
        let Owed { live, reply, _debt } = owed;
        match response {
            Some(response) => {
                let mut buffer = self.reply.borrow_mut();
                let head = request.reply_head(response.error);
                let size = response.write(&mut buffer[..], &head);
                reply.send(&buffer[..size]);
                let (sent, clocks) = (Sent::of(&buffer[..], size), self.clocks());
                self.count_response(&live, request, &response, sent, &buffer[..size], clocks);
                let took = clocks.now.saturating_sub(request.client.received);
                if took >= SLOW && response.rcode != rcode::SERVFAIL {
                    self.keep_trouble(request, &response, took, clocks);
                }
            }
            None => {
                request.end();
                self.hear(&live, request, None, Sent::default(), &[], self.clocks());
            }
        }
    }

    /// Resolves when no query waits for an upstream any more.
    pub async fn drained(&self) {
        self.queue.debts.paid().await;
    }
}
