//! Parses addresses: `"10.96.0.10"`, `"10.96.0.10:8053"`, `"::1"`, `"[::1]:8053"`.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use kdl::KdlValue;

use super::decode::{Kind, Wrong};

/// The port of DNS (RFC 1035 section 4.2).
pub(super) const DNS_PORT: u16 = 53;

/// Reads the address of one host, or the wildcard address; `port` is the default.
pub(super) fn address(port: u16) -> impl Kind<SocketAddr> {
    move |value: &KdlValue| {
        let help = "write an IP address, with a port or without: \"10.96.0.10\", \"10.96.0.10:8053\", \"::1\", \"[::1]:8053\"";
        let Some(text) = value.as_string() else {
            return Err(Wrong::new("is not an address", help));
        };
        let Some(address) = parse(text, port) else {
            return Err(match scope(text).filter(|name| is_interface_name(name)) {
                Some(name) => Wrong::new(
                    format!("names the interface {name}, which there is not"),
                    "write one that `ip link` shows",
                ),
                None => Wrong::new("is not an IP address", help),
            });
        };
        check(address)?;
        Ok(address)
    }
}

/// Refuses an address that no host can have.
pub(super) fn check(address: SocketAddr) -> Result<(), Wrong> {
    if address.port() == 0 {
        return Err(Wrong::new(
            "has port 0, which cannot be used",
            "write a port from 1 to 65535",
        ));
    }
    if address.ip().is_multicast() || address.ip() == IpAddr::from([255; 4]) {
        return Err(Wrong::new(
            "is a multicast or broadcast address",
            "write the address of one host",
        ));
    }
    if let SocketAddr::V6(address) = address
        && address.ip().is_unicast_link_local()
        && address.scope_id() == 0
    {
        return Err(Wrong::new(
            "is a link-local address without its interface",
            "write the interface behind it: \"fe80::1%eth0\", \"[fe80::1%eth0]:8053\"",
        ));
    }
    Ok(())
}

/// Reads the IP address of one host, without a port.
pub(super) fn ip(value: &KdlValue) -> Result<IpAddr, Wrong> {
    let parsed = value.as_string().and_then(|text| text.parse::<IpAddr>().ok());
    parsed
        .filter(|ip| !ip.is_unspecified() && !ip.is_multicast())
        .ok_or_else(|| {
            Wrong::new(
                "is not the IP address of a host",
                "write one without a port: \"10.96.0.10\" or \"fd00::10\"",
            )
        })
}

/// Parses an address; the scope of an IPv6 address may be an interface's name or index.
pub(super) fn parse(text: &str, port: u16) -> Option<SocketAddr> {
    // The standard library reads only an index.
    let text = match scope(text) {
        Some(scope) => text.replacen(&format!("%{scope}"), &format!("%{}", interface_index(scope)?), 1),
        None => text.to_owned(),
    };
    let with_port = [format!("{text}:{port}"), format!("[{text}]:{port}"), text];
    with_port.iter().find_map(|text| text.parse().ok())
}

/// The interface in the scope of an IPv6 address: a name or an index.
pub(super) fn scope(text: &str) -> Option<&str> {
    let (address, scope) = text.strip_prefix('[').unwrap_or(text).split_once('%')?;
    address.parse::<Ipv6Addr>().ok()?;
    Some(scope.split_once(']').map_or(scope, |(scope, _)| scope))
}

/// The index of an interface given by its index or name.
pub(super) fn interface_index(scope: &str) -> Option<u32> {
    if let Ok(index) = scope.parse() {
        return Some(index);
    }
    if !is_interface_name(scope) {
        return None;
    }
    fs::read_to_string(format!("/sys/class/net/{scope}/ifindex"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Whether Linux allows `name` as the name of an interface: 1 to 15 bytes (IFNAMSIZ less the NUL) without
/// slashes, colons or white space, and neither `.` nor `..`.
pub(super) fn is_interface_name(name: &str) -> bool {
    let fits = (1..=15).contains(&name.len()) && name != "." && name != "..";
    fits && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':')
}
