//! What is known of an upstream, and how upstreams are asked.

use std::net::{IpAddr, SocketAddr};

/// `"192.0.2.1"`, or `"tls://192.0.2.1%dns.example:853"`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    /// What its certificate is for; none: the address.
    pub name: Option<String>,
    /// Over HTTPS: what is asked for there; begins with a slash.
    pub path: Option<String>,
}

impl Upstream {
    /// As it would be written.
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

/// `"https://dns.example/dns-query"`: an upstream whose addresses are asked of others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedUpstream {
    /// What its certificate is for, in lower case.
    pub host: String,
    /// Where it listens.
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

/// An answer that is left to the next stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Next {
    /// There is no such name.
    Nxdomain,
    /// The name has no records of the type.
    Nodata,
    /// No upstream could answer.
    Servfail,
    /// No upstream would.
    Refused,
}

/// How an upstream is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// Over UDP, and over TCP what does not fit.
    #[default]
    Udp,
    /// Over TCP only.
    Tcp,
    /// So that nobody on the way can read it.
    Encrypted(Encryption),
}

/// What is spoken where nobody on the way can read it; the scheme of an address.
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
    /// The scheme, and the word of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Encryption::Tls => "tls",
            Encryption::Https => "https",
            Encryption::Quic => "quic",
        }
    }

    /// The port where none is written.
    pub fn port(self) -> u16 {
        match self {
            // RFC 7858 section 3.1, RFC 9250 section 4.1.1.
            Encryption::Tls | Encryption::Quic => 853,
            Encryption::Https => 443,
        }
    }

    /// What is spoken upon TLS, as the registry of RFC 7301 section 6 calls it.
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
    /// Any.
    #[default]
    Random,
    /// The one after the last.
    RoundRobin,
    /// The first in the list that is not out.
    Sequential,
}
