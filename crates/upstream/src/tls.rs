//! TLS to an upstream (RFC 7858), for the queries of a [`pool`](super::pool).

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::Fault;
use super::tcp;
use super::upstream::Upstream;
use dnsweir_config::tls::{Problem, error_in};

/// Connects to an upstream and verifies its identity.
pub(super) async fn connect(upstream: Arc<Upstream>) -> Result<TlsStream<TcpStream>, Fault> {
    let Some(secured) = &upstream.secured else {
        return Err(Fault::Tls(Problem::Protocol));
    };
    let (config, name) = secured.client_config()?;
    let stream = tcp::connect(upstream.address).await?;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => {
            let session = stream.get_ref().1;
            let chain = session.peer_certificates();
            secured.connected(session.handshake_kind(), chain.and_then(|chain| chain.first()));
            Ok(stream)
        }
        Err(error) => Err(match error_in(&error) {
            Some(error) => secured.failed(error),
            None => Fault::of_network(&error),
        }),
    }
}
