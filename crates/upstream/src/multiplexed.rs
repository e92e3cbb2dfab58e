//! Queries that share a connection, each on its own stream: over HTTPS (RFC 8484) and QUIC (RFC 9250).

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::connection::Keeping;
use super::failure::Fault;
use super::message::{Query, Reply};
use super::quota::{Permit, Quotas};
use super::upstream::Upstream;
use super::{https, quic};
use crate::config::{self, Encryption, Protocol};

/// After so many queries in a row without a reply, a connection is considered dead.
const MOST_SILENT: u32 = 2;

/// The shortest interval between checks whether a connection is idle: the idle time of probes is zero.
const LEAST_LOOK: Duration = Duration::from_millis(100);

/// One worker's connection to one upstream.
pub(super) struct Multiplexed {
    upstream: Arc<Upstream>,
    quotas: Quotas,
    keeping: Keeping,
    dial: Duration,
    protocol: Protocol,
    /// Over HTTPS, send queries with GET instead of POST.
    get: bool,
    open: RefCell<Rc<Open>>,
}

/// A connection, established or not yet.
#[derive(Default)]
struct Open {
    session: OnceCell<Session>,
    /// While it is being established.
    dialling: RefCell<Option<Rc<Dialling>>>,
    /// When establishing it began.
    since: Cell<Option<Instant>>,
    /// Whether it has carried a reply.
    proven: Cell<bool>,
    /// When something last came over it.
    heard: Cell<Option<Instant>>,
    /// Queries without a reply yet.
    pending: Cell<usize>,
    quiet: Cell<Option<Instant>>,
    /// Queries in a row without a reply in time.
    silent: Cell<u32>,
}

/// One attempt to establish a connection, which all queries for it wait for.
#[derive(Default)]
struct Dialling {
    /// Notified when it has ended.
    ended: Notify,
    /// Why it failed.
    fault: Cell<Option<Fault>>,
}

/// The protocol on a connection.
enum Session {
    Https(https::Session),
    Quic(quic::Session),
}

impl Session {
    fn is_closed(&self) -> bool {
        match self {
            Session::Https(session) => session.is_closed(),
            Session::Quic(session) => session.is_closed(),
        }
    }

    async fn ask(&self, query: &Query) -> Result<Reply, Fault> {
        match self {
            Session::Https(session) => session.ask(query).await,
            Session::Quic(session) => session.ask(query).await,
        }
    }
}

impl Multiplexed {
    /// Opens nothing yet. A connection is kept as `keeping` says; establishing one may take `dial`.
    pub fn new(
        upstream: Arc<Upstream>,
        quotas: Quotas,
        config: &config::Forward,
        keeping: Keeping,
        dial: Duration,
    ) -> Multiplexed {
        Multiplexed {
            upstream,
            quotas,
            keeping,
            dial,
            protocol: config.protocol,
            get: config.get,
            open: RefCell::default(),
        }
    }

    /// Sends `query` and waits at most `limit` for its reply. Dropping the future gives the query up.
    pub async fn exchange(&self, query: &Rc<Query>, limit: Duration) -> Result<Reply, Fault> {
        let until = Instant::now() + limit;
        let open = self.open();
        match self.ask(&open, query, until).await {
            // As over TCP, a server may close a connection just as we reuse it.
            Err(Fault::Closed) if open.proven.get() => self.ask(&self.open(), query, until).await,
            outcome => outcome,
        }
    }

    /// The current connection, or a new one if it is closed, dead or too old. An old one ends after its last
    /// query.
    fn open(&self) -> Rc<Open> {
        let mut open = self.open.borrow_mut();
        let age = open.since.get().map(|since| since.elapsed());
        let old = self.keeping.max_age.is_some_and(|most| age >= Some(most));
        if old || open.session.get().is_some_and(Session::is_closed) || open.silent.get() >= MOST_SILENT {
            *open = Rc::default();
        }
        Rc::clone(&open)
    }

    async fn ask(&self, open: &Rc<Open>, query: &Query, until: Instant) -> Result<Reply, Fault> {
        let pending = Pending::new(open, self.upstream.rto());
        let asked = async {
            let session = self.session(open).await?;
            pending.asked.set(Some(Instant::now()));
            session.ask(query).await
        };
        let outcome = timeout_at(until, asked).await.unwrap_or(Err(Fault::Timeout));
        if !matches!(outcome, Err(Fault::Timeout)) {
            pending.asked.set(None);
            open.heard.set(Some(Instant::now()));
            open.silent.set(0);
        }
        open.proven.set(open.proven.get() || outcome.is_ok());
        outcome
    }

    /// Waits until the connection is established, by a task of its own: a query that is given up does not end
    /// what others wait for.
    async fn session<'o>(&self, open: &'o Rc<Open>) -> Result<&'o Session, Fault> {
        if let Some(session) = open.session.get() {
            return Ok(session);
        }
        let known = open.dialling.borrow().clone();
        let dialling = match known {
            Some(dialling) => dialling,
            None => self.dial(open)?,
        };
        dialling.ended.notified().await;
        // Without either, the attempt was broken off.
        open.session
            .get()
            .ok_or(dialling.fault.get().unwrap_or(Fault::Closed))
    }

    /// Begins to establish the connection.
    fn dial(&self, open: &Rc<Open>) -> Result<Rc<Dialling>, Fault> {
        let permit = self.quotas.take()?;
        open.since.set(Some(Instant::now()));
        let dialling = Rc::new(Dialling::default());
        *open.dialling.borrow_mut() = Some(Rc::clone(&dialling));
        let dial = Dial {
            upstream: Arc::clone(&self.upstream),
            open: Rc::downgrade(open),
            dialling: Rc::clone(&dialling),
            within: self.dial,
            idle: self.keeping.idle,
        };
        spawn_local(dial.run(self.protocol, self.get, permit));
        Ok(dialling)
    }
}

/// The establishing of a connection.
struct Dial {
    upstream: Arc<Upstream>,
    /// The connection, unless the worker has given it up.
    open: Weak<Open>,
    dialling: Rc<Dialling>,
    /// How long it may take.
    within: Duration,
    /// How long the connection is kept without queries.
    idle: Duration,
}

impl Dial {
    async fn run(self, protocol: Protocol, get: bool, permit: Permit) {
        match (self.establish(protocol, get, permit).await, self.open.upgrade()) {
            // There is none yet, since only one task at a time establishes it.
            (Ok(session), Some(open)) => drop(open.session.set(session)),
            (Ok(_), None) => {}
            (Err(fault), _) => self.dialling.fault.set(Some(fault)),
        }
    }

    /// Establishes the connection, which then runs as its own task.
    async fn establish(&self, protocol: Protocol, get: bool, permit: Permit) -> Result<Session, Fault> {
        let (upstream, open) = (Arc::clone(&self.upstream), Weak::clone(&self.open));
        let late = |_| Fault::Timeout;
        match protocol {
            Protocol::Encrypted(Encryption::Quic) => {
                let dialled = timeout(self.within, quic::connect(upstream)).await;
                let (session, ended) = dialled.map_err(late)??;
                spawn_local(keep(ended, open, self.idle, permit));
                Ok(Session::Quic(session))
            }
            _ => {
                let dialled = timeout(self.within, https::connect(upstream, get)).await;
                let (session, ended) = dialled.map_err(late)??;
                spawn_local(keep(ended, open, self.idle, permit));
                Ok(Session::Https(session))
            }
        }
    }
}

/// However it ends, the queries that wait for it go on, and the next one may try again.
impl Drop for Dial {
    fn drop(&mut self) {
        if let Some(open) = self.open.upgrade() {
            open.dialling.take();
        }
        self.dialling.ended.notify_waiters();
    }
}

/// Keeps a connection until it ends or was idle for `idle`; holds its permit.
async fn keep(connection: impl Future, open: Weak<Open>, idle: Duration, _permit: Permit) {
    let mut connection = std::pin::pin!(connection);
    loop {
        let now = Instant::now();
        let due = match open.upgrade() {
            // The worker has replaced it, or has ended.
            None => return,
            Some(open) if open.pending.get() > 0 => now + idle.max(LEAST_LOOK),
            Some(open) => match open.quiet.get().unwrap_or(now) + idle {
                due if due > now => due,
                _ => return,
            },
        };
        tokio::select! {
            _ = &mut connection => return,
            () = sleep_until(due) => {}
        }
    }
}

/// A query under way.
struct Pending {
    open: Rc<Open>,
    /// When it was sent; `None` before, and once it has an outcome.
    asked: Cell<Option<Instant>>,
    /// After this long without one, it counts as silence.
    patience: Duration,
}

impl Pending {
    fn new(open: &Rc<Open>, patience: Duration) -> Pending {
        open.pending.set(open.pending.get() + 1);
        Pending {
            open: Rc::clone(open),
            asked: Cell::default(),
            patience,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let open = &self.open;
        open.pending.set(open.pending.get() - 1);
        open.quiet.set(Some(Instant::now()));
        let is_silent = |asked: Instant| {
            asked.elapsed() >= self.patience && open.heard.get().is_none_or(|heard| heard < asked)
        };
        if self.asked.get().is_some_and(is_silent) {
            open.silent.set(open.silent.get() + 1);
        }
    }
}
