//! Other processes that keep the same node: a predecessor that ends, a successor that begins.
//!
//! Two questions, and nothing else: may I touch the network now ([`Turn`]), and does someone else listen
//! where I did ([`others_listen`])? docs/decisions/0005-handover.md says why they are asked this way.

use std::collections::HashSet;
use std::io::{self, Read};
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

/// Where the kernel is told to give connections that wait at a listener which closes to another listener
/// of the same address (Linux 5.14).
const MIGRATION: &str = "/proc/sys/net/ipv4/tcp_migrate_req";

/// While it lives, connections that are being made when our listeners close go to the successor's. Where
/// the file cannot be written, as in containers that are not privileged, the few that are between two
/// packets of their handshake at that moment are reset.
pub struct Migration {
    before: Option<String>,
}

impl Migration {
    /// Begins.
    pub fn begin() -> Migration {
        let before = std::fs::read_to_string(MIGRATION).ok();
        let before = before.filter(|_| std::fs::write(MIGRATION, "1").is_ok());
        Migration { before }
    }
}

impl Drop for Migration {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = std::fs::write(MIGRATION, before);
        }
    }
}

/// Those of the addresses on which a socket that is not ours takes queries, bound to exactly that.
pub fn others_listen(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let own = own_sockets();
    let text = |table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
    let (four, six) = (text("udp"), text("udp6"));
    let entries: Vec<_> = four.lines().chain(six.lines()).filter_map(entry).collect();
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

/// Address and inode of a line of /proc/net/udp or udp6, if the socket takes datagrams from anyone: one
/// that is connected belongs to a process that ends.
fn entry(line: &str) -> Option<(SocketAddr, u64)> {
    const UNCONNECTED: &str = "07";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (ip, port) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let address = SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?);
    (state == UNCONNECTED).then_some((address, inode))
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
        let entries: Vec<_> = text.lines().filter_map(entry).collect();
        assert!(
            entries.iter().any(|(local, _)| *local == address),
            "{address}: {entries:?}"
        );

        socket.connect("127.0.0.1:1").unwrap();
        let text = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        assert!(
            !text.lines().filter_map(entry).any(|(local, _)| local == address),
            "connected away"
        );
    }

    #[test]
    fn lines_of_both_families_are_read() {
        let four = " 1303: 0A14FEA9:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20761 2 0 0";
        let six = "  414: 000000FD000000000000000010000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20762 2 0 0";
        if cfg!(target_endian = "little") {
            assert_eq!(entry(four), Some(("169.254.20.10:53".parse().unwrap(), 20761)));
            assert_eq!(entry(six), Some(("[fd00::10]:53".parse().unwrap(), 20762)));
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
