//! Attempts that lost the race: another one has brought the answer.
//!
//! They run on until their own timeout for one reason: to count an upstream's silence even when another one
//! answered. Otherwise an upstream that loses one query in ten would look as good as one that loses none.
//! They change nothing but counters: a late reply says nothing about an upstream's speed, and its lateness
//! has already counted against it ([`overtaken`](super::upstream::Upstream)).

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;

use super::failure::Fault;
use super::message::Reply;
use super::quota::Quota;

/// The most that a worker listens for, per stage; more are dropped uncounted. Each may hold a socket.
pub(super) const MOST_LEFT: usize = 64;

/// An attempt under way.
pub(super) type Attempted = Pin<Box<dyn Future<Output = Result<Reply, Fault>>>>;

/// The lost attempts of one worker and stage.
pub(super) struct LeftBehind {
    /// The quota for the sockets of the process.
    process: Arc<Quota>,
    count: Cell<usize>,
    is_polled: Cell<bool>,
}

impl LeftBehind {
    /// None yet. While no socket of the `process` is left, none is added.
    pub fn new(process: Arc<Quota>) -> Rc<LeftBehind> {
        Rc::new(LeftBehind {
            process,
            count: Cell::new(0),
            is_polled: Cell::new(false),
        })
    }

    /// Whether the attempt being polled right now is one of them.
    pub(crate) fn is_polled(&self) -> bool {
        self.is_polled.get()
    }

    /// Runs a lost attempt to its end, unless too many run already.
    pub(crate) fn listen_for(self: &Rc<Self>, mut attempt: Attempted) {
        if self.count.get() >= MOST_LEFT || !self.process.is_left() {
            return;
        }
        self.count.set(self.count.get() + 1);
        let place = Place(Rc::clone(self));
        spawn_local(async move {
            // The attempt updated its counters as it ended.
            let _ = poll_fn(|context| {
                place.0.is_polled.set(true);
                let polled = attempt.as_mut().poll(context);
                place.0.is_polled.set(false);
                polled
            })
            .await;
        });
    }
}

/// One of the [`MOST_LEFT`] places, released even if its task is dropped half-way.
struct Place(Rc<LeftBehind>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}
