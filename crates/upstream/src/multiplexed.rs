//! Queries that share a connection, each on its own stream: over HTTPS (RFC 8484) and QUIC (RFC 9250).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
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
        let _pending = Pending::new(open);
        let asked = async {
            let session = open.session.get_or_try_init(|| self.connect(open)).await?;
            session.ask(query).await
        };
        let outcome = timeout_at(until, asked).await.unwrap_or(Err(Fault::Timeout));
        match &outcome {
            Err(Fault::Timeout) => open.silent.set(open.silent.get() + 1),
            _ => open.silent.set(0),
        }
        open.proven.set(open.proven.get() || outcome.is_ok());
        outcome
    }

    /// Establishes the connection, which then runs as its own task.
    async fn connect(&self, open: &Rc<Open>) -> Result<Session, Fault> {
        let permit = self.quotas.take()?;
        open.since.set(Some(Instant::now()));
        let open = Rc::downgrade(open);
        let upstream = Arc::clone(&self.upstream);
        let late = |_| Fault::Timeout;
        match self.protocol {
            Protocol::Encrypted(Encryption::Quic) => {
                let dialled = timeout(self.dial, quic::connect(upstream)).await;
                let (session, ended) = dialled.map_err(late)??;
                tokio::task::spawn_local(keep(ended, open, self.keeping.idle, permit));
                Ok(Session::Quic(session))
            }
            _ => {
                let dialled = timeout(self.dial, https::connect(upstream, self.get)).await;
                let (session, ended) = dialled.map_err(late)??;
                tokio::task::spawn_local(keep(ended, open, self.keeping.idle, permit));
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
struct Pending(Rc<Open>);

impl Pending {
    fn new(open: &Rc<Open>) -> Pending {
        open.pending.set(open.pending.get() + 1);
        Pending(Rc::clone(open))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.pending.set(self.0.pending.get() - 1);
        self.0.quiet.set(Some(Instant::now()));
    }
}
