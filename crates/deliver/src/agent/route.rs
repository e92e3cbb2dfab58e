//! Finds servers, and decides which may be contacted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dnsweir_http::{Endpoint, Way};
use hyper::Uri;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use tokio::net::lookup_host;
use url::{Host, Position, Url};

use super::error::Error;
use super::upstreams::Upstreams;
use crate::config::Network;
use crate::tls::Trust;

/// The most addresses of a server that are tried.
const ADDRESSES: usize = 8;

/// How servers are found, and which may be contacted.
#[derive(Debug)]
pub struct Route {
    /// What finds their addresses.
    pub resolver: Resolver,
    /// A host whose address is in the configuration.
    pub address: Option<(String, IpAddr)>,
    /// Hosts in the configuration, as in URLs. All others must be public: we may reach a cloud's metadata service or a
    /// kubelet, which the servers that lead there may not. `None`: a proxy or the user decides.
    pub written: Option<Vec<String>>,
    /// An HTTP proxy that leads to all servers, and finds them.
    pub proxy: Option<Url>,
    /// How their certificates are verified.
    pub trust: Trust,
    /// Whether redirects must keep the scheme. They never lead from https to http.
    pub keeps_scheme: bool,
}

/// What finds the addresses of servers.
#[derive(Debug)]
pub enum Resolver {
    /// The configuration's upstreams.
    Upstreams(Upstreams),
    /// The system's resolver: `/etc/hosts` and `/etc/resolv.conf`.
    System,
}

impl Route {
    /// Returns the server of a URL, with the way to it.
    ///
    /// # Errors
    /// If it is not found, or may not be contacted.
    pub(super) async fn endpoint(&self, url: &Url) -> Result<Endpoint, Error> {
        let wrong = |problem: String| Error::Refused(format!("{} {problem}", &url[..Position::AfterPath]));
        // Without user and password.
        let server = url.origin().ascii_serialization().parse::<Uri>();
        let server = server.map_err(|error| wrong(format!("is not a URL: {error}")))?;
        let endpoint = Endpoint::new(&server, &self.trust, None).map_err(wrong)?;
        Ok(endpoint.by(match &self.proxy {
            None => Way::Addresses(self.addresses(url).await?),
            Some(proxy) => {
                if let Some(ip) = literal(url) {
                    self.permitted(url, vec![ip])?;
                }
                Way::Proxy(self.addresses(proxy).await?, authorization(proxy))
            }
        }))
    }

    /// Finds the addresses of a URL's host that may be contacted.
    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, Error> {
        let host = url.host_str().unwrap_or_default();
        let found = match (literal(url), &self.address) {
            (Some(ip), _) => vec![ip],
            (None, Some((written, ip))) if written == host => vec![*ip],
            (None, _) => self.resolver.find(host).await?,
        };
        let port = url.port_or_known_default().unwrap_or_default();
        let permitted = alternating(self.permitted(url, found)?).take(ADDRESSES);
        Ok(permitted.map(|ip| SocketAddr::new(ip, port)).collect())
    }

    /// Returns those of a host's addresses that may be contacted.
    fn permitted(&self, url: &Url, mut found: Vec<IpAddr>) -> Result<Vec<IpAddr>, Error> {
        let host = url.host_str().unwrap_or_default();
        if let Some(written) = &self.written
            && !written.iter().any(|written| written == host)
        {
            found.retain(|ip| !is_inside(*ip));
        }
        match found.is_empty() {
            true => Err(Error::Refused(format!(
                "it leads to {host}: only a host that the configuration names may have a private address"
            ))),
            false => Ok(found),
        }
    }
}

impl Resolver {
    async fn find(&self, host: &str) -> Result<Vec<IpAddr>, Error> {
        match self {
            Resolver::Upstreams(upstreams) => {
                let found = upstreams.addresses(host).await;
                found.map_err(|error| Error::Refused(format!("no address of {host}: {error}")))
            }
            Resolver::System => match lookup_host((host, 0)).await {
                Ok(found) => Ok(found.map(|address| address.ip()).collect()),
                Err(error) => Err(Error::Refused(format!(
                    "no address of {host}: dns error: {error}"
                ))),
            },
        }
    }
}

/// Returns addresses of both families in turn, IPv6 first: one of them may lead nowhere (RFC 8305 section 4).
fn alternating(found: Vec<IpAddr>) -> impl Iterator<Item = IpAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = found.into_iter().partition(IpAddr::is_ipv6);
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    std::iter::from_fn(move || Some([v6.next(), v4.next()]))
        .take_while(|pair| pair.iter().any(Option::is_some))
        .flat_map(|pair| pair.into_iter().flatten())
}

/// Returns the address that a URL has in place of a name.
fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(ip) => Some(ip.into()),
        Host::Ipv6(ip) => Some(ip.into()),
        Host::Domain(_) => None,
    }
}

/// Returns whether an address is this machine's or in a private network, including IPv6 addresses that lead to
/// one: mapped ones (RFC 4291 section 2.5.5.2), and those of translators and tunnels.
fn is_inside(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_special = match ip {
        IpAddr::V4(v4) => v4.octets()[0] == 0,
        IpAddr::V6(v6) => match v6.segments() {
            // To an IPv4 address: RFC 6052 section 2.1, RFC 3056 section 2.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                is_inside(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into())
            }
            // To whatever an operator chose (RFC 8215), and site-local addresses (RFC 3879).
            [0x64, 0xff9b, 1, ..] | [0xfec0..=0xfeff, ..] => true,
            _ => v6.is_unspecified(),
        },
    };
    is_special || Network::is_private(ip)
}

/// Returns the credentials in a proxy's URL, if it has any.
fn authorization(proxy: &Url) -> Option<HeaderValue> {
    let (user, password) = (proxy.username(), proxy.password());
    if user.is_empty() && password.is_none() {
        return None;
    }
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy();
    basic(&decoded(user), &decoded(password.unwrap_or_default()))
}

/// Returns the header for a user and a password (RFC 7617).
pub fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_that_lead_inside_are_inside() {
        let inside = [
            "10.0.0.5",
            "0.1.2.3",
            "::",
            "::ffff:10.0.0.5",
            "64:ff9b::a00:5",
            "2002:a00:5::1",
            "64:ff9b:1::1",
            "fec0::1",
            "fd00::1",
            "fe80::1",
            "64:ff9b::7f00:1",
        ];
        for ip in addresses(&inside) {
            assert!(is_inside(ip), "{ip}");
        }
        for ip in addresses(&[
            "192.88.99.1",
            "2001:db8::1",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ]) {
            assert!(!is_inside(ip), "{ip}");
        }
    }

    /// No family is left out, however many addresses the other one has.
    #[test]
    fn both_families_are_tried() {
        let found = addresses(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"]);
        let tried: Vec<IpAddr> = alternating(found).collect();
        assert_eq!(
            tried,
            addresses(&["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"])
        );
    }
}
