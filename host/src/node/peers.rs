//! Other processes that keep the same node: a predecessor that ends, a successor that begins.
//!
//! Two questions, and nothing else: may I touch the network now ([`Turn`]), and does someone else listen
//! where I did ([`others_listen`])? docs/decisions/0005-handover.md says why they are asked this way.

use std::collections::HashSet;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::netstat::{self, Protocol};

/// An abstract name: it lives in the network namespace, as do the links and rules it stands for, and
/// goes with the process that holds it, however that ends.
const NAME: &[u8] = b"dnsweir-node";

/// How long to wait for others. Nobody works that long, unless stopped in the middle of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The right to change the network. One process has it at a time.
pub struct Turn {
    _held: Option<UnixListener>,
}

impl Turn {
    /// Waits until nobody else has it; blocks. After ten seconds it goes without, since a process that is
    /// stopped would keep the node from being repaired.
    pub fn take() -> io::Result<Turn> {
        let name = UnixAddr::from_abstract_name(NAME)?;
        let begun = Instant::now();
        loop {
            match UnixListener::bind_addr(&name) {
                Ok(held) => return Ok(Turn { _held: Some(held) }),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => {}
            }
            let Some(left) = PATIENCE
                .checked_sub(begun.elapsed())
                .filter(|left| !left.is_zero())
            else {
                tracing::warn!(
                    "another process has been changing the node's network for too long: not waiting"
                );
                return Ok(Turn { _held: None });
            };
            // Nobody accepts the connection; it breaks when the holder lets go, which ends the read.
            if let Ok(mut holder) = UnixStream::connect_addr(&name) {
                holder.set_read_timeout(Some(left))?;
                let _ = holder.read(&mut [0]);
            }
        }
    }
}

/// Who listened on an address over TCP before we did.
pub struct Predecessors {
    address: SocketAddr,
    /// Of their sockets.
    inodes: HashSet<u64>,
}

impl Predecessors {
    /// Looks, before we listen there.
    pub fn of(address: SocketAddr) -> Predecessors {
        Predecessors {
            address,
            inodes: tcp_listeners(address),
        }
    }

    /// Whether another process has begun to listen there since: a successor, which answers for both of us.
    pub fn have_been_followed(&self) -> bool {
        let now = tcp_listeners(self.address);
        let mut unknown = now.difference(&self.inodes).peekable();
        unknown.peek().is_some() && {
            let own = netstat::own_sockets();
            unknown.any(|inode| !own.contains(inode))
        }
    }
}

/// Inodes of the listeners of an address.
fn tcp_listeners(address: SocketAddr) -> HashSet<u64> {
    let bound = netstat::bound(Protocol::Tcp).into_iter();
    bound
        .filter(|one| one.address == address)
        .map(|one| one.inode)
        .collect()
}

/// Those of the addresses on which a socket that is not ours takes queries, bound to exactly that.
pub fn others_listen(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let own = netstat::own_sockets();
    let mut others = netstat::bound(Protocol::Udp);
    others.retain(|one| one.open && !own.contains(&one.inode));
    let taken = |address: &&SocketAddr| others.iter().any(|one| one.address == **address);
    addresses.iter().filter(taken).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_others_are_told_from_ours() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(others_listen(&[address]), [], "our own");

        let is_there = || {
            let bound = netstat::bound(Protocol::Udp);
            bound.iter().any(|one| one.address == address && one.open)
        };
        assert!(is_there());
        socket.connect("127.0.0.1:1").unwrap();
        assert!(!is_there(), "connected away");
    }

    #[test]
    fn a_successor_is_told_from_a_predecessor() {
        use socket2::{Domain, Socket, Type};
        let listen = |address: SocketAddr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.listen(1).unwrap();
            socket
        };
        let first = listen("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap().as_socket().unwrap();
        let predecessors = Predecessors::of(address);
        assert_eq!(predecessors.inodes.len(), 1);
        assert!(!predecessors.have_been_followed(), "nobody came");
        let own = listen(address);
        assert!(!predecessors.have_been_followed(), "only we came");
        drop((first, own));
        assert_eq!(tcp_listeners(address).len(), 0);
    }

    #[test]
    fn one_at_a_time() {
        let turn = Turn::take().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let turn = Turn::take().unwrap();
            tell.send(turn._held.is_some()).unwrap();
        });
        assert!(
            told.recv_timeout(Duration::from_millis(200)).is_err(),
            "while it is held"
        );
        drop(turn);
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
        waiter.join().unwrap();
    }
}
