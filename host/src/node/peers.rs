//! Other processes that keep the same node: a predecessor that ends, a successor that begins.
//!
//! Two questions, and nothing else: may I touch the network now ([`Turn`]), and does someone else listen
//! where I did ([`others_listen`])? docs/decisions/0005-handover.md says why they are asked this way.

use std::collections::HashSet;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

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
            let own = own_sockets();
            unknown.any(|inode| !own.contains(inode))
        }
    }
}

/// Inodes of the listeners of an address.
fn tcp_listeners(address: SocketAddr) -> HashSet<u64> {
    let table = if address.is_ipv4() { "tcp" } else { "tcp6" };
    let Ok(file) = std::fs::File::open(format!("/proc/thread-self/net/{table}")) else {
        return HashSet::new();
    };
    // Listeners come first, and then all of the node's connections.
    let lines = io::BufReader::new(file).lines().skip(1).map_while(Result::ok);
    let listeners = lines.map_while(|line| entry(&line, LISTENING));
    listeners
        .filter(|(local, _)| *local == address)
        .map(|(_, inode)| inode)
        .collect()
}

/// Those of the addresses on which a socket that is not ours takes queries, bound to exactly that.
pub fn others_listen(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let own = own_sockets();
    let text = |table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
    let (four, six) = (text("udp"), text("udp6"));
    let lines = four.lines().chain(six.lines());
    let entries: Vec<_> = lines.filter_map(|line| entry(line, UNCONNECTED)).collect();
    let taken = |address: &&SocketAddr| {
        entries
            .iter()
            .any(|(local, inode)| local == *address && !own.contains(inode))
    };
    addresses.iter().filter(taken).copied().collect()
}

/// Inodes of this process's sockets.
fn own_sockets() -> HashSet<u64> {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else {
        return HashSet::new();
    };
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter_map(|target| {
            target
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?
                .parse()
                .ok()
        })
        .collect()
}

/// A UDP socket that takes datagrams from anyone: one that is connected belongs to a process that ends.
const UNCONNECTED: &str = "07";

/// A TCP socket that accepts connections.
const LISTENING: &str = "0A";

/// Address and inode of a line of /proc/net/udp or tcp, or of udp6 or tcp6, if the socket is in this state.
fn entry(line: &str, wanted: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (ip, port) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let address = SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?);
    (state == wanted).then_some((address, inode))
}

/// An address in the kernel's notation: words of 32 bits, each in the machine's byte order.
fn address(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let word = u32::from_str_radix(text.get(8 * index..8 * index + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_others_are_told_from_ours() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(others_listen(&[address]), [], "our own");

        let text = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let entries: Vec<_> = text.lines().filter_map(|line| entry(line, UNCONNECTED)).collect();
        assert!(
            entries.iter().any(|(local, _)| *local == address),
            "{address}: {entries:?}"
        );

        socket.connect("127.0.0.1:1").unwrap();
        let text = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        assert!(
            !text
                .lines()
                .filter_map(|line| entry(line, UNCONNECTED))
                .any(|(local, _)| local == address),
            "connected away"
        );
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
    fn lines_of_both_families_are_read() {
        let four = " 1303: 0A14FEA9:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20761 2 0 0";
        let six = "  414: 000000FD000000000000000010000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20762 2 0 0";
        if cfg!(target_endian = "little") {
            assert_eq!(
                entry(four, UNCONNECTED),
                Some(("169.254.20.10:53".parse().unwrap(), 20761))
            );
            assert_eq!(
                entry(six, UNCONNECTED),
                Some(("[fd00::10]:53".parse().unwrap(), 20762))
            );
        }
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
