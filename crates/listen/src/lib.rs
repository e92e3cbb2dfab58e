//! Listeners: the addresses that clients ask, over UDP and TCP alike (RFC 9210 section 3).
//!
//! Each worker has sockets of its own for every address, and the kernel spreads clients over them
//! (SO_REUSEPORT). It would spread them over another process's sockets just as silently, so a port is shared only
//! where it is to be handed over. Sockets are made before the worker that will use
//! them: a listener that cannot be bound is an error of the configuration, found while nothing has changed yet.
//!
//! A transport has a file of its own (`udp.rs`, `tcp.rs`) and a case in [`Socket`] and [`Ready`]. What lies upon TCP takes
//! connections from [`accept`] as `tcp.rs` does, makes its stream of each, and leaves the rest to [`conversation`].

mod accept;
mod bind;
mod bounds;
mod buffers;
mod client_connections;
mod conversation;
mod exchange;
#[doc(hidden)]
pub mod framing;
mod https;
mod outbox;
mod quic;
mod secured;
mod service;
mod switch;
mod tcp;
mod tls;
mod udp;
mod unproven;

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};

use dnsweir_config as config;
use dnsweir_os::{datagrams, netstat};
use dnsweir_serve::serve;
use dnsweir_wire::dns;

use crate::config::{Encryption, Listen};
use crate::datagrams::BATCH;
use crate::netstat::Protocol;
use crate::serve::Worker;
use service::Service;

pub use bind::{BindError, CONNECTION_KERNEL_MEMORY, LISTENER_KERNEL_MEMORY, Port, in_use, reaches_nobody};
pub use bounds::CloseReason;
pub use client_connections::{ClientConnections, Handshake, LEAVING, client_network};
pub use service::Limits;
pub use switch::{Switch, steer};

/// Octets of memory for each connection, whether it holds anything or not: its task, its socket's registration, its entry
/// among all.
const CONNECTION_MEMORY: usize = 4 << 10;

/// The same where some may be encrypted.
fn connection_memory(listen: &Listen) -> usize {
    let more = listen.encrypted.iter().map(|(_, encryption)| match encryption {
        Encryption::Tls => tls::TLS_MEMORY,
        Encryption::Https => tls::TLS_MEMORY + https::HTTP_MEMORY,
        Encryption::Quic => tls::TLS_MEMORY + secured::QUIC_MEMORY,
    });
    CONNECTION_MEMORY + more.max().unwrap_or_default()
}

/// Octets of memory of so many connections, those that have yet to go, and those over QUIC whose clients have not shown their addresses.
pub fn connections_memory(listen: &Listen, connections: usize) -> usize {
    let mut listening = listen.encrypted.iter();
    let over_quic = listening.any(|(_, encryption)| *encryption == Encryption::Quic);
    let unproven = usize::from(over_quic) * unproven::UNPROVEN;
    (connections + LEAVING + unproven) * connection_memory(listen)
}

/// Descriptors of one worker's listener on one address: two sockets, and each once more for its switch.
pub const LISTENER_DESCRIPTORS: usize = 4;

/// Octets of memory of one worker's listener on one address.
pub fn listener_memory(listen: &Listen) -> usize {
    let size = usize::from(listen.udp_size);
    datagrams::memory(BATCH, size) + datagrams::outgoing_memory(size) + size
}

/// Where clients ask, and what is spoken there.
pub type Address = (SocketAddr, Option<Encryption>);

/// One worker's sockets for one address.
pub struct Sockets {
    /// What they are bound to.
    pub address: SocketAddr,
    encryption: Option<Encryption>,
    sockets: Vec<Socket>,
    switch: Arc<Switch>,
}

/// A bound socket, by the transport that is spoken on it.
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpListener),
    Tls(TcpListener),
    Https(TcpListener),
    Quic(UdpSocket),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Udp(socket) | Socket::Quic(socket) => socket.as_fd(),
            Socket::Tcp(listener) | Socket::Tls(listener) | Socket::Https(listener) => listener.as_fd(),
        }
    }
}

impl Sockets {
    /// Binds what is spoken on an address, without encryption both protocols. A port of 0 is not supported: the two would
    /// differ. From then on even a [`Port::Own`] is shared with sockets that ask for [`Port::Shared`].
    pub fn bind(
        (address, encryption): (SocketAddr, Option<Encryption>),
        port: Port,
    ) -> Result<Sockets, BindError> {
        let sockets = match encryption {
            None => vec![
                Socket::Udp(bind::datagrams(address, port)?),
                Socket::Tcp(bind::connections(address, port)?),
            ],
            Some(Encryption::Tls) => vec![Socket::Tls(bind::connections(address, port)?)],
            Some(Encryption::Https) => vec![Socket::Https(bind::connections(address, port)?)],
            Some(Encryption::Quic) => vec![Socket::Quic(bind::datagrams(address, port)?)],
        };
        let switch = Switch::new(address, &sockets)
            .map_err(|error| BindError::new(address, Protocol::Udp, port, error))?;
        Ok(Sockets {
            address,
            encryption,
            sockets,
            switch: Arc::new(switch),
        })
    }
}

/// Sockets that are known to the runtime of the worker that will use them: nothing can fail any more.
pub struct Registered {
    address: SocketAddr,
    encryption: Option<Encryption>,
    sockets: Vec<Ready>,
    switch: Arc<Switch>,
}

/// A [`Socket`] that its worker's runtime knows.
enum Ready {
    Udp(udp::Socket),
    Tcp(tokio::net::TcpListener),
    Tls(tokio::net::TcpListener),
    Https(tokio::net::TcpListener),
    Quic(quinn::Endpoint),
}

impl Registered {
    /// Registers sockets with the calling thread's runtime.
    ///
    /// # Errors
    /// When the kernel will not watch so many.
    pub fn new(sockets: Sockets) -> io::Result<Registered> {
        let address = sockets.address;
        let register = |socket| match socket {
            Socket::Udp(socket) => udp::Socket::new(socket, address).map(Ready::Udp),
            Socket::Tcp(listener) => tokio::net::TcpListener::from_std(listener).map(Ready::Tcp),
            Socket::Tls(listener) => tokio::net::TcpListener::from_std(listener).map(Ready::Tls),
            Socket::Https(listener) => tokio::net::TcpListener::from_std(listener).map(Ready::Https),
            Socket::Quic(socket) => quic::endpoint(socket).map(Ready::Quic),
        };
        Ok(Registered {
            address,
            encryption: sockets.encryption,
            sockets: sockets
                .sockets
                .into_iter()
                .map(register)
                .collect::<io::Result<_>>()?,
            switch: sockets.switch,
        })
    }
}

/// A running listener. Dropped: it takes nothing new, and what it took is still answered.
pub struct Listener {
    /// What it listens on, and what is spoken there.
    pub address: (SocketAddr, Option<Encryption>),
    /// Its index as a server, for counters.
    pub server: u16,
    switch: Arc<Switch>,
    /// One for each socket.
    tasks: Vec<JoinHandle<()>>,
}

impl Listener {
    /// Starts to listen, on the worker's own thread. `limits` may change: connections keep those that they began
    /// with. When `stop` becomes true, it takes what its sockets already hold and ends.
    pub fn start(
        worker: &Rc<Worker>,
        registered: Registered,
        server: u16,
        limits: &Rc<RefCell<Limits>>,
        stop: &watch::Receiver<bool>,
    ) -> Listener {
        let service = Service {
            worker: Rc::clone(worker),
            server,
            limits: Rc::clone(limits),
            stop: stop.clone(),
        };
        let listen = |socket| match socket {
            Ready::Udp(socket) => spawn_local(udp::listen(socket, service.clone())),
            Ready::Tcp(listener) => spawn_local(tcp::listen(listener, service.clone())),
            Ready::Tls(listener) => spawn_local(tls::listen(listener, service.clone())),
            Ready::Https(listener) => spawn_local(https::listen(listener, service.clone())),
            Ready::Quic(endpoint) => spawn_local(quic::listen(endpoint, service.clone())),
        };
        Listener {
            address: (registered.address, registered.encryption),
            server,
            switch: registered.switch,
            tasks: registered.sockets.into_iter().map(listen).collect(),
        }
    }

    /// By which another thread can turn it off.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// Resolves when the listener, told to stop, has taken what its sockets held.
    pub async fn ended(&mut self) {
        for task in self.tasks.iter_mut().filter(|task| !task.is_finished()) {
            let _ = task.await;
        }
    }

    /// Whether that is so.
    pub fn has_ended(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
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
