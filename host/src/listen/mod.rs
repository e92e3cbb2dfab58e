//! Listeners: the addresses that clients ask, over UDP and TCP alike (RFC 9210 section 3).
//!
//! Each worker has sockets of its own for every address, and the kernel spreads clients over them
//! (SO_REUSEPORT). So it would over those of another process, which would get its share of the queries and nobody
//! would know: a port is shared only where it is to be handed over. Sockets are made before the worker that will use
//! them: a listener that cannot be bound is an error of the configuration, found while nothing has changed yet.

mod account;
mod accounts;
mod conversation;
mod datagrams;
#[doc(hidden)]
pub mod framing;
mod outbox;
mod switch;
mod tcp;
mod udp;

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Listen;
use crate::netstat::{self, Holder};
use crate::serve::Worker;

pub use accounts::{Accounts, LEAVING, Reason};
pub use switch::{Switch, steer};

/// Octets of kernel buffer we ask for, so that a burst survives a worker that is busy.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Connections that the kernel holds for a worker that is busy.
const BACKLOG: i32 = 1024;

/// Octets of kernel buffer for what a connection is sent, of which the kernel makes twice as many for its own needs.
/// Left alone, it would give megabytes to each client that does not read.
const CONNECTION_SEND_BUFFER: usize = 32 << 10;

/// The same for what a connection receives.
const CONNECTION_RECEIVE_BUFFER: usize = 16 << 10;

/// Octets of kernel memory that a connection may take, at most.
pub const CONNECTION_KERNEL_MEMORY: usize = 2 * (CONNECTION_SEND_BUFFER + CONNECTION_RECEIVE_BUFFER);

/// Octets of memory for each connection, whether it holds anything or not: its task, its socket's registration, its page
/// of the book.
pub const CONNECTION_MEMORY: usize = 4 << 10;

/// Octets of kernel memory of one worker's listener on one address.
pub const LISTENER_KERNEL_MEMORY: usize = 2 * RECEIVE_BUFFER;

/// Octets of memory of one worker's listener on one address.
pub fn listener_memory(listen: &Listen) -> usize {
    datagrams::memory(usize::from(listen.udp_size)) + usize::from(listen.udp_size)
}

/// One worker's sockets for one address.
pub struct Sockets {
    /// What they are bound to.
    pub address: SocketAddr,
    udp: UdpSocket,
    tcp: TcpListener,
    switch: Arc<Switch>,
}

/// Whose a port may be beside ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Nobody's: whoever is bound to it already is in the way.
    Own,
    /// That of our other workers, and of a process of our user that hands it over. The kernel lets no other user
    /// share it.
    Shared,
}

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({protocol}): {error}{hint}")]
pub struct BindError {
    address: SocketAddr,
    protocol: &'static str,
    error: io::Error,
    hint: String,
}

impl Sockets {
    /// Binds both protocols of an address. A port of 0 is not supported: the two would differ. A
    /// [`Port::Own`] is shared with whoever asks for [`Port::Shared`] from then on.
    pub fn bind(address: SocketAddr, port: Port) -> Result<Sockets, BindError> {
        let error = |protocol: Protocol| {
            let (protocol, name) = match protocol {
                Protocol::UDP => (netstat::Protocol::Udp, "UDP"),
                _ => (netstat::Protocol::Tcp, "TCP"),
            };
            move |error: io::Error| BindError {
                address,
                protocol: name,
                hint: match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        ": ports below 1024 need root or the capability NET_BIND_SERVICE".into()
                    }
                    io::ErrorKind::AddrInUse => in_use(address, protocol, port),
                    io::ErrorKind::AddrNotAvailable => ": no link of this machine has the address".into(),
                    _ => String::new(),
                },
                error,
            }
        };
        let udp = match socket(address, Type::DGRAM, Protocol::UDP, port) {
            // Replies still to come keep a socket of an address that we left.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_ours(address) => {
                socket(address, Type::DGRAM, Protocol::UDP, Port::Shared)
            }
            bound => bound,
        };
        let udp: UdpSocket = udp.map_err(error(Protocol::UDP))?.into();
        let tcp = socket(address, Type::STREAM, Protocol::TCP, port).map_err(error(Protocol::TCP))?;
        tcp.listen(BACKLOG).map_err(error(Protocol::TCP))?;
        let tcp = tcp.into();
        let switch = Switch::new(address, &udp, &tcp).map_err(error(Protocol::UDP))?;
        Ok(Sockets {
            address,
            udp,
            tcp,
            switch: Arc::new(switch),
        })
    }
}

fn is_ours(address: SocketAddr) -> bool {
    netstat::holder(address, netstat::Protocol::Udp) == Holder::Ourselves
}

/// What there is to say about a port that is in use.
pub fn in_use(address: SocketAddr, protocol: netstat::Protocol, port: Port) -> String {
    let holder = netstat::holder(address, protocol);
    let own = netstat::own_user();
    let hint = match &holder {
        Holder::Other { process: None, .. } | Holder::Unseen => {
            format!(" (as root, `ss -Hlnp 'sport = :{}'` says which)", address.port())
        }
        _ => String::new(),
    };
    match (&holder, port) {
        (Holder::Other { user, .. }, Port::Shared) if *user != own => format!(
            ": {holder} listens there{hint}, and a port is handed over among processes of one user only; this one's is {own}"
        ),
        (_, Port::Shared) => format!(": {holder} listens there{hint} and does not hand it over"),
        (_, Port::Own) => format!(": {holder} listens there{hint}"),
    }
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol, port: Port) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if kind == Type::STREAM {
        // Connections of an earlier process that are still closing are not in the way. With datagrams it would
        // let any user take the port.
        socket.set_reuse_address(true)?;
    }
    socket.set_reuse_port(port == Port::Shared)?;
    if address.is_ipv6() {
        // `listen "0.0.0.0" "::"` names two listeners, each with its own family.
        socket.set_only_v6(true)?;
    }
    if kind == Type::DGRAM {
        // The kernel halves what it cannot grant; a small buffer is no reason not to start.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        datagrams::want_destination(&socket, address)?;
    }
    if kind == Type::STREAM {
        // Those that are accepted inherit it.
        socket.set_send_buffer_size(CONNECTION_SEND_BUFFER)?;
        socket.set_recv_buffer_size(CONNECTION_RECEIVE_BUFFER)?;
    }
    socket.bind(&address.into())?;
    // Bound alone, so nobody else is, and nobody else will be who asks for that: of two processes, the kernel lets
    // one come here. Our other workers may join now.
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// What listeners need to know beside their sockets.
#[derive(Clone)]
pub struct Limits {
    /// Octets of the largest reply over UDP.
    pub udp_size: usize,
    /// The book of all connections.
    pub accounts: Arc<Accounts>,
    /// How many listeners the process has for each address, one for each worker.
    pub siblings: usize,
}

impl Limits {
    /// The limits of a configuration for so many workers.
    pub fn new(listen: &Listen, workers: usize, accounts: Arc<Accounts>) -> Limits {
        Limits {
            udp_size: usize::from(listen.udp_size),
            accounts,
            siblings: workers,
        }
    }
}

/// Sockets that are known to the runtime of the worker that will use them: nothing can fail any more.
pub struct Registered {
    address: SocketAddr,
    udp: udp::Socket,
    tcp: tokio::net::TcpListener,
    switch: Arc<Switch>,
}

impl Registered {
    /// Registers sockets with the calling thread's runtime.
    ///
    /// # Errors
    /// When the kernel will not watch so many.
    pub fn new(sockets: Sockets) -> io::Result<Registered> {
        Ok(Registered {
            address: sockets.address,
            udp: udp::Socket::new(sockets.udp, sockets.address)?,
            tcp: tokio::net::TcpListener::from_std(sockets.tcp)?,
            switch: sockets.switch,
        })
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
    /// Starts to listen, on the worker's own thread. `limits` may change: connections keep those that they began
    /// with. When `stop` becomes true, it takes what its sockets already hold and ends.
    pub fn start(
        worker: &Rc<Worker>,
        sockets: Registered,
        server: u16,
        limits: &Rc<RefCell<Limits>>,
        stop: &watch::Receiver<bool>,
    ) -> Listener {
        let Registered {
            address,
            udp,
            tcp,
            switch,
        } = sockets;
        let tasks = [
            tokio::task::spawn_local(udp::listen(
                Rc::clone(worker),
                udp,
                Arc::clone(&switch),
                server,
                Rc::clone(limits),
                stop.clone(),
            )),
            tokio::task::spawn_local(tcp::listen(
                Rc::clone(worker),
                tcp,
                Arc::clone(&switch),
                server,
                Rc::clone(limits),
                stop.clone(),
            )),
        ];
        Listener {
            address,
            server,
            switch,
            tasks,
        }
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
