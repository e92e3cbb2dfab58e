//! DNS over QUIC (RFC 9250): each query and its reply have their own stream.
//!
//! A connection counts like a TCP connection, also in memory, and has the same timeouts: `tcp-read` for its
//! handshake and for each query, `tcp-idle` when nothing is in progress, `tcp-write` for the client to take a
//! reply.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::HandshakeData;
use quinn::{
    Connecting, Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, TokioRuntime, VarInt,
};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until, timeout};

use super::accept::Open;
use super::bounds::CloseReason;
use super::client_connections::{ClientConnection, ClientConnections};
use super::exchange::{Asked, Exchange, Over, PIECE, Unanswered};
use super::framing::PREFIX;
use super::handshake::Handshake;
use super::secured::WINDOW;
use super::service::Service;
use super::unproven::Unproven;
use crate::dns::query::Query;
use crate::dns::{Transport, u16_at};

/// Error codes that end a stream or a connection (RFC 9250 section 8.4).
const NO_ERROR: VarInt = VarInt::from_u32(0);
const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(4);
const UNSPECIFIED_ERROR: VarInt = VarInt::from_u32(5);

/// How long a connection may be silent during shutdown.
const LAST_IDLE: Duration = Duration::from_millis(500);

/// Creates an endpoint that accepts nothing yet.
pub fn endpoint(socket: UdpSocket) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
}

/// Serves connections until the service stops; open ones then end by themselves.
pub async fn listen(endpoint: Endpoint, mut service: Service) {
    let config = service.limits.borrow().secured.quic.clone();
    endpoint.set_server_config(config.map(Arc::unwrap_or_clone));
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => enter(incoming, &service),
                None => return,
            },
            _ = service.leave.changed() => return endpoint.set_server_config(None),
        }
    }
}

/// How a connection counts during its handshake.
enum Place {
    /// As one of its client's connections.
    Open(Open),
    /// As no client's: its address is not proven yet.
    Unproven(Unproven),
}

/// Admits a connection, if there is room.
fn enter(incoming: Incoming, service: &Service) {
    let limits = service.limits.borrow();
    let connections = &limits.connections;
    // Read now, so that new connections get the current certificate.
    let Some(config) = limits.secured.quic.clone() else {
        return incoming.refuse();
    };
    let client = incoming.remote_address();
    let place = if incoming.remote_address_validated() {
        let Some(connection) = connections.open(client.ip(), service.worker.now()) else {
            tracing::debug!(%client, "too many connections");
            return incoming.refuse();
        };
        Place::Open(Open::new(connection))
    } else if let Some(unproven) = connections.begin_unproven() {
        Place::Unproven(unproven)
    } else {
        // Its address may be forged; a Retry proves it, at the cost of a round trip (RFC 9000 section 8.1.2).
        connections.count(Handshake::Retried);
        let _ = incoming.retry();
        return;
    };
    match incoming.accept_with(config) {
        Ok(connecting) => drop(spawn_local(serve(connecting, client, place, service.clone()))),
        Err(error) => tracing::debug!(%error, "a client's first datagram cannot be read"),
    }
}

async fn serve(connecting: Connecting, client: SocketAddr, place: Place, service: Service) {
    let connections = Arc::clone(&service.limits.borrow().connections);
    let shaken = shake_hands(connecting, &connections);
    let (shaken, open) = match place {
        Place::Open(open) => {
            let shaken = tokio::select! {
                shaken = shaken => shaken,
                () = open.connection.dismissed() => Err(None),
            };
            (shaken, Some(open))
        }
        Place::Unproven(unproven) => {
            let shaken = shaken.await;
            drop(unproven);
            // The handshake has proven the address, so the connection now counts as its client's.
            let open = shaken
                .is_ok()
                .then(|| connections.open(client.ip(), service.worker.now()));
            (shaken, open.flatten().map(Open::new))
        }
    };
    let reason = match (&shaken, &open) {
        (Ok(quic), Some(open)) => {
            if let Some(name) = server_name(quic) {
                open.connection.set_server_name(&name);
            }
            let reason = converse(quic, service, client, &open.connection).await;
            quic.close(NO_ERROR, b"");
            reason
        }
        (Ok(quic), None) => {
            tracing::debug!(%client, "too many connections");
            return quic.close(EXCESSIVE_LOAD, b"");
        }
        (Err(reason), _) => *reason,
    };
    if let Some(open) = open {
        open.close(reason);
    }
}

/// Completes the handshake, as over TLS; the error says why, if we ended it.
async fn shake_hands(
    connecting: Connecting,
    connections: &ClientConnections,
) -> Result<Connection, Option<CloseReason>> {
    let outcome = timeout(connections.bounds().read(), connecting).await;
    // QUIC does not say whether a session was resumed.
    connections.count(match &outcome {
        Ok(Ok(_)) => Handshake::Unknown,
        _ => Handshake::Failed,
    });
    match outcome {
        Ok(Ok(quic)) => Ok(quic),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a client's handshake over QUIC failed");
            Err(None)
        }
        Err(_) => Err(Some(CloseReason::Handshake)),
    }
}

/// Returns the SNI that the client sent.
fn server_name(quic: &Connection) -> Option<String> {
    let data: Box<HandshakeData> = quic.handshake_data()?.downcast().ok()?;
    data.server_name
}

/// Answers queries until the connection ends. Returns why, if we ended it.
async fn converse(
    quic: &Connection,
    mut service: Service,
    client: SocketAddr,
    connection: &Arc<ClientConnection>,
) -> Option<CloseReason> {
    let exchange = Exchange::new(&service, Transport::Quic, client, Arc::clone(connection));
    let exchange = Rc::new(exchange);
    let _over = Over(&exchange);
    let mut dismissed = pin!(connection.dismissed());
    let mut stopping = pin!(async { drop(service.stop.wait_for(|stopping| *stopping).await) });
    let mut is_stopping = false;
    loop {
        let bounds = connection.bounds();
        let idle = if is_stopping {
            LAST_IDLE.min(bounds.idle())
        } else {
            bounds.idle()
        };
        let (due, reason) = exchange.due(idle, bounds.write());
        tokio::select! {
            stream = quic.accept_bi() => match stream {
                Ok((send, recv)) => {
                    drop(spawn_local(answer(Rc::clone(&exchange), quic.clone(), send, recv)));
                }
                // We closed it from a query's task, for this to see.
                Err(quinn::ConnectionError::LocallyClosed) => return Some(CloseReason::Malformed),
                Err(_) => return None,
            },
            () = &mut dismissed => return None,
            () = sleep_until(due) => {
                // Something may have happened meanwhile, or no timeout applied.
                if reason.is_some() && exchange.due(idle, bounds.write()).0 <= Instant::now() {
                    return reason;
                }
            }
            () = &mut stopping, if !is_stopping => is_stopping = true,
        }
    }
}

/// Answers the query of one stream.
async fn answer(exchange: Rc<Exchange>, quic: Connection, mut send: SendStream, mut recv: RecvStream) {
    let asked = Asked::new(&exchange);
    let bounds = exchange.connection.bounds();
    match timeout(bounds.read(), receive(&asked, &mut recv)).await {
        Ok(Some(true)) => {}
        // The client has reset the stream, or is gone.
        Ok(None) => return,
        Ok(Some(false)) | Err(_) => {
            let _ = recv.stop(EXCESSIVE_LOAD);
            let _ = send.reset(EXCESSIVE_LOAD);
            return;
        }
    }
    match asked.ask(becomes_query).await {
        Ok(answer) => {
            let asked = asked.replied();
            let sent = timeout(bounds.write(), give(&asked, answer.octets, &mut send)).await;
            if sent.is_err() {
                let _ = send.reset(EXCESSIVE_LOAD);
            }
        }
        // RFC 9250 section 4.3.3.
        Err(Unanswered::Malformed) => quic.close(PROTOCOL_ERROR, b"not a query"),
        Err(Unanswered::Dropped) => drop(send.reset(UNSPECIFIED_ERROR)),
    }
}

/// Reads a whole stream; false if it is too long for a query, `None` if the client is gone.
async fn receive(asked: &Asked, recv: &mut RecvStream) -> Option<bool> {
    let mut length = 0;
    while let Some(chunk) = recv.read_chunk(WINDOW as usize, true).await.ok()? {
        length += chunk.bytes.len();
        if length > WINDOW as usize {
            return Some(false);
        }
        asked.receive(&chunk.bytes).then_some(())?;
    }
    Some(true)
}

/// Sends a reply of `octets` bytes, and waits until the client has it; `None` if it is gone or was dismissed.
async fn give(asked: &Asked, octets: usize, send: &mut SendStream) -> Option<()> {
    send.write_all(&(octets as u16).to_be_bytes()).await.ok()?;
    let mut left = octets;
    while left > 0 {
        let piece = asked.piece(PIECE)?;
        left -= piece.len();
        send.write_all(&piece).await.ok()?;
    }
    send.finish().ok()?;
    // Until it is acknowledged, it is still kept.
    send.stopped().await.ok()?;
    Some(())
}

/// Reduces the bytes of a stream to the query in them; false if there is none.
fn becomes_query(octets: &mut Vec<u8>) -> bool {
    let is_query = query_in(octets).is_some();
    if is_query {
        octets.drain(..PREFIX);
    }
    is_query
}

/// Returns the query in the bytes of a stream: after its length, with ID 0 (RFC 9250 section 4.2.1), and
/// without an edns-tcp-keepalive option (section 5.5.2).
fn query_in(octets: &[u8]) -> Option<&[u8]> {
    let (length, message) = octets.split_first_chunk()?;
    let whole = usize::from(u16::from_be_bytes(*length)) == message.len() && message.len() >= 2;
    let is_of_tcp = |query: Query<'_>| query.edns.is_some_and(|edns| edns.keepalive);
    (whole && u16_at(message, 0) == 0 && !Query::parse(message).is_ok_and(is_of_tcp)).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_query_and_nothing_else() {
        let message = [&[0; 2][..], b"\x01\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01"].concat();
        let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
        assert_eq!(query_in(&framed), Some(&message[..]));
        // Truncated, or with trailing bytes.
        for length in 0..framed.len() {
            assert_eq!(query_in(&framed[..length]), None);
        }
        assert_eq!(query_in(&[&framed[..], b"x"].concat()), None);
        let mut with_id = framed.clone();
        with_id[3] = 1;
        assert_eq!(query_in(&with_id), None);
        // An OPT record with edns-tcp-keepalive.
        let mut with_keepalive = [&message[..], &[0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 4, 0, 11, 0, 0]].concat();
        with_keepalive[11] = 1;
        let framed = [&(with_keepalive.len() as u16).to_be_bytes()[..], &with_keepalive].concat();
        assert_eq!(query_in(&framed), None);
    }
}
