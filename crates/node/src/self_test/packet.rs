//! Datagrams as packets on a link, written and read past the kernel's routes and rules.

use std::io::{self, Read as _, Write as _};
use std::mem;
use std::net::{IpAddr, SocketAddr};

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::unix::AsyncFd;

use super::pair::{NOBODY_MAC, NODE_MAC};

/// The largest packet that is read; our reply is never larger.
const LARGEST: usize = 2048;

/// All protocols (linux/if_ether.h).
const ALL: u16 = libc::ETH_P_ALL as u16;

/// A socket that reads and writes whole packets on one link.
pub struct PacketSocket(AsyncFd<Socket>);

impl PacketSocket {
    /// Opens a socket on the link. Requires NET_RAW.
    pub fn open(link: &str) -> io::Result<PacketSocket> {
        // Without a protocol, the socket receives nothing from any link until it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        let index = name_to_index(&socket, link)
            .map_err(|error| io::Error::new(error.kind(), format!("no link {link}: {error}")))?;
        // SAFETY: the storage is zeroed, aligned for all address types and large enough for a sockaddr_ll,
        // whose length is returned.
        let (_, address) = unsafe {
            SockAddr::try_init(|storage, length| {
                let address = storage.cast::<libc::sockaddr_ll>();
                (*address).sll_family = libc::AF_PACKET as libc::sa_family_t;
                (*address).sll_protocol = ALL.to_be();
                (*address).sll_ifindex = index as libc::c_int;
                *length = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                Ok(())
            })
        }?;
        socket.bind(&address)?;
        // SAFETY: a socket2 socket keeps its descriptor until it is dropped, and it is owned here.
        let socket = unsafe { AsyncFd::register(socket) }?;
        Ok(PacketSocket(socket))
    }

    /// Sends a packet.
    pub async fn send(&self, packet: &[u8]) -> io::Result<()> {
        loop {
            let mut ready = self.0.writable().await?;
            if let Ok(sent) = ready.try_io(|socket| socket.get_ref().write(packet)) {
                return sent.map(|_| ());
            }
        }
    }

    /// Receives the next packet on the link, in either direction.
    pub async fn receive(&self) -> io::Result<Vec<u8>> {
        let mut packet = vec![0; LARGEST];
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(received) = ready.try_io(|socket| socket.get_ref().read(&mut packet)) {
                packet.truncate(received?);
                return Ok(packet);
            }
        }
    }
}

/// Builds a packet that arrives at the node with a datagram. Both addresses must be of one family.
pub fn write(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(NOBODY_MAC, NODE_MAC);
    let datagram = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 64),
        (from, to) => ethernet.ipv6(octets(from), octets(to), 64),
    }
    .udp(from.port(), to.port());
    let mut packet = Vec::with_capacity(datagram.size(payload.len()));
    // Only fails if the payload is too long for a packet.
    let _ = datagram.write(&mut packet, payload);
    packet
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The payload of a packet, if it is a datagram from the first address to the second. Checksums are not
/// verified: the kernel does not compute them on such links.
pub fn read(packet: &[u8], from: SocketAddr, to: SocketAddr) -> Option<&[u8]> {
    let sliced = SlicedPacket::from_ethernet(packet).ok()?;
    let Some(TransportSlice::Udp(datagram)) = &sliced.transport else {
        return None;
    };
    let (source, destination): (IpAddr, IpAddr) = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        _ => return None,
    };
    let ends = (
        SocketAddr::new(source, datagram.source_port()),
        SocketAddr::new(destination, datagram.destination_port()),
    );
    (ends == (from, to)).then(|| datagram.payload())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (from, to) in [
            ("192.0.0.8:61000", "10.96.0.10:53"),
            ("[100:0:0:1::8]:61000", "[fd00:96::10]:53"),
        ] {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let packet = write(from, to, b"query");
            assert_eq!(read(&packet, from, to), Some(&b"query"[..]));
            assert_eq!(read(&packet, to, from), None);
            for end in 0..packet.len() {
                assert_eq!(read(&packet[..end], from, to), None, "{end} octets");
            }
        }
    }
}
