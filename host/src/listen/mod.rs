//! Listeners: the addresses that clients ask, over UDP and TCP alike (RFC 9210 section 3).
//!
//! Each worker has sockets of its own for every address, and the kernel spreads clients over them
//! (SO_REUSEPORT). Sockets are made before the worker that will use them: a listener that cannot be
//! bound is an error of the configuration, found while nothing has changed yet.

mod datagrams;
mod switch;
mod tcp;
mod udp;

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Listen;
use crate::serve::Worker;

pub use switch::{Switch, steer};

/// Octets of kernel buffer we ask for, so that a burst survives a worker that is busy.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Connections that the kernel holds for a worker that is busy.
const BACKLOG: i32 = 1024;

/// One worker's sockets for one address.
pub struct Sockets {
    /// What they are bound to.
    pub address: SocketAddr,
    udp: UdpSocket,
    tcp: TcpListener,
}

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({protocol}): {error}{hint}")]
pub struct BindError {
    address: SocketAddr,
    protocol: &'static str,
    error: io::Error,
    hint: &'static str,
}

impl Sockets {
    /// Binds both protocols of an address. A port of 0 is not supported: the two would differ.
    pub fn bind(address: SocketAddr) -> Result<Sockets, BindError> {
        let error = |protocol| {
            move |error: io::Error| BindError {
                address,
                protocol,
                hint: match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        ": ports below 1024 need root or the capability NET_BIND_SERVICE"
                    }
                    io::ErrorKind::AddrInUse => ": another program listens there",
                    io::ErrorKind::AddrNotAvailable => ": no link of this machine has the address",
                    _ => "",
                },
                error,
            }
        };
        let udp = socket(address, Type::DGRAM, Protocol::UDP).map_err(error("UDP"))?;
        let tcp = socket(address, Type::STREAM, Protocol::TCP).map_err(error("TCP"))?;
        tcp.listen(BACKLOG).map_err(error("TCP"))?;
        Ok(Sockets {
            address,
            udp: udp.into(),
            tcp: tcp.into(),
        })
    }
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // `listen "0.0.0.0" "::"` names two listeners, each with its own family.
        socket.set_only_v6(true)?;
    }
    if kind == Type::DGRAM {
        // The kernel halves what it cannot grant; a small buffer is no reason not to start.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        datagrams::want_destination(&socket, address)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// What listeners need to know beside their sockets.
#[derive(Clone)]
pub struct Limits {
    /// Octets of the largest reply over UDP.
    pub udp_size: usize,
    /// Open connections over all listeners and workers, and how many may be.
    pub connections: Arc<AtomicUsize>,
    /// The most of them there may be.
    pub connections_maximum: usize,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// How long a client may take to read what it is sent.
    pub write: Duration,
    /// How many listeners the process has for each address, one for each worker.
    pub siblings: usize,
}

impl Limits {
    /// The limits of a configuration for so many workers, counting connections in `connections`.
    pub fn new(listen: &Listen, workers: usize, connections: Arc<AtomicUsize>) -> Limits {
        Limits {
            udp_size: usize::from(listen.udp_size),
            connections,
            connections_maximum: listen.tcp_connections,
            idle: listen.tcp_idle,
            write: listen.tcp_write,
            siblings: workers,
        }
    }
}

/// A running listener. Dropped: it takes nothing new, and what it took is still answered.
pub struct Listener {
    /// What it listens on.
    pub address: SocketAddr,
    /// Its index as a server, for counters.
    pub server: u16,
    switch: Arc<Switch>,
    tasks: [JoinHandle<()>; 2],
}

impl Listener {
    /// Starts to listen, on the worker's own thread. When `stop` becomes true, it takes what its sockets
    /// already hold and ends.
    pub fn start(
        worker: &Rc<Worker>,
        sockets: Sockets,
        server: u16,
        limits: &Limits,
        stop: &watch::Receiver<bool>,
    ) -> io::Result<Listener> {
        let address = sockets.address;
        let switch = Arc::new(Switch::new(&sockets)?);
        let udp = udp::Socket::new(sockets.udp, address)?;
        let tcp = tokio::net::TcpListener::from_std(sockets.tcp)?;
        let tasks = [
            tokio::task::spawn_local(udp::listen(
                Rc::clone(worker),
                udp,
                Arc::clone(&switch),
                server,
                limits.udp_size,
                stop.clone(),
            )),
            tokio::task::spawn_local(tcp::listen(
                Rc::clone(worker),
                tcp,
                Arc::clone(&switch),
                server,
                limits.clone(),
                stop.clone(),
            )),
        ];
        Ok(Listener {
            address,
            server,
            switch,
            tasks,
        })
    }
}

impl Listener {
    /// By which another thread can turn it off.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// Resolves when the listener, told to stop, has taken what its sockets held.
    pub async fn ended(&mut self) {
        for task in &mut self.tasks {
            let _ = task.await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        // Replies that are still to come keep the UDP socket open: it must not go on taking queries.
        self.switch.off();
    }
}
