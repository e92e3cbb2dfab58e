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
    /// Whether it is being established.
    dialling: Cell<bool>,
    /// Why it could not be established, for those that waited for that.
    fault: Cell<Option<Fault>>,
    /// Notified when it is established, or could not be.
    dialled: Notify,
    /// When establishing it began.
    since: Cell<Option<Instant>>,
    /// Whether it has carried a reply.
    proven: Cell<bool>,
    /// Queries without a reply yet.
    pending: Cell<usize>,
    quiet: Cell<Option<Instant>>,
    /// Queries in a row without a reply in time.
    silent: Cell<u32>,
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
        let mut pending = Pending::new(open, self.upstream.rto());
        let asked = async { self.session(open).await?.ask(query).await };
        let outcome = timeout_at(until, asked).await.unwrap_or(Err(Fault::Timeout));
        pending.patience = None;
        match &outcome {
            // While it is being established, the time limit of that decides.
            Err(Fault::Timeout) if open.session.get().is_none() => {}
            Err(Fault::Timeout) => open.silent.set(open.silent.get() + 1),
            _ => open.silent.set(0),
        }
        open.proven.set(open.proven.get() || outcome.is_ok());
        outcome
    }

    /// Waits until the connection is established, by a task of its own: a query that is given up does not end
    /// what others wait for.
    async fn session<'o>(&self, open: &'o Rc<Open>) -> Result<&'o Session, Fault> {
        loop {
            if let Some(session) = open.session.get() {
                return Ok(session);
            }
            if !open.dialling.get() {
                let permit = self.quotas.take()?;
                open.since.set(Some(Instant::now()));
                open.fault.set(None);
                open.dialling.set(true);
                let dial = Dial {
                    upstream: Arc::clone(&self.upstream),
                    open: Rc::downgrade(open),
                    within: self.dial,
                    idle: self.keeping.idle,
                };
                spawn_local(dial.run(self.protocol, self.get, permit));
            }
            open.dialled.notified().await;
            if let Some(fault) = open.fault.get() {
                return Err(fault);
            }
        }
    }
}

/// The establishing of a connection.
struct Dial {
    upstream: Arc<Upstream>,
    /// The connection, unless the worker has given it up.
    open: Weak<Open>,
    /// How long it may take.
    within: Duration,
    /// How long the connection is kept without queries.
    idle: Duration,
}

impl Dial {
    async fn run(self, protocol: Protocol, get: bool, permit: Permit) {
        let established = self.establish(protocol, get, permit).await;
        let Some(open) = self.open.upgrade() else { return };
        match established {
            // There is none yet, since only one task at a time establishes it.
            Ok(session) => drop(open.session.set(session)),
            Err(fault) => open.fault.set(Some(fault)),
        }
        open.dialling.set(false);
        open.dialled.notify_waiters();
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
    begun: Instant,
    /// When it is given up after this long, that counts as silence; `None` once it has an outcome.
    patience: Option<Duration>,
}

impl Pending {
    fn new(open: &Rc<Open>, patience: Duration) -> Pending {
        open.pending.set(open.pending.get() + 1);
        Pending {
            open: Rc::clone(open),
            begun: Instant::now(),
            patience: Some(patience),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let open = &self.open;
        open.pending.set(open.pending.get() - 1);
        open.quiet.set(Some(Instant::now()));
        let is_established = open.session.get().is_some();
        if is_established
            && self
                .patience
                .is_some_and(|patience| self.begun.elapsed() >= patience)
        {
            open.silent.set(open.silent.get() + 1);
        }
    }
}
