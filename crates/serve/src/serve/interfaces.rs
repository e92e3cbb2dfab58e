//! The addresses of this node's links, and their networks.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use crate::config::Network;

/// The networks of all addresses that the node has now; none if the kernel does not report them.
pub fn networks() -> Vec<Network> {
    let network = |address: &Address| Network::of(address.ip, length(address.mask?));
    let mut found: Vec<_> = addresses().iter().filter_map(network).collect();
    // A prefix of length 0 would contain every client.
    found.retain(|network| network.length > 0);
    found.sort_unstable_by_key(|network| (network.address, network.length));
    found.dedup();
    found
}

/// The addresses that a link has now.
pub fn addresses_of(link: &str) -> Vec<IpAddr> {
    let here = |address: &Address| (address.link == link.as_bytes()).then_some(address.ip);
    addresses().iter().filter_map(here).collect()
}

/// Whether a link other than this one has the address.
pub(crate) fn is_on_another(ip: IpAddr, link: &str) -> bool {
    addresses()
        .iter()
        .any(|address| address.ip == ip && address.link != link.as_bytes())
}

/// An address of a link.
struct Address {
    link: Vec<u8>,
    ip: IpAddr,
    mask: Option<IpAddr>,
}

/// The node's addresses; none if the kernel does not report them.
fn addresses() -> Vec<Address> {
    let mut first = ptr::null_mut();
    // SAFETY: the kernel's answer is written to `first`, a list that lives until it is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: not null, so an element of the list, which is not freed yet.
        let interface = unsafe { &*next };
        // SAFETY: getifaddrs gives every element a name that ends with a NUL.
        let name = unsafe { CStr::from_ptr(interface.ifa_name) };
        found.extend(read(interface.ifa_addr).map(|ip| Address {
            link: name.to_bytes().to_vec(),
            ip,
            mask: read(interface.ifa_netmask),
        }));
        next = interface.ifa_next;
    }
    // SAFETY: `first` came from getifaddrs, is freed once, and nothing of it is used afterwards.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The prefix length of a netmask.
fn length(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    ones as u8
}

fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so an address that getifaddrs wrote; every one begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in; the read does not assume its alignment.
            let v4 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, a sockaddr_in6.
            let v6 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_among_them() {
        let loopback = Network::of(Ipv4Addr::LOCALHOST.into(), 8);
        let networks = networks();
        assert!(
            networks.iter().any(|network| Some(*network) == loopback),
            "{networks:?}"
        );
        assert!(is_on_another(Ipv4Addr::LOCALHOST.into(), "dnsweir"));
        assert!(!is_on_another(Ipv4Addr::LOCALHOST.into(), "lo"));
        assert!(!is_on_another([192, 0, 2, 1].into(), "lo"));
    }
}
