//! DNS over TLS (RFC 7858): like [`tcp`](super::tcp), after a handshake.
//!
//! `tcp-read` bounds a handshake as a whole. Until it is complete, the connection counts as quiet since it
//! was accepted: when there is no room, it is closed first.

use std::io;
use std::sync::Arc;

use rustls::{HandshakeKind, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::accept::{Accepted, serve_each};
use super::bounds::CloseReason;
use super::client_connections::ClientConnection;
use super::conversation::converse;
use super::handshake::Handshake;
use super::service::Service;
use crate::dns::Transport;

/// The most bytes encrypted but not sent, besides one record.
const UNSENT: usize = 16 << 10;

/// The most bytes TLS may hold of a connection: an incomplete handshake message or record, decrypted data,
/// and data to be sent.
pub(crate) const TLS_MEMORY: usize = (64 << 10) + (16 << 10) + (18 << 10);

/// Serves connections until the service stops; open ones then end by themselves.
pub async fn listen(listener: TcpListener, service: Service) {
    serve_each(listener, service, serve).await;
}

async fn serve(accepted: Accepted, service: Service) {
    let Accepted { stream, client, open } = accepted;
    // Read now, so that new connections get the current certificate.
    let Some(config) = service.limits.borrow().secured.tls.clone() else {
        return;
    };
    match shake_hands(stream, config, &open.connection).await {
        Ok(mut stream) => {
            let reason = converse(service, Transport::Tls, &mut stream, client, &open.connection).await;
            open.end(stream.into_inner().0, reason);
        }
        Err(reason) => open.close(reason),
    }
}

/// Completes the TLS handshake, unless it takes too long or the room is needed; the error says why, if we
/// ended it.
pub(crate) async fn shake_hands(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    connection: &ClientConnection,
) -> Result<TlsStream<TcpStream>, Option<CloseReason>> {
    let handshake = timeout(
        connection.bounds().read(),
        TlsAcceptor::from(config).accept(stream),
    );
    let outcome: Result<io::Result<_>, _> = tokio::select! {
        outcome = handshake => outcome,
        () = connection.dismissed() => return Err(None),
    };
    let all = connection.all();
    match outcome {
        Ok(Ok(mut stream)) => {
            let session = stream.get_mut().1;
            session.set_buffer_limit(Some(UNSENT));
            if let Some(name) = session.server_name() {
                connection.set_server_name(name);
            }
            all.count(match session.handshake_kind() {
                Some(HandshakeKind::Resumed) => Handshake::Resumed,
                _ => Handshake::Full,
            });
            Ok(stream)
        }
        Ok(Err(error)) => {
            // Usually a client that does not trust the certificate, which it may say in an alert.
            tracing::debug!(%error, "a client's TLS handshake failed");
            all.count(Handshake::Failed);
            Err(None)
        }
        Err(_) => {
            all.count(Handshake::Failed);
            Err(Some(CloseReason::Handshake))
        }
    }
}
