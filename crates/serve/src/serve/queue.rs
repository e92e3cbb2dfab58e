//! Waiting queries: those that outlive their batch, internal ones, and replies that are owed.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::iter::successors;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::admission::Place;
use crate::cache::RefreshClaim;
use crate::dns::name::Name;

use super::batch::DeferredReply;
use super::live::Live;
use super::request::{ChangeKind, Request};
use super::state::State;

/// Memory in bytes that one query takes while it waits for an upstream, including its way back to the client:
/// the bound on the memory of waiting queries is a multiple of this. A query that asks an upstream itself
/// takes some kilobytes more; there are at most `concurrent` of those for each `forward`.
pub const WAITING_OCTETS: usize = 2688;

/// What outlives a batch.
#[derive(Default)]
pub(super) struct Queue {
    /// Queries that no task has taken yet.
    pub queries: RefCell<VecDeque<Box<Query>>>,
    /// Empty boxes that earlier queries have left, for reuse.
    #[expect(
        clippy::vec_box,
        reason = "the room itself is what is kept, and it goes into `queries` as it is"
    )]
    pub spare: RefCell<Vec<Box<Query>>>,
    /// How many tasks wait and have not been notified of a query.
    pub idle: Cell<usize>,
    /// Notified when there is a query.
    pub query: Notify,
    /// Cloned for each reply that is owed to a client.
    pub debt: Debt,
}

/// A query that outlives its batch, or an internal one.
pub(super) struct Query {
    pub request: Request,
    pub state: State,
    pub waiting: Waiting,
    /// The generation that it began with; `None`: this is an empty box for reuse.
    pub live: Option<Rc<Live>>,
    pub owed: Owed,
}

/// State that only a waiting query has.
#[derive(Default)]
pub(super) struct Waiting {
    /// Its place among the waiting queries; `None` for internal queries that refresh the cache.
    pub place: Option<Place>,
    /// Its deadline.
    pub until: Option<Instant>,
    /// How many lookups were made for the client's query; set by the first.
    pub lookups: OnceCell<Rc<Cell<u8>>>,
    /// The internal queries whose aliases led to this one.
    pub trail: Option<Rc<Trail>>,
}

/// An internal query whose alias led to another one, and those before it.
pub(super) struct Trail {
    /// Its question then: name, type and class.
    question: (Name, u16, u16),
    /// Its pipeline and its stage then.
    at: (usize, usize),
    /// Whether all clients get the same answer to it.
    alike: bool,
    before: Option<Rc<Trail>>,
}

/// The recipient of a query's result.
pub(super) enum Owed {
    /// None: there is no query.
    Nothing,
    /// A client. Dropping the debt settles it.
    Reply(Debt, Box<dyn DeferredReply>),
    /// The waiting query that it was made for.
    Query(oneshot::Sender<Box<Query>>),
    /// The cache, which stored it already. If it failed, or must not be stored, the next attempt is delayed.
    Cache(RefreshClaim),
}

impl Waiting {
    /// How many lookups were made so far for the client's query, over all queries that it leads to.
    pub(super) fn lookups_made(&self) -> &Rc<Cell<u8>> {
        self.lookups.get_or_init(Rc::default)
    }

    /// Until when a query waits: its deadline, or when a stale answer becomes good enough.
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

    /// The state of a query that is made for this waiting one. It begins a trail of its own.
    pub(super) fn of_inner(&self, request: &Request) -> Waiting {
        Waiting {
            place: self.place.clone(),
            until: self.until(request),
            lookups: OnceCell::from(Rc::clone(self.lookups_made())),
            trail: None,
        }
    }

    /// The same for the target of an alias, which goes on from here.
    pub(super) fn of_target(&self, live: &Live, request: &Request) -> Waiting {
        let step = || {
            Rc::new(Trail {
                question: (request.name.clone(), request.qtype, request.qclass),
                at: (request.pipeline, request.stage),
                alike: live.answers_alike(request),
                before: self.trail.clone(),
            })
        };
        Waiting {
            // A client's query does not count: sources may answer it otherwise than ours.
            trail: (request.depth > 0).then(step),
            ..self.of_inner(request)
        }
    }

    /// Whether aliases have led a query back to where it was before; if so, whether they do for all clients.
    pub(super) fn comes_back(&self, request: &Request) -> Option<bool> {
        let mut trail = successors(self.trail.as_deref(), |trail| trail.before.as_deref());
        let mut alike = true;
        let before = trail.find(|trail| {
            alike &= trail.alike;
            let (name, qtype, qclass) = &trail.question;
            trail.at == (request.pipeline, request.stage)
                && (name, *qtype, *qclass) == (&request.name, request.qtype, request.qclass)
        });
        before.map(|_| alike)
    }

    /// Resolves when another query has taken its place.
    pub(super) fn poll_displaced(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.place {
            Some(place) => place.poll_displaced(context),
            None => Poll::Pending,
        }
    }
}

/// A reply is owed to a client for as long as this lives. The queue has the first, which no client is owed.
#[derive(Clone, Default)]
pub(super) struct Debt(Rc<Notify>);

impl Debt {
    /// Resolves when no reply is owed any more.
    pub async fn paid(&self) {
        while Rc::strong_count(&self.0) > 1 {
            self.0.notified().await;
        }
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        // Only the queue's is left.
        if Rc::strong_count(&self.0) == 2 {
            self.0.notify_waiters();
        }
    }
}
