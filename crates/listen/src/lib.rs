//! Listeners: the addresses that clients query, over both UDP and TCP (RFC 9210 section 3).
//!
//! Each worker has its own sockets for every address, and the kernel spreads clients over them
//! (SO_REUSEPORT). It would spread them over another process's sockets just as silently, so a port is shared
//! only for a handover. Sockets are bound before the worker that uses them starts: a listener that cannot be
//! bound is a configuration error, found before anything has changed.
//!
//! Each transport has its own file (`udp.rs`, `tcp.rs`) and a case in [`Socket`] and [`Ready`]. Transports on
//! top of TCP take connections from [`accept`] as `tcp.rs` does, wrap each in their own stream, and leave the
//! rest to [`conversation`].

mod accept;
mod bind;
mod bounds;
mod buffers;
mod client_connections;
mod conversation;
mod exchange;
#[doc(hidden)]
pub mod framing;
mod handshake;
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
mod write_through;

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
use crate::netstat::{Holder, Protocol};
use crate::serve::Worker;
use service::Service;

pub use bind::{BindError, CONNECTION_KERNEL_MEMORY, LISTENER_KERNEL_MEMORY, Port, in_use, reaches_nobody};
pub use bounds::CloseReason;
pub use client_connections::{ClientConnections, LEAVING, client_network};
pub use handshake::Handshake;
pub use service::Limits;
pub use switch::{Switch, steer};

/// Bytes of memory per connection, even if it holds nothing: its task, its socket's registration, its table
/// entry.
const CONNECTION_MEMORY: usize = 4 << 10;

/// The same, if some listeners are encrypted.
fn connection_memory(listen: &Listen) -> usize {
    let more = listen.encrypted.iter().map(|(_, encryption)| match encryption {
        Encryption::Tls => tls::TLS_MEMORY,
        Encryption::Https => tls::TLS_MEMORY + https::HTTP_MEMORY,
        Encryption::Quic => tls::TLS_MEMORY + secured::QUIC_MEMORY,
    });
    CONNECTION_MEMORY + more.max().unwrap_or_default()
}

/// Returns the bytes of memory for this many connections, plus those that are still closing, and QUIC
/// handshakes whose clients have not proven their addresses.
pub fn connections_memory(listen: &Listen, connections: usize) -> usize {
    let mut listening = listen.encrypted.iter();
    let over_quic = listening.any(|(_, encryption)| *encryption == Encryption::Quic);
    let unproven = usize::from(over_quic) * unproven::UNPROVEN;
    (connections + LEAVING + unproven) * connection_memory(listen)
}

/// Descriptors of one worker's listener on one address: two sockets, and a duplicate of each for its switch.
pub const LISTENER_DESCRIPTORS: usize = 4;

/// Returns the bytes of memory of one worker's listener on one address.
pub fn listener_memory(listen: &Listen) -> usize {
    let size = usize::from(listen.udp_size);
    datagrams::memory(BATCH, size) + datagrams::outgoing_memory(size) + size
}

/// An address to listen on, and its encryption.
pub type Address = (SocketAddr, Option<Encryption>);

/// One worker's sockets for one address.
pub struct Sockets {
    /// The address they are bound to.
    pub address: SocketAddr,
    encryption: Option<Encryption>,
    sockets: Vec<Socket>,
    switch: Arc<Switch>,
}

/// A bound socket, by transport.
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
    /// Binds the sockets of an address: both UDP and TCP if there is no encryption. Port 0 is not supported:
    /// the two would get different ports. Once bound, even a [`Port::Own`] is shared with sockets that ask
    /// for [`Port::Shared`].
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

    /// Binds sockets whose packets the kernel drops. To clients it seems that packets are lost, which they send again;
    /// where nobody listens, they are refused and give up. `None` if that is not possible, or another process listens
    /// there, too: it would lose its share of the packets.
    pub fn bind_silent(address: Address) -> Option<Sockets> {
        let protocol = match address.1 {
            None | Some(Encryption::Quic) => Protocol::Udp,
            Some(Encryption::Tls | Encryption::Https) => Protocol::Tcp,
        };
        if netstat::holder(address.0, protocol) != Holder::Ourselves {
            return None;
        }
        let sockets = Sockets::bind(address, Port::Shared).ok()?;
        sockets.switch.silence().ok()?;
        Some(sockets)
    }
}

/// Sockets registered with the runtime of the worker that will use them: nothing can fail any more.
pub struct Registered {
    address: SocketAddr,
    encryption: Option<Encryption>,
    sockets: Vec<Ready>,
    switch: Arc<Switch>,
}

/// A [`Socket`] registered with its worker's runtime.
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
    /// When the kernel refuses to watch that many descriptors.
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

/// A running listener. When dropped, it accepts nothing new, but still answers what it accepted.
pub struct Listener {
    /// The address it listens on, and its encryption.
    pub address: (SocketAddr, Option<Encryption>),
    /// Its index as a server, for counters.
    pub server: u16,
    switch: Arc<Switch>,
    /// Set to true to end its tasks.
    leave: watch::Sender<bool>,
    /// One task per socket.
    tasks: Vec<JoinHandle<()>>,
}

impl Listener {
    /// Starts to listen, on the worker's own thread. `limits` may change; open connections keep their TLS
    /// settings. When `stop` becomes true, they end once they are idle.
    pub fn start(
        worker: &Rc<Worker>,
        registered: Registered,
        server: u16,
        limits: &Rc<RefCell<Limits>>,
        stop: &watch::Receiver<bool>,
    ) -> Listener {
        let (leave, leaving) = watch::channel(false);
        let service = Service {
            worker: Rc::clone(worker),
            server,
            limits: Rc::clone(limits),
            stop: stop.clone(),
            leave: leaving,
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
            leave,
            tasks: registered.sockets.into_iter().map(listen).collect(),
        }
    }

    /// Returns the switch by which another thread can turn it off.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// Has it accept nothing new, drain its sockets and end. Open connections stay.
    pub fn leave(&self) {
        self.leave.send_replace(true);
    }

    /// Resolves when the listener, after [`Listener::leave`], has drained its sockets.
    pub async fn ended(&mut self) {
        for task in self.tasks.iter_mut().filter(|task| !task.is_finished()) {
            let _ = task.await;
        }
    }

    /// Returns whether [`Listener::ended`] would resolve.
    pub fn has_ended(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        // Pending replies keep the UDP socket open: it must not go on receiving queries.
        self.switch.off();
    }
}
