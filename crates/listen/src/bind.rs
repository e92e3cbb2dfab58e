//! Binding sockets: whose a port may be beside ours, and what is wrong when it cannot be had.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Socket, Type};

use crate::datagrams;
use crate::netstat::{self, Holder, Protocol};

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

/// Octets of kernel memory of one worker's listener on one address.
pub const LISTENER_KERNEL_MEMORY: usize = 2 * RECEIVE_BUFFER;

/// Whose a port may be beside ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// No one's: binding fails if another socket has it.
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

impl BindError {
    pub(super) fn new(address: SocketAddr, protocol: Protocol, port: Port, error: io::Error) -> BindError {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                ": ports below 1024 need root or the capability NET_BIND_SERVICE".into()
            }
            io::ErrorKind::AddrInUse => in_use(address, protocol, port),
            io::ErrorKind::AddrNotAvailable => ": no link of this machine has the address".into(),
            _ if lacks_family(&error) => ": this machine has no IPv6".into(),
            _ => String::new(),
        };
        BindError {
            address,
            protocol: match protocol {
                Protocol::Udp => "UDP",
                Protocol::Tcp => "TCP",
            },
            error,
            hint,
        }
    }
}

impl BindError {
    /// Whether the machine does not have the address, or not yet: it may come.
    pub fn is_absent(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrNotAvailable || lacks_family(&self.error)
    }
}

/// Whether the kernel was started without what an address is of, or lets nobody have it.
fn lacks_family(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// What there is to say about an address that is listened on, and that nobody can send anything to.
pub fn reaches_nobody(address: SocketAddr) -> Option<String> {
    let every = address.is_ipv6() && address.ip().is_unspecified();
    let addresses = || std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    (every && addresses().is_empty())
        .then(|| format!("{address} stands for every IPv6 address of this machine, but it has none"))
}

/// Binds a socket for datagrams. From then on even a [`Port::Own`] is shared with sockets that ask for
/// [`Port::Shared`].
pub fn datagrams(address: SocketAddr, port: Port) -> Result<UdpSocket, BindError> {
    let bound = match socket(address, Type::DGRAM, port) {
        // Replies still to come keep a socket of an address that we left.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_ours(address) => {
            socket(address, Type::DGRAM, Port::Shared)
        }
        bound => bound,
    };
    bound
        .map(Into::into)
        .map_err(|error| BindError::new(address, Protocol::Udp, port, error))
}

/// Binds a socket for connections and listens on it. The port is shared as with [`datagrams`].
pub fn connections(address: SocketAddr, port: Port) -> Result<TcpListener, BindError> {
    let bound = socket(address, Type::STREAM, port).and_then(|socket| {
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    });
    bound.map_err(|error| BindError::new(address, Protocol::Tcp, port, error))
}

fn is_ours(address: SocketAddr) -> bool {
    netstat::holder(address, Protocol::Udp) == Holder::Ourselves
}

/// What there is to say about a port that is in use.
pub fn in_use(address: SocketAddr, protocol: Protocol, port: Port) -> String {
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

fn socket(address: SocketAddr, kind: Type, port: Port) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
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
    // If the port was to be ours alone, it is by now: of two processes that want that, the kernel lets only one come
    // here. Our other workers may join from now on.
    socket.set_reuse_port(true)?;
    Ok(socket)
}
