//! DNS over plain TCP (RFC 7766). Other transports on top of TCP wrap the stream before the conversation
//! starts.

use tokio::net::TcpListener;

use super::accept::{Accepted, serve_each};
use super::conversation::converse;
use super::service::Service;
use crate::dns::Transport;

/// Serves connections until the service stops; open ones then end by themselves.
pub async fn listen(listener: TcpListener, service: Service) {
    serve_each(listener, service, serve).await;
}

async fn serve(mut accepted: Accepted, service: Service) {
    let (client, connection) = (accepted.client, &accepted.open.connection);
    let reason = converse(service, Transport::Tcp, &mut accepted.stream, client, connection).await;
    accepted.open.end(accepted.stream, reason);
}
