//! Parses the keys of a server block: `dns://example.org:1053`, `10.0.0.0/8`.

use std::net::IpAddr;

use crate::config::Encryption;

/// A parsed key.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// In lower case with a final dot. Several, if a network does not end at a label.
    pub zones: Vec<String>,
    /// `None`: the process's default port. A scheme sets its own default.
    pub port: Option<u16>,
    /// The protocol; `None`: plain DNS.
    pub scheme: Option<Encryption>,
}

/// Why a text is not a key, and what to write instead.
type Wrong = (String, &'static str);

impl Key {
    /// Parses a key.
    ///
    /// # Errors
    /// The problem, and what to write instead.
    pub fn parse(text: &str) -> Result<Key, Wrong> {
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("dns", rest)) => (None, rest),
            Some(("tls", rest)) => (Some(Encryption::Tls), rest),
            Some(("https", rest)) => (Some(Encryption::Https), rest),
            Some(("quic", rest)) => (Some(Encryption::Quic), rest),
            Some((scheme, _)) => {
                let problem = format!("dnsweir does not listen for {scheme}://");
                return Err((
                    problem,
                    "serve it with another program in front, or use dns:// or tls://",
                ));
            }
        };
        // Digits after the last colon are a port. An IPv6 network ends in its length.
        let (name, port) = match rest.rsplit_once(':') {
            Some((name, port)) if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => {
                let port = port.parse().ok().filter(|port| *port != 0);
                let port = port.ok_or_else(|| {
                    (
                        format!("{text} has no valid port"),
                        "write a port from 1 to 65535",
                    )
                })?;
                (name, Some(port))
            }
            _ => (rest, None),
        };
        // `:1053` is the root zone.
        let name = if name.is_empty() { "." } else { name };
        Ok(Key {
            zones: zones(name)?,
            port: port.or(scheme.map(Encryption::port)),
            scheme,
        })
    }
}

/// The zones of a name or network.
///
/// # Errors
/// The problem, and what to write instead.
pub fn zones(name: &str) -> Result<Vec<String>, Wrong> {
    if let Some((address, length)) = name.split_once('/')
        && let Ok(address) = address.parse::<IpAddr>()
    {
        let length = length.parse::<u8>().ok();
        let zones = length.and_then(|length| reverse_zones(address, length));
        return zones.ok_or_else(|| (format!("{name} is not a network"), "write it like 10.0.0.0/8"));
    }
    let zone = name.trim_end_matches('.').to_ascii_lowercase();
    let labels = zone.split('.');
    let valid = zone.is_empty() || labels.clone().all(|label| (1..64).contains(&label.len()));
    if !valid || zone.len() > 253 || zone.contains([':', '/', '{', '}', '"']) {
        return Err((
            format!("{name} is not a domain name"),
            "write it like example.org or 10.0.0.0/8",
        ));
    }
    Ok(vec![format!("{zone}.")])
}

/// The reverse zones of a network; `None` if the length is invalid.
fn reverse_zones(address: IpAddr, length: u8) -> Option<Vec<String>> {
    let (octets, per_label, bits, suffix) = match address {
        IpAddr::V4(address) => (address.octets().to_vec(), 8, 32, "in-addr.arpa."),
        IpAddr::V6(address) => {
            let nibbles = address
                .octets()
                .into_iter()
                .flat_map(|octet| [octet >> 4, octet & 15]);
            (nibbles.collect(), 4, 128, "ip6.arpa.")
        }
    };
    if length > bits {
        return None;
    }
    let labels = usize::from(length.div_ceil(per_label));
    let open = labels as u32 * u32::from(per_label) - u32::from(length);
    let name = |last: u8| {
        let fixed = octets[..labels.saturating_sub(1)].iter().rev().copied();
        let labels = (labels > 0).then_some(last).into_iter().chain(fixed);
        let text: String = labels
            .map(|label| match bits {
                32 => format!("{label}."),
                _ => format!("{label:x}."),
            })
            .collect();
        text + suffix
    };
    let first = labels
        .checked_sub(1)
        .map_or(0, |last| octets[last] >> open << open);
    Some((0..1u16 << open).map(|step| name(first + step as u8)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_zones_and_ports() {
        for (text, zones, port) in [
            (".", &["."][..], None),
            (".:53", &["."], Some(53)),
            (":1053", &["."], Some(1053)),
            ("dns://Example.org.:5300", &["example.org."], Some(5300)),
            ("10.0.0.0/8", &["10.in-addr.arpa."], None),
            ("10.0.0.0/8:53", &["10.in-addr.arpa."], Some(53)),
            (
                "10.1.4.0/23",
                &["4.1.10.in-addr.arpa.", "5.1.10.in-addr.arpa."],
                None,
            ),
            ("10.1.2.3/32", &["3.2.1.10.in-addr.arpa."], None),
            ("0.0.0.0/0", &["in-addr.arpa."], None),
            ("2001:db8::/32:53", &["8.b.d.0.1.0.0.2.ip6.arpa."], Some(53)),
            ("fd00::/8", &["d.f.ip6.arpa."], None),
            (
                "2001:db8::/31",
                &["8.b.d.0.1.0.0.2.ip6.arpa.", "9.b.d.0.1.0.0.2.ip6.arpa."],
                None,
            ),
        ] {
            let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
            let scheme = None;
            assert_eq!(Key::parse(text), Ok(Key { zones, port, scheme }), "{text}");
        }
        for text in ["grpc://.", "a..b", "10.0.0.0/33", ".:0", ".:70000", "a:b", "{}"] {
            assert!(Key::parse(text).is_err(), "{text}");
        }
    }
}
