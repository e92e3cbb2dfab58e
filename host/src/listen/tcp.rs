//! Plain TCP (RFC 7766). What lies upon TCP differs in the stream that it makes of a connection before its conversation.

use tokio::net::TcpListener;
use tokio::task::{spawn_local, yield_now};

use super::accept::Acceptor;
use super::conversation::converse;
use super::service::Service;
use crate::dns::Transport;

/// Serves connections until the service stops; those that are open then end by themselves.
pub async fn listen(listener: TcpListener, service: Service) {
    let mut acceptor = Acceptor::new(listener, service.clone());
    while let Some(mut accepted) = acceptor.next().await {
        let service = service.clone();
        spawn_local(async move {
            let (client, connection) = (accepted.client, &accepted.open.connection);
            let reason = converse(service, Transport::Tcp, &mut accepted.stream, client, connection).await;
            accepted.open.end(accepted.stream, reason);
        });
        // Those that had to go for it go now.
        yield_now().await;
    }
}
