//! Asks the kernel which TCP sockets accept connections, over netlink (sock_diag(7)).
//!
//! `/proc/net/tcp` has them as well, in front of all connections: to reach its end, the kernel searches a table with room for
//! hundreds of thousands, which takes ten milliseconds.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR` and `NLMSG_DONE`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// `NLM_F_REQUEST | NLM_F_DUMP`
const DUMP: u16 = 0x301;

/// `IPPROTO_TCP`, and a set of states with `TCP_LISTEN` only.
const TCP: u8 = 6;
const LISTENING: u32 = 1 << 10;

/// Octets of a `nlmsghdr`, and of an `inet_diag_req_v2` with it.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;

/// How long the kernel may take. It answers at once.
const LIMIT: Duration = Duration::from_secs(2);

/// A socket that accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    pub address: SocketAddr,
    /// The user who created it.
    pub user: u32,
    pub inode: u64,
}

/// The listeners of this thread's network namespace, of both families.
pub(crate) fn listeners() -> io::Result<Vec<Listener>> {
    let kind = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, kind.0, kind.1, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(LIMIT))?;
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    let mut found = Vec::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        send(&socket, &request(family), SendFlags::empty())?;
        let mut buffer = vec![0; 32 << 10];
        while !{
            let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            read(&buffer[..length], &mut found)?
        } {}
    }
    Ok(found)
}

fn request(family: AddressFamily) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    request[HEADER] = family.as_raw() as u8;
    request[HEADER + 1] = TCP;
    request[HEADER + 4..HEADER + 8].copy_from_slice(&LISTENING.to_ne_bytes());
    request
}

/// Reads the messages of a datagram. Returns whether the last one was there.
fn read(mut datagram: &[u8], found: &mut Vec<Listener>) -> io::Result<bool> {
    while let Some(header) = datagram.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let message = datagram.get(HEADER..length).ok_or(io::ErrorKind::InvalidData)?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            DONE => return Ok(true),
            ERROR => {
                let code = message.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(-code));
            }
            BY_FAMILY => found.extend(listener(message)),
            _ => {}
        }
        // Messages begin at multiples of four.
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Reads an `inet_diag_msg`: family at 0, port at 4, address at 8, user at 64, inode at 68.
fn listener(message: &[u8]) -> Option<Listener> {
    let word = |at: usize| Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    let port = u16::from_be_bytes(*message.get(4..)?.first_chunk()?);
    let ip: IpAddr = match AddressFamily::from_raw(u16::from(*message.first()?)) {
        AddressFamily::INET => IpAddr::from(*message.get(8..)?.first_chunk::<4>()?),
        AddressFamily::INET6 => IpAddr::from(*message.get(8..)?.first_chunk::<16>()?),
        _ => return None,
    };
    Some(Listener {
        address: SocketAddr::new(ip, port),
        user: word(64)?,
        inode: word(68)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listeners_are_found_with_their_user_and_number() {
        let bound = ["127.0.0.1:0", "[::1]:0"].map(TcpListener::bind);
        let all = listeners().unwrap();
        let expected = crate::netstat::own_sockets();
        for listener in bound.into_iter().flatten() {
            let address = listener.local_addr().unwrap();
            let found = all.iter().find(|one| one.address == address).unwrap();
            assert_eq!(found.user, crate::netstat::own_user());
            assert!(expected.contains(&found.inode));
        }
    }

    #[test]
    fn what_is_cut_or_refused_is_an_error_and_no_panic() {
        let mut refusal = [0; 20];
        refusal[..4].copy_from_slice(&20_u32.to_ne_bytes());
        refusal[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        refusal[16..].copy_from_slice(&(-2_i32).to_ne_bytes());
        let error = read(&refusal, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        for length in 0..72 {
            assert_eq!(listener(&vec![2; length]), None);
        }
        refusal[..4].copy_from_slice(&3_u32.to_ne_bytes());
        assert!(read(&refusal, &mut Vec::new()).is_err());
        refusal[..4].copy_from_slice(&99_u32.to_ne_bytes());
        assert!(read(&refusal, &mut Vec::new()).is_err());
    }
}
