//! Addresses that nobody else has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the tests' servers answer. Below the ports that systems hand out by themselves.
pub const PORT: u16 = 5300;

/// A loopback address that no other server of this or another test process has. The whole of
/// 127.0.0.0/8 is on `lo`; a port alone would not do, since two proxies that listen with
/// SO_REUSEPORT share one without a complaint.
pub fn fresh() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(
        number < 1 << 12,
        "more servers than one process has addresses for"
    );
    let [_, a, b, c] = ((std::process::id() & 0x7ff) << 12 | number).to_be_bytes();
    Ipv4Addr::new(127, 0x80 | a, b, c)
}

/// The same with the usual port.
pub fn fresh_socket() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(fresh()), PORT)
}

/// A port of 127.0.0.1, for those that listen on nothing but the addresses of an interface, as named does. Below the ports that
/// systems hand out by themselves.
pub fn fresh_port() -> SocketAddr {
    fresh_port_of(Ipv4Addr::LOCALHOST.into(), 10_000)
}

/// A port of `::1`, which is the only IPv6 loopback address there is. Ports that the system hands
/// out are left to the clients.
pub fn fresh_ipv6() -> SocketAddr {
    fresh_port_of(Ipv6Addr::LOCALHOST.into(), 20_000)
}

/// One of ten thousand ports from this one on.
fn fresh_port_of(ip: IpAddr, first: u16) -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..10_000 {
        let number = (std::process::id() * 61 + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let address = SocketAddr::new(ip, first + number as u16);
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port on {ip}");
}
