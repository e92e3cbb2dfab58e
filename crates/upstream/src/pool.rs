//! Queries over connections: a few per upstream, kept and pipelined (RFC 7766 section 6.2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::{Connection, Keeping};
use super::failure::Fault;
use super::message::{Query, Reply};
use super::quota::Quotas;
use super::upstream::Upstream;
use super::{tcp, tls};

/// One worker's connections to one upstream.
pub(super) struct Pool {
    upstream: Arc<Upstream>,
    quotas: Quotas,
    /// The most connections that accept queries.
    limit: usize,
    keeping: Keeping,
    dial: Duration,
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Count of connections ever opened; the next one's serial number.
    opened: Rc<Cell<u64>>,
}

impl Pool {
    pub fn new(
        upstream: Arc<Upstream>,
        quotas: Quotas,
        limit: usize,
        keeping: Keeping,
        dial: Duration,
    ) -> Self {
        Self {
            upstream,
            quotas,
            limit,
            keeping,
            dial,
            connections: RefCell::default(),
            opened: Rc::default(),
        }
    }

    /// Sends `query` and waits at most `limit` for its reply. Dropping the future gives the query up.
    pub async fn exchange(&self, query: &Rc<Query>, limit: Duration) -> Result<Reply, Fault> {
        let until = Instant::now() + limit;
        let connection = self.connection(0)?;
        match connection.ask(query, until).await {
            // A server may close a connection at any time, even as we reuse it. That says nothing about the
            // query (RFC 7766 section 6.2.4): retry once, on a connection opened after the close.
            Err(Fault::Closed) if connection.is_proven() => {
                self.connection(connection.successors())?.ask(query, until).await
            }
            outcome => outcome,
        }
    }

    /// The least busy connection with a serial number of at least `from`. While more may be opened, none gets
    /// a second query: many servers answer a connection's queries one after another.
    fn connection(&self, from: u64) -> Result<Rc<Connection>, Fault> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_open());
        let least = connections
            .iter()
            .filter(|connection| connection.serial() >= from && !connection.is_full());
        let least = least.min_by_key(|connection| connection.pending());
        let room = connections.len() < self.limit;
        match least.cloned() {
            Some(connection) if connection.pending() == 0 || !room => Ok(connection),
            least if room => match (self.connect(), least) {
                (Ok(connection), _) => {
                    connections.push(connection.clone());
                    Ok(connection)
                }
                (Err(_), Some(connection)) => Ok(connection),
                (Err(fault), None) => Err(fault),
            },
            _ => Err(Fault::Busy),
        }
    }

    /// Returns at once; queries may be queued while the connection is being established.
    fn connect(&self) -> Result<Rc<Connection>, Fault> {
        let permit = self.quotas.take()?;
        let connection = Rc::new(Connection::new(&self.opened, self.keeping));
        // Only this function knows the transport.
        let (opened, upstream) = (Rc::clone(&connection), Arc::clone(&self.upstream));
        match upstream.secured {
            None => {
                let stream = tcp::connect(upstream.address);
                tokio::task::spawn_local(opened.run(stream, self.dial, upstream, permit))
            }
            Some(_) => {
                let stream = tls::connect(Arc::clone(&upstream));
                tokio::task::spawn_local(opened.run(stream, self.dial, upstream, permit))
            }
        };
        Ok(connection)
    }

    #[cfg(test)]
    pub fn pending(&self) -> usize {
        self.connections
            .borrow()
            .iter()
            .map(|connection| connection.pending())
            .sum()
    }

    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.connections
            .borrow()
            .iter()
            .filter(|connection| connection.is_open())
            .count()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for connection in self.connections.take() {
            connection.close(Fault::Closed);
        }
    }
}
