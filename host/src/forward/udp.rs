//! One query over UDP, on a socket of its own.
//!
//! What an attacker off the path has to guess is the ID and the port (RFC 5452 section 9.2), so both are
//! new for every attempt. The port is the kernel's choice, on purpose: Linux takes it evenly from
//! `ip_local_port_range` (28 232 ports unless the operator widened it; measured, no neighbour more likely
//! than another), while ports of our own choice would have to steer clear of `ip_local_reserved_ports`,
//! NodePorts and whatever is about to listen.
//!
//! The don't-fragment bit is the kernel's default as well: it is set, and a query that could need fragments
//! is sent over TCP in the first place ([`Query::fits_datagram`]).

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::failure::Fault;
use super::message::{Query, Rejection, Reply};

/// Room for any datagram, so that none arrives cut.
pub(super) const LARGEST: usize = 65_535;

/// Sends `query` to `to` and waits for its reply, for as long as the caller lets it. `buffer` is borrowed
/// only while a datagram is looked at. Dropping the future closes the socket, and nothing else remains.
pub(super) async fn exchange(
    to: SocketAddr,
    query: &Query,
    buffer: &RefCell<Vec<u8>>,
    strays: &AtomicU64,
) -> Result<Reply, Fault> {
    let id = rand::random();
    let socket = send(to, &query.with_id(id))?;
    loop {
        let ready = socket.ready(Interest::READABLE | Interest::ERROR).await;
        if ready.map_err(|error| Fault::of_network(&error))?.is_error() {
            // ICMP said that nobody listens. That alone does not make a socket readable.
            let error = socket
                .take_error()
                .ok()
                .flatten()
                .unwrap_or_else(|| io::ErrorKind::Other.into());
            return Err(Fault::of_network(&error));
        }
        let mut buffer = buffer.borrow_mut();
        match socket.try_recv_from(&mut buffer) {
            // A connected socket receives from its peer alone, but for what came in just before it was
            // connected.
            Ok((_, from)) if (from.ip(), from.port()) != (to.ip(), to.port()) => {}
            Ok((length, _)) => match query.accept(id, &buffer[..length]) {
                Ok(reply) => return Ok(reply),
                Err(Rejection::Malformed) => return Err(Fault::Malformed),
                Err(Rejection::Stray) => {}
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(Fault::of_network(&error)),
        }
        // RFC 5452 section 9.1: what does not match is dropped, and the right one may yet come.
        strays.fetch_add(1, Relaxed);
    }
}

/// A socket connected to `to` that has sent `message`. An empty socket's send buffer has room, so this does
/// not wait; it is done before the event loop knows the socket, which saves a turn of it.
fn send(to: SocketAddr, message: &[u8]) -> Result<UdpSocket, Fault> {
    let local = |error: io::Error| Fault::Local(error.kind());
    let socket = Socket::new(
        Domain::for_address(to),
        Type::DGRAM.nonblocking(),
        Some(Protocol::UDP),
    )
    .map_err(local)?;
    socket
        .connect(&to.into())
        .map_err(|error| Fault::of_network(&error))?;
    socket.send(message).map_err(|error| Fault::of_network(&error))?;
    UdpSocket::from_std(socket.into()).map_err(local)
}
