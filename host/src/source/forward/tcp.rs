//! Plain TCP to an upstream, for the queries of a [`pool`](super::pool). Another transport of streams gets a file like this
//! one.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

/// Connects to an upstream.
pub(super) async fn connect(upstream: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(upstream).await?;
    // Otherwise a query would wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
