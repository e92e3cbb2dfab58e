//! Turning a listener's sockets off without closing them, from any thread.
//!
//! A socket that nobody reads still takes what is sent to it: the kernel fills its queue, and rules that
//! ask whether a socket is there (`-m socket`) find one. Off, a listener's sockets are not found by the
//! kernel any more: its datagrams go to the other sockets of the address, or, where there are none, to
//! whoever answers instead of us. What the UDP socket has taken already can still be read, and replies
//! still be sent through it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::SockRef;

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
    pub(super) fn new(address: SocketAddr, udp: &UdpSocket, tcp: &TcpListener) -> io::Result<Switch> {
        Ok(Switch {
            address,
            udp: udp.try_clone()?,
            tcp: tcp.try_clone()?,
        })
    }

    /// Takes no datagrams and no connections from now on. Connections that are open stay open; those that
    /// wait to be accepted are reset.
    pub fn off(&self) {
        self.udp_off();
        self.tcp_off();
    }

    /// Has the kernel give new connections to the listener that began as this one after the first `ours`, if
    /// there is one: a successor's. A process begins to listen after its predecessor, so our own listeners
    /// are the first ones, and while they close, the last ones take their places: that place stays the
    /// successor's, or ends to exist when none of ours is left.
    pub(super) fn pass_on(&self, ours: usize) {
        if let Err(error) = steer(&self.tcp, ours) {
            tracing::debug!(address = %self.address, %error, "cannot steer new connections to the successor");
        }
    }

    /// A connection that waits to be accepted, if there is one.
    pub(super) fn accept(&self) -> Option<io::Result<(tokio::net::TcpStream, SocketAddr)>> {
        match self.tcp.accept() {
            Ok((stream, client)) => {
                let stream = stream
                    .set_nonblocking(true)
                    .and_then(|()| tokio::net::TcpStream::from_std(stream));
                Some(stream.map(|stream| (stream, client)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// What the sockets are bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a packet without content to a port of the listener's own address: a sign, for whoever looks at what leaves
    /// this socket, that it is read.
    pub fn beat(&self, port: u16) {
        // Whoever looks for it drops it, which the kernel reports as an error.
        let _ = self.udp.send_to(&[], SocketAddr::new(self.address.ip(), port));
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
            tracing::debug!(address = %self.address, %error, "cannot disable a UDP listener");
        }
    }
}

/// Has the kernel give every new connection for the address of a listener (SO_REUSEPORT) to the one that
/// came to it as number `place`, counted from 0; while there is none, to any.
pub fn steer(listener: &TcpListener, place: usize) -> io::Result<()> {
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    // A classic BPF program of one instruction: return a constant.
    let mut program = [libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: place,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the descriptor is open while `listener` is borrowed. The kernel reads a sock_fprog of the
    // length that it is told, and the one instruction behind it, which lives until the call returns.
    let done = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::super::{Port, Sockets};
    use super::*;

    fn bind(address: SocketAddr) -> Sockets {
        Sockets::bind(address, Port::Shared).unwrap()
    }

    fn free(ip: &str) -> Option<SocketAddr> {
        let probe = TcpListener::bind((ip, 0)).ok()?;
        probe.local_addr().ok()
    }

    #[test]
    fn off_is_as_if_nobody_listened() {
        for ip in ["127.0.0.1", "::1"] {
            let Some(address) = free(ip) else { continue };
            let sockets = bind(address);
            let client = UdpSocket::bind((ip, 0)).unwrap();
            client.connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.send(b"before").unwrap();

            sockets.switch.off();
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

            // Alone it could not be had while the old one is there, but we share it with ourselves.
            Sockets::bind(address, Port::Own).unwrap();
            drop(sockets);
            Sockets::bind(address, Port::Own).unwrap();
        }
    }

    #[test]
    fn no_datagram_socket_can_join_but_to_take_over() {
        let address = free("127.0.0.1").unwrap();
        let _ours = Sockets::bind(address, Port::Own).unwrap();
        // Any user could ask for that, and the kernel would give him what comes next.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        assert_eq!(
            socket.bind(&address.into()).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        bind(address);
    }

    #[test]
    fn others_take_over() {
        let address = free("127.0.0.1").unwrap();
        let (old, new) = (bind(address), bind(address));
        old.switch.off();
        new.udp.set_nonblocking(false).unwrap();
        new.udp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for _ in 0..64 {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"query", address).unwrap();
            assert_eq!(new.udp.recv(&mut [0; 9]).unwrap(), 5);
            assert!(TcpStream::connect(address).is_ok());
        }
    }

    #[test]
    fn connections_are_passed_on_while_listeners_close() {
        let address = free("127.0.0.1").unwrap();
        let mut old = vec![bind(address), bind(address)];
        let new = [bind(address), bind(address)];
        old[0].switch.pass_on(old.len());
        let taken = |sockets: &Sockets| {
            let mut count = 0;
            while sockets.tcp.accept().is_ok() {
                count += 1;
            }
            count
        };
        while !old.is_empty() {
            let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
            assert_eq!(old.iter().map(taken).sum::<usize>(), 0);
            assert_eq!(new.iter().map(taken).sum::<usize>(), clients.len());
            old.remove(0);
        }
        // Nobody has that place any more.
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        let shares = new.each_ref().map(taken);
        assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
        assert_eq!(shares.iter().sum::<usize>(), clients.len());
    }
}
