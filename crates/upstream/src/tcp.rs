//! Plain TCP to an upstream, for the queries of a [`pool`](super::pool). Each stream transport has such a
//! file.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::failure::Fault;

/// Connects to an upstream.
pub(super) async fn connect(upstream: SocketAddr) -> Result<TcpStream, Fault> {
    let connected = TcpStream::connect(upstream).await;
    let stream = connected.map_err(|error| Fault::of_network(&error))?;
    // Otherwise a query would wait until the one before is acknowledged.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
