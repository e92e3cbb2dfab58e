//! Turning a listener's sockets off without closing them, from any thread.
//!
//! A socket that nobody reads still takes what is sent to it: the kernel fills its queue, and rules that
//! ask whether a socket is there (`-m socket`) find one. Off, a listener's sockets are not found by the
//! kernel any more: its datagrams go to the other sockets of the address, or, where there are none, to
//! whoever answers instead of us. What the UDP socket has taken already can still be read, and replies
//! still be sent through it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use socket2::SockRef;

use super::Sockets;

/// Nobody's port: no query comes from there.
const NOWHERE: u16 = 1;

/// Turns one listener's sockets off. There is no way back, since the kernel has none for IPv6: a UDP
/// socket that was connected keeps its peer. New sockets are the way back.
pub struct Switch {
    address: SocketAddr,
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Switch {
    /// A switch for these sockets. It keeps them open for as long as it lives.
    pub(super) fn new(sockets: &Sockets) -> io::Result<Switch> {
        Ok(Switch {
            address: sockets.address,
            udp: sockets.udp.try_clone()?,
            tcp: sockets.tcp.try_clone()?,
        })
    }

    /// Takes no datagrams and no connections from now on. Connections that are open stay open; those that
    /// wait to be accepted are reset.
    pub fn off(&self) {
        self.udp_off();
        self.tcp_off();
    }

    /// Takes no connections from now on.
    pub(super) fn tcp_off(&self) {
        // The kernel forgets that the socket listened.
        let _ = SockRef::from(&self.tcp).shutdown(std::net::Shutdown::Read);
    }

    /// Takes no datagrams from now on.
    pub(super) fn udp_off(&self) {
        // A connected UDP socket is only found by datagrams of its peer, and SO_REUSEPORT passes it over:
        // its peer is a port of our own address that sends nothing. This fails if the address has left
        // the machine; then nothing comes either.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        if let Err(error) = self.udp.connect(SocketAddr::new(ip, NOWHERE)) {
            tracing::debug!(address = %self.address, %error, "a UDP listener cannot be turned off");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    fn free(ip: &str) -> Option<SocketAddr> {
        let probe = TcpListener::bind((ip, 0)).ok()?;
        probe.local_addr().ok()
    }

    #[test]
    fn off_is_as_if_nobody_listened() {
        for ip in ["127.0.0.1", "::1"] {
            let Some(address) = free(ip) else { continue };
            let sockets = Sockets::bind(address).unwrap();
            let switch = Switch::new(&sockets).unwrap();
            let client = UdpSocket::bind((ip, 0)).unwrap();
            client.connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.send(b"before").unwrap();

            switch.off();
            client.send(b"while it is off").unwrap();
            assert_eq!(
                client.recv(&mut [0; 9]).unwrap_err().kind(),
                ErrorKind::ConnectionRefused,
                "{ip}"
            );
            assert!(TcpStream::connect(address).is_err(), "{ip}");
            let mut taken = [0; 20];
            let (length, peer) = sockets.udp.recv_from(&mut taken).unwrap();
            assert_eq!(&taken[..length], b"before", "what was taken before can be read");
            sockets.udp.send_to(b"reply", peer).unwrap();
            assert_eq!(client.recv(&mut [0; 9]).unwrap(), 5, "and be replied to");
            assert_eq!(
                sockets.udp.recv(&mut taken).unwrap_err().kind(),
                ErrorKind::WouldBlock
            );

            drop((sockets, switch));
            Sockets::bind(address).unwrap();
        }
    }

    #[test]
    fn others_take_over() {
        let address = free("127.0.0.1").unwrap();
        let (old, new) = (Sockets::bind(address).unwrap(), Sockets::bind(address).unwrap());
        Switch::new(&old).unwrap().off();
        new.udp.set_nonblocking(false).unwrap();
        new.udp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for _ in 0..64 {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"query", address).unwrap();
            assert_eq!(new.udp.recv(&mut [0; 9]).unwrap(), 5);
            assert!(TcpStream::connect(address).is_ok());
        }
    }
}
