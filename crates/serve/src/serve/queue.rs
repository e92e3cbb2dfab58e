//! Queries that wait for a task of the worker, and replies that are owed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;

use super::batch::{DeferredReply, Step};
use super::live::Live;
use super::request::Request;

/// Octets of memory that one query takes while it waits for an upstream, its way back to the client included: what
/// `waiting-queries` costs at most is a multiple of this. Who asks an upstream itself takes some kilobytes more, and of
/// those there are at most `concurrent` for each `forward`.
pub const WAITING_OCTETS: usize = 2688;

/// What outlives its batch.
#[derive(Default)]
pub(super) struct Queue {
    /// Queries that no task has taken yet.
    pub queries: RefCell<VecDeque<Box<Query>>>,
    /// Room for others, which earlier ones have left.
    #[expect(
        clippy::vec_box,
        reason = "the room itself is what is kept, and it goes into `queries` as it is"
    )]
    pub spare: RefCell<Vec<Box<Query>>>,
    /// How many tasks wait, and have not been told of a query.
    pub idle: Cell<usize>,
    /// There is a query.
    pub query: Notify,
    /// Replies that are owed to clients.
    pub debts: Rc<Debts>,
}

/// A query that outlives its batch; or room for one, with an empty request.
pub(super) struct Query {
    pub request: Request,
    pub step: Step,
    /// None: nobody is here.
    pub owed: Option<Owed>,
}

/// What is owed to the client of a query.
pub(super) struct Owed {
    /// Paid when it is dropped.
    pub _debt: Debt,
    pub live: Rc<Live>,
    pub reply: Box<dyn DeferredReply>,
}

/// How many replies are owed.
#[derive(Default)]
pub(super) struct Debts {
    owed: Cell<usize>,
    none_owed: Notify,
}

/// A reply is owed for as long as this lives.
pub(super) struct Debt(Rc<Debts>);

impl Debts {
    /// One more.
    pub fn owe(self: &Rc<Self>) -> Debt {
        self.owed.set(self.owed.get() + 1);
        Debt(Rc::clone(self))
    }

    /// Resolves when none is owed any more.
    pub async fn paid(&self) {
        while self.owed.get() > 0 {
            self.none_owed.notified().await;
        }
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.owed.set(self.0.owed.get() - 1);
        if self.0.owed.get() == 0 {
            self.0.none_owed.notify_waiters();
        }
    }
}
