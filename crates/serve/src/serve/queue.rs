//! What waits: queries that outlive their batch, and those of the proxy's own; replies that are owed.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::admission::Place;
use crate::cache::RefreshClaim;

use super::batch::DeferredReply;
use super::live::Live;
use super::request::{ChangeKind, Request};
use super::state::State;

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

/// A query that outlives its batch, or one of the proxy's own.
pub(super) struct Query {
    pub request: Request,
    pub state: State,
    pub waiting: Waiting,
    /// The generation that it began with; none: there is no query here, but room for one.
    pub live: Option<Rc<Live>>,
    pub owed: Owed,
}

/// What a query has while it waits.
#[derive(Default)]
pub(super) struct Waiting {
    /// Its place among the queries that wait; none for those of the proxy's own that keep the cache fresh.
    pub place: Option<Place>,
    /// When its time is up.
    pub until: Option<Instant>,
    /// How many lookups were made for the client's query, once there was one.
    pub lookups: OnceCell<Rc<Cell<u8>>>,
}

/// Who gets what a query comes to.
pub(super) enum Owed {
    /// Nobody: there is no query.
    Nothing,
    /// A client. The debt is paid when it is dropped.
    Reply(Debt, Box<dyn DeferredReply>),
    /// The query that it was made for, which waits.
    Query(oneshot::Sender<Box<Query>>),
    /// The cache has it. If none could be had, or kept, the next attempt waits a while.
    Cache(RefreshClaim),
}

impl Waiting {
    /// How many lookups were made so far for the client's query, over all that it leads to.
    pub(super) fn lookups_made(&self) -> &Rc<Cell<u8>> {
        self.lookups.get_or_init(Rc::default)
    }

    /// Until when a query waits: until its time is up, or something stale is good enough.
    pub(super) fn until(&self, request: &Request) -> Option<Instant> {
        let mut until = self.until;
        for change in &request.changes {
            if let ChangeKind::Keep(fetch) = &change.what
                && let Some((_, soon)) = fetch.stale
            {
                until = Some(until.map_or(soon, |until| until.min(soon)));
            }
        }
        until
    }

    /// That of a query which is made for one that waits.
    pub(super) fn of_inner(&self, request: &Request) -> Waiting {
        Waiting {
            place: self.place.clone(),
            until: self.until(request),
            lookups: OnceCell::from(Rc::clone(self.lookups_made())),
        }
    }

    /// Resolves when somebody else has taken its place among those who wait.
    pub(super) fn poll_displaced(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.place {
            Some(place) => place.poll_displaced(context),
            None => Poll::Pending,
        }
    }
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
