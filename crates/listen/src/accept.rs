//! Connections of clients as they come (RFC 7766), as many as there is room for: plain TCP, and what lies upon it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, timeout_at};

use super::bounds::CloseReason;
use super::client_connections::ClientConnection;
use super::service::Service;
use super::switch::{refuse_connections, steer};

/// How long connections whose handshake has begun may take to end it once we are to stop. They cannot be
/// given to another listener: closed before, ours would have them reset.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// Accepts the connections of a listener until its service is to stop.
struct Acceptor {
    listener: TcpListener,
    service: Service,
    /// Until when the last connections are accepted.
    last: Option<Instant>,
}

/// A connection that there is room for.
pub struct Accepted {
    /// As the kernel has it.
    pub stream: TcpStream,
    /// Its other end.
    pub client: SocketAddr,
    /// Holds its room.
    pub open: Open,
}

impl Acceptor {
    /// Nothing is accepted yet.
    fn new(listener: TcpListener, service: Service) -> Acceptor {
        Acceptor {
            listener,
            service,
            last: None,
        }
    }

    /// The next connection that there is room for; none when the service has stopped.
    async fn next(&mut self) -> Option<Accepted> {
        loop {
            match self.accept().await? {
                Ok((stream, client)) => {
                    if let Some(accepted) = self.enter(stream, client) {
                        return Some(accepted);
                    }
                }
                Err(_) if self.last.is_some() => return self.end(),
                Err(error) => {
                    // Out of descriptors, or a connection that was gone before we took it: the next attempt
                    // may do better, but not at once.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn accept(&mut self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let last = match self.last {
            Some(last) => last,
            None => tokio::select! {
                accepted = self.listener.accept() => return Some(accepted),
                _ = self.service.stop.changed() => {
                    self.pass_on();
                    *self.last.insert(Instant::now() + HANDSHAKE)
                }
            },
        };
        match timeout_at(last, self.listener.accept()).await {
            Ok(accepted) => Some(accepted),
            // The last look is at the socket itself, and finds those that wait: closed unaccepted, they
            // would be reset.
            Err(_) => match accept_waiting(&self.listener) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.end(),
                accepted => Some(accepted),
            },
        }
    }

    /// Has the kernel give new connections to the listener that began as this one after the first of ours, if
    /// there is one: a successor's. A process begins to listen after its predecessor, so our own listeners
    /// are the first ones, and while they close, the last ones take their places: that place stays the
    /// successor's, or ends to exist when none of ours is left.
    fn pass_on(&self) {
        if let Err(error) = steer(&self.listener, self.service.limits.borrow().siblings) {
            tracing::debug!(%error, "cannot steer new connections to the successor");
        }
    }

    fn end<T>(&self) -> Option<T> {
        refuse_connections(&SockRef::from(&self.listener));
        None
    }

    /// Finds room for a connection. Without, it is closed, which tells the client: RFC 7766 section 6.2.2 leaves the bound
    /// to us.
    fn enter(&self, stream: TcpStream, client: SocketAddr) -> Option<Accepted> {
        let connections = &self.service.limits.borrow().connections;
        let Some(connection) = connections.open(client.ip(), self.service.worker.now()) else {
            tracing::debug!(%client, "too many connections");
            return None;
        };
        let _ = stream.set_nodelay(true);
        let open = Open::new(connection);
        Some(Accepted { stream, client, open })
    }
}

/// Has each connection served by a task of its own until the service stops; those that are open then end by themselves.
pub(crate) async fn serve_each<S>(
    listener: TcpListener,
    service: Service,
    serve: impl Fn(Accepted, Service) -> S,
) where
    S: Future<Output = ()> + 'static,
{
    let mut acceptor = Acceptor::new(listener, service.clone());
    while let Some(accepted) = acceptor.next().await {
        spawn_local(serve(accepted, service.clone()));
        // Those that had to go for it go now.
        yield_now().await;
    }
}

/// A connection that waits to be accepted, or [`io::ErrorKind::WouldBlock`].
fn accept_waiting(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (socket, client) = SockRef::from(listener).accept()?;
    socket.set_nonblocking(true)?;
    let client = client.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok((TcpStream::from_std(socket.into())?, client))
}

/// A connection among those of all clients; dropped, it is no more.
pub struct Open {
    /// What it holds.
    pub connection: Arc<ClientConnection>,
    /// Why it ended, if that was our decision.
    reason: Option<CloseReason>,
}

impl Open {
    /// One that there is room for.
    pub fn new(connection: Arc<ClientConnection>) -> Open {
        let reason = None;
        Open { connection, reason }
    }

    /// Ends it, for a reason if that was our decision.
    pub fn end(mut self, stream: TcpStream, reason: Option<CloseReason>) {
        if reason == Some(CloseReason::Write) || self.connection.is_closed() {
            // Or the kernel would keep for minutes what the client does not take.
            let _ = stream.set_zero_linger();
        }
        drop(stream);
        self.reason = reason;
    }

    /// Ends it after its stream, for a reason if that was our decision.
    pub fn close(mut self, reason: Option<CloseReason>) {
        self.reason = reason;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.all().close(&self.connection, self.reason);
    }
}
