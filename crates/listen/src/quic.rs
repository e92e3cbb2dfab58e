//! DNS over QUIC (RFC 9250): a query and its reply have a stream of their own.
//!
//! A connection counts as one of TCP does, among all and with its memory, and has the same times: `tcp-read` for its handshake
//! and for each query, `tcp-idle` when nothing is under way, `tcp-write` for a reply to be taken.

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
use super::client_connections::{ClientConnection, ClientConnections, Handshake};
use super::exchange::{Asked, Exchange, Over, PIECE, Unanswered};
use super::framing::PREFIX;
use super::secured::WINDOW;
use super::service::Service;
use super::unproven::Unproven;
use crate::dns::query::Query;
use crate::dns::{Transport, u16_at};

/// Why a stream or a connection ends (RFC 9250 section 8.4).
const NO_ERROR: VarInt = VarInt::from_u32(0);
const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(4);
const UNSPECIFIED_ERROR: VarInt = VarInt::from_u32(5);

/// How long a connection may be silent once we are to stop.
const LAST_IDLE: Duration = Duration::from_millis(500);

/// A socket that nothing is taken from yet.
pub fn endpoint(socket: UdpSocket) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
}

/// Serves connections until the service stops; those that are open then end by themselves.
pub async fn listen(endpoint: Endpoint, mut service: Service) {
    let config = service.limits.borrow().secured.quic.clone();
    endpoint.set_server_config(config.map(Arc::unwrap_or_clone));
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => enter(incoming, &service),
                None => return,
            },
            _ = service.stop.changed() => return endpoint.set_server_config(None),
        }
    }
}

/// A connection that has yet to shake hands.
enum Place {
    /// It is one of those of its client.
    Open(Open),
    /// Its client has yet to show that it is where it says: it is nobody's.
    Unproven(Unproven),
}

/// Finds room for a connection.
fn enter(incoming: Incoming, service: &Service) {
    let limits = service.limits.borrow();
    let connections = &limits.connections;
    // Those that begin from now on get the certificate that is in its file from now on.
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
        // Its address may be forged, and that takes another round trip to find out (RFC 9000 section 8.1.2).
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
            // It has answered from where it is, and is one of its client's from now on.
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

/// As over TLS; the error says why if the end was our decision.
async fn shake_hands(
    connecting: Connecting,
    connections: &ClientConnections,
) -> Result<Connection, Option<CloseReason>> {
    let outcome = timeout(connections.bounds().read(), connecting).await;
    // QUIC does not tell whether a session went on.
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

/// The name that the client asked for.
fn server_name(quic: &Connection) -> Option<String> {
    let data: Box<HandshakeData> = quic.handshake_data()?.downcast().ok()?;
    data.server_name
}

/// Answers queries until the connection ends; the result says why, if that was our decision.
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
                // We close it so that this sees it.
                Err(quinn::ConnectionError::LocallyClosed) => return Some(CloseReason::Malformed),
                Err(_) => return None,
            },
            () = &mut dismissed => return None,
            () = sleep_until(due) => {
                // Something may have happened meanwhile, or is still to happen.
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
        // The client has taken it back, or is gone.
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

/// Takes in all that comes on a stream; false: it is too long for a query. None: the client is gone.
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

/// Has the client take a reply of so many octets, and waits until it has. None: it is gone, or was dismissed.
async fn give(asked: &Asked, octets: usize, send: &mut SendStream) -> Option<()> {
    send.write_all(&(octets as u16).to_be_bytes()).await.ok()?;
    let mut left = octets;
    while left > 0 {
        let piece = asked.piece(PIECE)?;
        left -= piece.len();
        send.write_all(&piece).await.ok()?;
    }
    send.finish().ok()?;
    // What is not acknowledged is still kept.
    send.stopped().await.ok()?;
    Some(())
}

/// Leaves the query of all that came on a stream; false: there is none.
fn becomes_query(octets: &mut Vec<u8>) -> bool {
    let is_query = query_in(octets).is_some();
    if is_query {
        octets.drain(..PREFIX);
    }
    is_query
}

/// The query in all that came on a stream: behind its length, under the ID 0 (RFC 9250 section 4.2.1), and without a word
/// about the connection (section 5.5.2).
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
        // Cut off, or with more behind it.
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
