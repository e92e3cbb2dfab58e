//! Upstreams, and how they are asked.

use std::net::{IpAddr, SocketAddr};

/// `"192.0.2.1"`, or `"tls://192.0.2.1%dns.example:853"`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// The address it listens on.
    pub address: SocketAddr,
    /// The name in its certificate; `None`: the address.
    pub name: Option<String>,
    /// Only for HTTPS: the path of the URL, starting with a slash.
    pub path: Option<String>,
}

impl Upstream {
    /// Writes it as in the configuration.
    pub fn spelled(&self, protocol: Protocol) -> String {
        let Protocol::Encrypted(encryption) = protocol else {
            return self.address.to_string();
        };
        let (scheme, port) = (encryption.word(), self.address.port());
        let path = self.path.as_deref().unwrap_or_default();
        let host = match (&self.name, self.address) {
            (None, address) => return format!("{scheme}://{address}{path}"),
            (Some(name), SocketAddr::V4(address)) => format!("{}%{name}", address.ip()),
            (Some(name), SocketAddr::V6(address)) => format!("[{}]%{name}", address.ip()),
        };
        format!("{scheme}://{host}:{port}{path}")
    }
}

/// `"https://dns.example/dns-query"`: an upstream whose addresses must be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedUpstream {
    /// The name in its certificate, in lower case.
    pub host: String,
    /// The port it listens on.
    pub port: u16,
    /// As [`Upstream::path`].
    pub path: Option<String>,
}

impl NamedUpstream {
    /// The upstream at one of its addresses.
    pub fn at(&self, ip: IpAddr) -> Upstream {
        Upstream {
            address: SocketAddr::new(ip, self.port),
            name: Some(self.host.clone()),
            path: self.path.clone(),
        }
    }
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Upstream {
        Upstream {
            address,
            name: None,
            path: None,
        }
    }
}

/// An outcome after which the next stage is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Next {
    /// The name does not exist.
    Nxdomain,
    /// The name has no records of the type.
    Nodata,
    /// No upstream could answer.
    Servfail,
    /// The upstream refused.
    Refused,
}

/// The protocol used to ask an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// UDP, then TCP for truncated replies.
    #[default]
    Udp,
    /// TCP only.
    Tcp,
    /// An encrypted protocol.
    Encrypted(Encryption),
}

/// An encrypted protocol, selected by the scheme of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// `tls://`: TLS (RFC 7858).
    Tls,
    /// `https://`: HTTPS (RFC 8484).
    Https,
    /// `quic://`: QUIC (RFC 9250).
    Quic,
}

impl Encryption {
    /// The scheme, also used in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Encryption::Tls => "tls",
            Encryption::Https => "https",
            Encryption::Quic => "quic",
        }
    }

    /// The default port.
    pub fn port(self) -> u16 {
        match self {
            // RFC 7858 section 3.1, RFC 9250 section 4.1.1.
            Encryption::Tls | Encryption::Quic => 853,
            Encryption::Https => 443,
        }
    }

    /// The ALPN protocol name (registry of RFC 7301 section 6).
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Encryption::Tls => b"dot",
            Encryption::Https => b"h2",
            Encryption::Quic => b"doq",
        }
    }
}

/// Which upstream is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// A random one.
    #[default]
    Random,
    /// The one after the last one used.
    RoundRobin,
    /// The first in the list that is not out of use.
    Sequential,
}
