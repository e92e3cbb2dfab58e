//! Binds sockets: whether a port may be shared, and a diagnosis when it cannot be bound.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Socket, Type};

use crate::datagrams;
use crate::netstat::{self, Holder, Protocol};

/// Requested kernel receive buffer in bytes, so that a burst survives while a worker is busy.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Connections that the kernel queues for a busy worker.
const BACKLOG: i32 = 1024;

/// Kernel send buffer of a connection in bytes; the kernel doubles it for its own needs. Without it, the
/// kernel would give megabytes to each client that does not read.
const CONNECTION_SEND_BUFFER: usize = 32 << 10;

/// Kernel receive buffer of a connection in bytes.
const CONNECTION_RECEIVE_BUFFER: usize = 16 << 10;

/// The most bytes of kernel memory a connection may take.
pub const CONNECTION_KERNEL_MEMORY: usize = 2 * (CONNECTION_SEND_BUFFER + CONNECTION_RECEIVE_BUFFER);

/// Bytes of kernel memory of one worker's listener on one address.
pub const LISTENER_KERNEL_MEMORY: usize = 2 * RECEIVE_BUFFER;

/// Who may share a port with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// No one: binding fails if another socket has it.
    Own,
    /// Our other workers, and a process of our user that hands it over. The kernel lets no other user share
    /// it.
    Shared,
}

/// An address that could not be bound.
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
    /// Returns whether the machine lacks the address, possibly only for now.
    pub fn is_absent(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrNotAvailable || lacks_family(&self.error)
    }
}

/// Returns whether the kernel has the address family disabled.
fn lacks_family(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// Returns a warning if an address that is listened on cannot be reached.
pub fn reaches_nobody(address: SocketAddr) -> Option<String> {
    let every = address.is_ipv6() && address.ip().is_unspecified();
    let addresses = || std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    (every && addresses().is_empty())
        .then(|| format!("{address} stands for every IPv6 address of this machine, but it has none"))
}

/// Binds a UDP socket. Once bound, even a [`Port::Own`] is shared with sockets that ask for [`Port::Shared`].
pub fn datagrams(address: SocketAddr, port: Port) -> Result<UdpSocket, BindError> {
    let bound = match socket(address, Type::DGRAM, port) {
        // Pending replies may keep our old socket of this address open.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_ours(address) => {
            socket(address, Type::DGRAM, Port::Shared)
        }
        bound => bound,
    };
    bound
        .map(Into::into)
        .map_err(|error| BindError::new(address, Protocol::Udp, port, error))
}

/// Binds a TCP socket and listens on it. The port is shared as with [`datagrams`].
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

/// Returns a hint about a port that is in use.
pub fn in_use(address: SocketAddr, protocol: Protocol, port: Port) -> String {
    let holder = netstat::holder(address, protocol);
    let own = netstat::own_user();
    let hint = match &holder {
        Holder::Other { process: None, .. } | Holder::Unseen => {
            format!(" (as root, `ss -Hlnp 'sport = :{}'` shows which)", address.port())
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
        // Closing connections of an earlier process are not in the way. On a UDP socket this would let any
        // user take the port.
        socket.set_reuse_address(true)?;
    }
    socket.set_reuse_port(port == Port::Shared)?;
    if address.is_ipv6() {
        // `listen "0.0.0.0" "::"` names two listeners, each with its own family.
        socket.set_only_v6(true)?;
    }
    if kind == Type::DGRAM {
        // The kernel caps what it cannot grant; a small buffer is no reason not to start.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        datagrams::want_destination(&socket, address)?;
    }
    if kind == Type::STREAM {
        // Accepted connections inherit these.
        socket.set_send_buffer_size(CONNECTION_SEND_BUFFER)?;
        socket.set_recv_buffer_size(CONNECTION_RECEIVE_BUFFER)?;
    }
    socket.bind(&address.into())?;
    // If the port was to be ours alone, it is by now: of two processes that ask for that, the kernel lets
    // only one get here. Our other workers may join from now on.
    socket.set_reuse_port(true)?;
    Ok(socket)
}
