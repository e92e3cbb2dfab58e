//! Addresses that nothing else uses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// The port of the tests' servers. Below the ephemeral ports.
pub const PORT: u16 = 5300;

/// Returns a loopback address that no other server of this or another test process has. All of 127.0.0.0/8 is
/// on `lo`. A port alone would not do: two proxies that listen with SO_REUSEPORT would share one without an
/// error.
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

/// Returns such an address with the usual port.
pub fn fresh_socket() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(fresh()), PORT)
}

/// Returns a port of 127.0.0.1, for servers that only listen on addresses of an interface, such as named.
/// Below the ephemeral ports.
pub fn fresh_port() -> SocketAddr {
    fresh_port_of(Ipv4Addr::LOCALHOST.into(), 10_000)
}

/// Returns a port of `::1`, the only IPv6 loopback address. The ephemeral ports are left to clients.
pub fn fresh_ipv6() -> SocketAddr {
    fresh_port_of(Ipv6Addr::LOCALHOST.into(), 20_000)
}

/// Returns one of ten thousand ports, from `first` on.
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
