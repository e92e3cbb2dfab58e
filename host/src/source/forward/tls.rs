//! TLS to an upstream (RFC 7858), for the queries of a [`pool`](super::pool).

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::failure::Fault;
use super::tcp;
use super::upstream::Upstream;
use crate::tls::Problem;

/// Connects to an upstream, and makes sure that it is the right one.
pub(super) async fn connect(upstream: Arc<Upstream>) -> Result<TlsStream<TcpStream>, Fault> {
    let Some(secured) = &upstream.secured else {
        return Err(Fault::Tls(Problem::Protocol));
    };
    let (connector, name) = secured.connector()?;
    let stream = tcp::connect(upstream.address).await?;
    match connector.connect(name, stream).await {
        Ok(stream) => {
            secured.connected(stream.get_ref().1);
            Ok(stream)
        }
        Err(error) => Err(secured.failed(&error)),
    }
}
