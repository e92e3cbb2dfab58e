//! Attempts that nobody waits for any more, since another one has brought the answer.
//!
//! They are listened for until their own time is over, for one reason: what an upstream does not answer is counted as that, whoever
//! answered in its place, or an upstream that loses one query in ten looks as well as one that loses none. They are counted and nothing else:
//! what is late says nothing about how fast an upstream is, and that it was late has been held against it
//! ([`overtaken`](super::upstream::Upstream)).

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;

use super::failure::Fault;
use super::message::Reply;
use super::quota::Quota;

/// How many of them a worker listens for at a time, for each stage; what is more is forgotten, and not counted. Each may hold a socket.
pub(super) const MOST_LEFT: usize = 64;

/// An attempt under way.
pub(super) type Attempted = Pin<Box<dyn Future<Output = Result<Reply, Fault>>>>;

/// Those of one worker and stage.
pub(super) struct LeftBehind {
    /// Of the process's sockets.
    process: Arc<Quota>,
    count: Cell<usize>,
    is_polled: Cell<bool>,
}

impl LeftBehind {
    /// None yet. Where no socket of the `process` is left, there will be none.
    pub fn new(process: Arc<Quota>) -> Rc<LeftBehind> {
        Rc::new(LeftBehind {
            process,
            count: Cell::new(0),
            is_polled: Cell::new(false),
        })
    }

    /// Whether the attempt that runs just now is one of them.
    pub(crate) fn is_polled(&self) -> bool {
        self.is_polled.get()
    }

    /// Listens for an attempt until its time is over, unless for too many already.
    pub(crate) fn listen_for(self: &Rc<Self>, mut attempt: Attempted) {
        if self.count.get() >= MOST_LEFT || !self.process.is_left() {
            return;
        }
        self.count.set(self.count.get() + 1);
        let place = Place(Rc::clone(self));
        spawn_local(async move {
            // What it counted, it counted as it ended.
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

/// One among [`MOST_LEFT`], also if its task is dropped half-way.
struct Place(Rc<LeftBehind>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}
