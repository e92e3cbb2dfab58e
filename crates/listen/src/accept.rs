//! Accepts connections of clients (RFC 7766), as many as there is room for: plain TCP, and what runs on top
//! of it.

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

/// How long pending TCP handshakes may take during shutdown. They cannot be handed to another listener: if
/// ours closed earlier, they would be reset.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// Accepts the connections of a listener until its service stops.
struct Acceptor {
    listener: TcpListener,
    service: Service,
    /// Until when the last connections are accepted; `None` until the service stops.
    last: Option<Instant>,
}

/// A connection that was admitted.
pub struct Accepted {
    /// The TCP stream.
    pub stream: TcpStream,
    /// The client's address.
    pub client: SocketAddr,
    /// Its slot among all connections.
    pub open: Open,
}

impl Acceptor {
    /// Creates an acceptor for a listener.
    fn new(listener: TcpListener, service: Service) -> Acceptor {
        Acceptor {
            listener,
            service,
            last: None,
        }
    }

    /// Returns the next connection that there is room for; `None` when the service has stopped.
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
                    // No descriptors are left, or the connection was gone before we accepted it. Retry after
                    // a pause.
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
                _ = self.service.leave.changed() => {
                    self.pass_on();
                    *self.last.insert(Instant::now() + HANDSHAKE)
                }
            },
        };
        match timeout_at(last, self.listener.accept()).await {
            Ok(accepted) => Some(accepted),
            // The last look is at the socket itself, for connections not accepted yet: closing the listener
            // would reset them.
            Err(_) => match accept_waiting(&self.listener) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.end(),
                accepted => Some(accepted),
            },
        }
    }

    /// Makes the kernel give new connections to the listener at index `siblings` of the address, if there is
    /// one: the successor's first. A process starts to listen after its predecessor, so our listeners have
    /// the indexes below. When one of ours closes, the last listener moves to its index, so index `siblings`
    /// stays the successor's, or no longer exists once all of ours are closed.
    fn pass_on(&self) {
        if let Err(error) = steer(&self.listener, self.service.limits.borrow().siblings) {
            tracing::debug!(%error, "cannot steer new connections to the successor");
        }
    }

    fn end<T>(&self) -> Option<T> {
        refuse_connections(&SockRef::from(&self.listener));
        None
    }

    /// Admits a connection. If there is no room, it is closed, which the client notices: RFC 7766 section
    /// 6.2.2 leaves the bound to us.
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

/// Serves each connection in its own task until the service stops; open ones then end by themselves.
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
        // Let the connections end that were dismissed to make room.
        yield_now().await;
    }
}

/// Accepts a pending connection without waiting; otherwise fails with [`io::ErrorKind::WouldBlock`].
fn accept_waiting(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (socket, client) = SockRef::from(listener).accept()?;
    socket.set_nonblocking(true)?;
    let client = client.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok((TcpStream::from_std(socket.into())?, client))
}

/// A connection's slot among those of all clients, freed when dropped.
pub struct Open {
    /// The connection.
    pub connection: Arc<ClientConnection>,
    /// Why it ended, if we ended it.
    reason: Option<CloseReason>,
}

impl Open {
    /// Wraps a connection that was admitted.
    pub fn new(connection: Arc<ClientConnection>) -> Open {
        let reason = None;
        Open { connection, reason }
    }

    /// Ends it together with its TCP stream; `reason` is set if we ended it.
    pub fn end(mut self, stream: TcpStream, reason: Option<CloseReason>) {
        if reason == Some(CloseReason::Write) || self.connection.is_closed() {
            // Otherwise the kernel would keep for minutes what the client does not take.
            let _ = stream.set_zero_linger();
        }
        drop(stream);
        self.reason = reason;
    }

    /// Ends it after its stream has ended; `reason` is set if we ended it.
    pub fn close(mut self, reason: Option<CloseReason>) {
        self.reason = reason;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.all().close(&self.connection, self.reason);
    }
}
