//! Steers which socket of an address the kernel chooses, and turns a listener's sockets off without closing
//! them, from any thread.
//!
//! A socket that is not read still receives: the kernel fills its queue, and firewall rules that look for a
//! socket (`-m socket`) find it. Once turned off, the kernel no longer finds a listener's sockets: datagrams
//! go to other sockets of the address or, if there are none, to the server that stands in for us. What the
//! UDP socket has already received can still be read, and replies still be sent through it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::slice;

use socket2::{SockFilter, Socket, Type};

/// An unused port: no query comes from it.
const NOWHERE: u16 = 1;

/// Turns one listener's sockets off. This cannot be undone, since the kernel offers no way for IPv6: a UDP
/// socket once connected keeps its peer. To turn a listener on again, bind new sockets.
pub struct Switch {
    address: SocketAddr,
    /// The UDP sockets.
    datagrams: Vec<Socket>,
    /// The listening TCP sockets.
    connections: Vec<Socket>,
}

impl Switch {
    /// Creates a switch for sockets bound to `address`. It keeps them open as long as it lives.
    pub(super) fn new(address: SocketAddr, sockets: &[impl AsFd]) -> io::Result<Switch> {
        let mut switch = Switch {
            address,
            datagrams: Vec::new(),
            connections: Vec::new(),
        };
        for socket in sockets {
            let socket = Socket::from(socket.as_fd().try_clone_to_owned()?);
            match socket.r#type()? {
                Type::DGRAM => switch.datagrams.push(socket),
                _ => switch.connections.push(socket),
            }
        }
        Ok(switch)
    }

    /// Stops receiving datagrams and connections. Open connections stay open; those not accepted yet are
    /// reset.
    pub fn off(&self) {
        for socket in &self.datagrams {
            refuse_datagrams(socket, self.address);
        }
        self.connections.iter().for_each(refuse_connections);
    }

    /// Drops what arrives from now on: datagrams, and packets that would open a connection.
    pub(super) fn silence(&self) -> io::Result<()> {
        // A classic BPF program of one instruction: take nothing of the packet.
        let nothing = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
        let mut sockets = self.datagrams.iter().chain(&self.connections);
        sockets.try_for_each(|socket| socket.attach_filter(slice::from_ref(&nothing)))
    }

    /// Makes the kernel give the UDP sockets what arrives on a processor, instead of choosing by hash; `None`
    /// restores the hash. Packets that arrive on processors without a live socket are chosen by hash in
    /// either case. Unlike a BPF program that returns a socket's index, this stays right when sockets join or
    /// leave.
    pub fn prefer(&self, processor: Option<usize>) {
        for socket in &self.datagrams {
            // As an int this is -1, which is no processor. Kernels before 6.2 accept the option but ignore
            // it.
            let processor = processor.unwrap_or(usize::MAX);
            if let Err(error) = socket.set_cpu_affinity(processor) {
                tracing::debug!(address = %self.address, %error, "cannot choose by processor");
            }
        }
    }

    /// Returns the address that the sockets are bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends an empty packet to a port of the listener's own address: a heartbeat that shows the node's rules
    /// that the socket is read.
    pub fn beat(&self, port: u16) {
        for socket in &self.datagrams {
            // The rules drop the packet, which the kernel reports as an error.
            let _ = socket.send_to(&[], &SocketAddr::new(self.address.ip(), port).into());
        }
    }
}

/// Makes a socket accept no more connections.
pub(super) fn refuse_connections(socket: &Socket) {
    // This ends the socket's listening state.
    let _ = socket.shutdown(std::net::Shutdown::Read);
}

/// Makes a socket that is bound to `address` receive no more datagrams.
pub(super) fn refuse_datagrams(socket: &Socket, address: SocketAddr) {
    // A connected UDP socket matches only datagrams of its peer, and SO_REUSEPORT skips it. The peer is a
    // port of our own address that sends nothing. This fails if the machine has lost the address; then
    // nothing arrives either.
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let peer = SocketAddr::new(ip, NOWHERE).into();
    // Try twice: a socket closed while it still receives loses what it received.
    let refuses = socket.connect(&peer).or_else(|_| socket.connect(&peer));
    if let Err(error) = refuses {
        tracing::debug!(%address, %error, "cannot disable a UDP listener");
    }
}

/// Makes the kernel give every new connection for a listener's address (SO_REUSEPORT) to the listener at
/// index `place` of that address; if there is none, to any.
pub fn steer(listener: &impl AsRawFd, place: usize) -> io::Result<()> {
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
    // SAFETY: the descriptor is open while `listener` is borrowed. The kernel reads a sock_fprog of the given
    // length, and the one instruction that it points to, which lives until the call returns.
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
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::super::bind::{self, Port};
    use super::*;

    /// A listener's sockets and their switch.
    struct Sockets {
        udp: UdpSocket,
        tcp: TcpListener,
        switch: Switch,
    }

    impl Sockets {
        fn bind(address: SocketAddr, port: Port) -> Sockets {
            let udp = bind::datagrams(address, port).unwrap();
            let tcp = bind::connections(address, port).unwrap();
            let switch = Switch::new(address, &[udp.as_fd(), tcp.as_fd()]).unwrap();
            Sockets { udp, tcp, switch }
        }
    }

    fn bind(address: SocketAddr) -> Sockets {
        Sockets::bind(address, Port::Shared)
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

            // It cannot be bound exclusively while the old one is open, but our own sockets may share it.
            Sockets::bind(address, Port::Own);
            drop(sockets);
            Sockets::bind(address, Port::Own);
        }
    }

    #[test]
    fn silence_is_as_if_packets_were_lost() {
        for ip in ["127.0.0.1", "::1"] {
            let Some(address) = free(ip) else { continue };
            let sockets = bind(address);
            sockets.switch.silence().unwrap();
            let client = UdpSocket::bind((ip, 0)).unwrap();
            client.connect(address).unwrap();
            client.send(b"query").unwrap();
            assert_eq!(
                sockets.udp.recv(&mut [0; 9]).unwrap_err().kind(),
                ErrorKind::WouldBlock,
                "{ip}"
            );
            client.send(b"query").expect("the first was not refused");
            let connected = TcpStream::connect_timeout(&address, Duration::from_millis(100));
            assert_eq!(connected.unwrap_err().kind(), ErrorKind::TimedOut, "{ip}");
        }
    }

    #[test]
    fn no_datagram_socket_can_join_but_to_take_over() {
        let address = free("127.0.0.1").unwrap();
        let _ours = Sockets::bind(address, Port::Own);
        // Any user could ask for that, and would get the next packets.
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

    /// Kernel 6.2 is the first that chooses by processor.
    fn kernel_is_6_2() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release
            .split(['.', '-'])
            .map_while(|number| number.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(2))
    }

    #[test]
    fn a_processor_has_its_socket_while_that_is_on() {
        if !kernel_is_6_2() {
            return;
        }
        let usable = sched_getaffinity(None).unwrap();
        let here = (0..CpuSet::MAX_CPU).find(|processor| usable.is_set(*processor));
        let (here, mut only_here) = (here.unwrap(), CpuSet::new());
        only_here.set(here);
        sched_setaffinity(None, &only_here).unwrap();
        for ip in ["127.0.0.1", "::1"] {
            let Some(address) = free(ip) else { continue };
            let taken = |sockets: &[Sockets; 3]| {
                for _ in 0..64 {
                    let client = UdpSocket::bind((ip, 0)).unwrap();
                    client.send_to(b"query", address).unwrap();
                }
                let count =
                    |sockets: &Sockets| std::iter::from_fn(|| sockets.udp.recv(&mut [0; 9]).ok()).count();
                sockets.each_ref().map(count)
            };
            let sockets = [bind(address), bind(address), bind(address)];
            sockets[0].switch.prefer(Some(here + 1));
            sockets[2].switch.prefer(Some(here));
            assert_eq!(taken(&sockets), [0, 0, 64], "{ip}");
            sockets[2].switch.off();
            let [first, second, off] = taken(&sockets);
            assert_eq!((first + second, off), (64, 0), "{ip}: others take over");
            let again = [bind(address), bind(address), bind(address)];
            again[1].switch.prefer(Some(here));
            assert_eq!(taken(&again), [0, 64, 0], "{ip}: whatever its place");
            again[1].switch.prefer(None);
            drop(sockets);
            let shares = taken(&again);
            assert!(shares.iter().all(|&share| share > 0), "{ip}: {shares:?}");
        }
    }

    #[test]
    fn connections_are_passed_on_while_listeners_close() {
        let address = free("127.0.0.1").unwrap();
        let mut old = vec![bind(address), bind(address)];
        let new = [bind(address), bind(address)];
        steer(&old[0].tcp, old.len()).unwrap();
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
        // No listener has that index any more.
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        let shares = new.each_ref().map(taken);
        assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
        assert_eq!(shares.iter().sum::<usize>(), clients.len());
    }
}
