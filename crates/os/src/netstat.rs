//! Which sockets are bound where, from the kernel: its tables in `/proc`, or netlink where that is much faster and the kernel
//! has it.
//!
//! Only for questions that sockets themselves cannot answer: any result may be out of date by the time it is
//! read.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

use crate::sock_diag;

/// A socket that is bound to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The address it is bound to.
    pub address: SocketAddr,
    /// Whether it takes packets from any sender. A connected UDP socket does not: its process is ending.
    pub open: bool,
    /// The user who created it.
    pub user: u32,
    /// Its number, as in `socket:[20761]`.
    pub inode: u64,
}

impl Bound {
    /// Returns whether it is bound to exactly this address and port. The tables lack the scope of link-local
    /// addresses, which is not compared.
    pub fn is_at(&self, address: SocketAddr) -> bool {
        (self.address.ip(), self.address.port()) == (address.ip(), address.port())
    }
}

/// A kind of kernel table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// UDP sockets.
    Udp,
    /// TCP sockets that accept connections.
    Tcp,
}

impl Protocol {
    /// The state of open sockets in the table.
    fn open(self) -> &'static str {
        match self {
            Protocol::Udp => "07",
            Protocol::Tcp => "0A",
        }
    }

    fn tables(self) -> [&'static str; 2] {
        match self {
            Protocol::Udp => ["udp", "udp6"],
            Protocol::Tcp => ["tcp", "tcp6"],
        }
    }
}

/// The sockets of this network namespace, of both families.
pub fn bound(protocol: Protocol) -> Vec<Bound> {
    let mut all = Vec::new();
    if let (Protocol::Tcp, Ok(listeners)) = (protocol, sock_diag::listeners()) {
        all.extend(listeners.into_iter().map(|one| Bound {
            address: one.address,
            open: true,
            user: one.user,
            inode: one.inode,
        }));
        return all;
    }
    for table in protocol.tables() {
        let Ok(file) = fs::File::open(format!("/proc/thread-self/net/{table}")) else {
            continue;
        };
        let lines = io::BufReader::new(file).lines().skip(1).map_while(Result::ok);
        let entries = lines.map_while(|line| entry(&line, protocol.open()));
        match protocol {
            Protocol::Udp => all.extend(entries),
            // Listeners come first, followed by all connections of the node.
            Protocol::Tcp => all.extend(entries.take_while(|one| one.open)),
        }
    }
    all
}

/// The process that prevents an exclusive bind to an address.
pub fn holder(address: SocketAddr, protocol: Protocol) -> Holder {
    let mut in_the_way = bound(protocol);
    in_the_way.retain(|one| overlap(one.address, address));
    let own = own_sockets();
    match in_the_way.iter().find(|one| !own.contains(&one.inode)) {
        Some(other) => owner(other),
        None if in_the_way.is_empty() => Holder::Unseen,
        None => Holder::Ourselves,
    }
}

/// The owner of another process's socket.
pub fn owner(socket: &Bound) -> Holder {
    Holder::Other {
        process: process_with(socket.inode),
        user: socket.user,
    }
}

/// Returns whether packets to one address may be meant for the other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    let reaches = match (one.ip(), other.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
            one.ip() == other.ip() || any(one.ip()) || any(other.ip())
        }
        // The IPv6 wildcard includes IPv4 unless its socket is IPv6-only.
        (IpAddr::V6(six), _) | (_, IpAddr::V6(six)) => six.is_unspecified(),
    };
    one.port() == other.port() && reaches
}

/// The process that has a port.
#[derive(Debug, PartialEq, Eq)]
pub enum Holder {
    /// Only this process.
    Ourselves,
    /// Another process.
    Other {
        /// Its ID and name; `None` if it is invisible to us or belongs to another user.
        process: Option<(u32, String)>,
        /// The user who created the socket.
        user: u32,
    },
    /// None that the kernel shows us.
    Unseen,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Ourselves => f.write_str("this process"),
            Holder::Other {
                process: Some((id, name)),
                user,
            } => write!(f, "process {id} ({name}) of user {user}"),
            Holder::Other { process: None, user } => write!(f, "an unknown process of user {user}"),
            Holder::Unseen => f.write_str("an unknown process"),
        }
    }
}

/// Our user, as the kernel compares the users of two sockets.
pub fn own_user() -> u32 {
    // SAFETY: geteuid only reads the process's credentials and cannot fail.
    unsafe { libc::geteuid() }
}

/// The inodes of this process's sockets.
pub fn own_sockets() -> HashSet<u64> {
    sockets_of("self").collect()
}

/// The processes that had sockets when we last looked, by inode.
static REMEMBERED: OnceLock<HashMap<u64, (u32, String)>> = OnceLock::new();

/// Remembers which processes have sockets that conflict with these addresses, for a process that is about to
/// lose the right to inspect others. Only the first call has an effect.
pub fn remember_owners<'a>(addresses: impl Iterator<Item = &'a SocketAddr>) {
    let addresses: Vec<&SocketAddr> = addresses.collect();
    let bound = [Protocol::Udp, Protocol::Tcp].into_iter().flat_map(bound);
    let in_the_way = bound.filter(|one| addresses.iter().any(|address| overlap(one.address, **address)));
    let _ = REMEMBERED.set(owners_of(&in_the_way.map(|one| one.inode).collect()));
}

/// The process that has a socket, as far as we may inspect others or could earlier.
pub fn process_with(inode: u64) -> Option<(u32, String)> {
    let found = owners_of(&HashSet::from([inode])).remove(&inode);
    found.or_else(|| REMEMBERED.get()?.get(&inode).cloned())
}

/// The processes that have these sockets, as far as we may inspect others.
fn owners_of(inodes: &HashSet<u64>) -> HashMap<u64, (u32, String)> {
    let mut owners = HashMap::new();
    if inodes.is_empty() {
        return owners;
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        for inode in sockets_of(&format!("{id}")).filter(|inode| inodes.contains(inode)) {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            owners.entry(inode).or_insert((id, name.trim_end().to_owned()));
        }
    }
    owners
}

fn sockets_of(process: &str) -> impl Iterator<Item = u64> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter_map(|target| {
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    })
}

/// Parses a line of a table in which open sockets have this state.
fn entry(line: &str, open: &str) -> Option<Bound> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (ip, port) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    let user = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let address = SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?);
    Some(Bound {
        address,
        open: state == open,
        user,
        inode,
    })
}

/// Parses an address in the kernel's notation: 32-bit words in native byte order.
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
    fn lines_of_both_families_are_read() {
        let four = " 1303: 0A14FEA9:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   107        0 20761 2 0 0";
        let six = "  414: 000000FD000000000000000010000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20762 2 0 0";
        if cfg!(target_endian = "little") {
            for (line, address, user, inode) in [
                (four, "169.254.20.10:53", 107, 20761),
                (six, "[fd00::10]:53", 0, 20762),
            ] {
                let address = address.parse().unwrap();
                for (protocol, open) in [(Protocol::Udp, true), (Protocol::Tcp, false)] {
                    let expected = Bound {
                        address,
                        open,
                        user,
                        inode,
                    };
                    assert_eq!(entry(line, protocol.open()), Some(expected));
                }
            }
        }
    }

    #[test]
    fn a_holder_is_named_as_far_as_it_can_be_seen() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(holder(address, Protocol::Udp), Holder::Ourselves);
        assert_eq!(holder(address, Protocol::Tcp), Holder::Unseen);
        let inode = bound(Protocol::Udp)
            .iter()
            .find(|one| one.address == address)
            .unwrap()
            .inode;
        assert_eq!(process_with(inode).unwrap().0, std::process::id());
        let other = |process| Holder::Other { process, user: 7 }.to_string();
        assert_eq!(other(Some((5, "named".into()))), "process 5 (named) of user 7");
        assert_eq!(other(None), "an unknown process of user 7");
    }

    #[test]
    fn a_wildcard_is_in_everybodys_way() {
        for (one, other, expected) in [
            ("127.0.0.1:53", "127.0.0.1:53", true),
            ("127.0.0.1:53", "127.0.0.2:53", false),
            ("127.0.0.1:53", "127.0.0.1:54", false),
            ("0.0.0.0:53", "127.0.0.1:53", true),
            ("[::]:53", "127.0.0.1:53", true),
            ("[::]:53", "[::1]:53", true),
            ("[::1]:53", "127.0.0.1:53", false),
            ("0.0.0.0:53", "[::1]:53", false),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }
}
