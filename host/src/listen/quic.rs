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
    Connecting, Connection, Endpoint, EndpointConfig, Incoming, ReadToEndError, RecvStream, SendStream,
    TokioRuntime, VarInt,
};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until, timeout};

use super::accept::Open;
use super::bounds::CloseReason;
use super::client_connections::{ClientConnection, Handshake};
use super::exchange::{Exchange, Held, Unanswered};
use super::secured::WINDOW;
use super::service::Service;
use crate::dns::query::Query;
use crate::dns::{Transport, u16_at};

/// Why a stream or a connection ends (RFC 9250 section 8.4).
const NO_ERROR: VarInt = VarInt::from_u32(0);
const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(4);
const UNSPECIFIED_ERROR: VarInt = VarInt::from_u32(5);

/// Octets that a query counts as while it is under way, beside its reply.
const QUERY_OCTETS: usize = WINDOW as usize;

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

/// Finds room for a connection.
fn enter(incoming: Incoming, service: &Service) {
    let limits = service.limits.borrow();
    let connections = &limits.connections;
    // Who has not been seen at his address may have forged it: where there is not much room, that comes first (RFC 9000
    // section 8.1).
    if !incoming.remote_address_validated()
        && connections.connections() >= connections.connections_maximum() / 2
    {
        let _ = incoming.retry();
        return;
    }
    // Those that begin from now on get the certificate that is in its file from now on.
    let Some(config) = limits.secured.quic.clone() else {
        return incoming.refuse();
    };
    let client = incoming.remote_address();
    let Some(connection) = connections.open(client.ip(), service.worker.now()) else {
        tracing::debug!(%client, "too many connections");
        return incoming.refuse();
    };
    let open = Open::new(connection);
    match incoming.accept_with(config) {
        Ok(connecting) => drop(spawn_local(serve(connecting, client, open, service.clone()))),
        Err(error) => tracing::debug!(%error, "a client's first datagram cannot be read"),
    }
}

async fn serve(connecting: Connecting, client: SocketAddr, open: Open, service: Service) {
    let reason = match shake_hands(connecting, &open.connection).await {
        Ok(quic) => {
            let reason = converse(&quic, service, client, &open.connection).await;
            quic.close(NO_ERROR, b"");
            reason
        }
        Err(reason) => reason,
    };
    open.close(reason);
}

/// As over TLS.
async fn shake_hands(
    connecting: Connecting,
    connection: &ClientConnection,
) -> Result<Connection, Option<CloseReason>> {
    let outcome = tokio::select! {
        outcome = timeout(connection.bounds().read(), connecting) => outcome,
        () = connection.dismissed() => return Err(None),
    };
    let all = connection.all();
    match outcome {
        Ok(Ok(quic)) => {
            let data = quic.handshake_data().and_then(|data| data.downcast().ok());
            let data: Option<Box<HandshakeData>> = data;
            if let Some(name) = data.and_then(|data| data.server_name) {
                connection.set_server_name(&name);
            }
            // QUIC does not tell whether a session went on.
            all.count(Handshake::Unknown);
            Ok(quic)
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a client's handshake over QUIC failed");
            all.count(Handshake::Failed);
            Err(None)
        }
        Err(_) => {
            all.count(Handshake::Failed);
            Err(Some(CloseReason::Handshake))
        }
    }
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
    let held = Held::new(&exchange, QUERY_OCTETS);
    let bounds = exchange.connection.bounds();
    let octets = match timeout(bounds.read(), recv.read_to_end(WINDOW as usize)).await {
        Ok(Ok(octets)) => octets,
        // The client has taken it back, or is gone.
        Ok(Err(ReadToEndError::Read(_))) => return,
        Ok(Err(ReadToEndError::TooLong)) | Err(_) => {
            let _ = recv.stop(EXCESSIVE_LOAD);
            let _ = send.reset(EXCESSIVE_LOAD);
            return;
        }
    };
    // RFC 9250 section 4.3.3.
    let Some(message) = query_in(&octets) else {
        return quic.close(PROTOCOL_ERROR, b"not a query");
    };
    match exchange.ask(message).await {
        Ok(reply) => {
            let _held = held.becomes_reply(reply.len());
            let sent = async {
                send.write_all(&(reply.len() as u16).to_be_bytes()).await.ok()?;
                send.write_all(&reply).await.ok()?;
                send.finish().ok()?;
                // What is not acknowledged is still kept.
                send.stopped().await.ok()
            };
            let sent = timeout(bounds.write(), sent).await;
            if sent.is_err() {
                let _ = send.reset(EXCESSIVE_LOAD);
            }
        }
        Err(Unanswered::Malformed) => quic.close(PROTOCOL_ERROR, b"not a query"),
        Err(Unanswered::Dropped) => drop(send.reset(UNSPECIFIED_ERROR)),
    }
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
