//! Parses zone names.

use std::net::IpAddr;

use kdl::KdlValue;

use super::decode::Wrong;
use super::network::{self, Network};
use crate::dns::name::Name;

/// Reads a zone name in presentation format (RFC 1035 section 5.1), in lower case with a final dot.
pub fn zone_name(value: &KdlValue) -> Result<String, Wrong> {
    let text = super::decode::text(value)?;
    if text.is_empty() {
        return Err(Wrong::new("is not a name", "write \".\" for every name"));
    }
    if !text.is_ascii() {
        let help = "write it in ASCII, with labels such as \"xn--bcher-kva\"";
        return Err(Wrong::new("is not in ASCII", help));
    }
    if let Some(help) = reverse_zones(&text) {
        let what = if text.contains('/') {
            "a network"
        } else {
            "an address"
        };
        return Err(Wrong::new(format!("is {what}, not a zone"), help));
    }
    if text == "*" || text.starts_with("*.") {
        let rest = text.get(2..).filter(|rest| !rest.is_empty()).unwrap_or(".");
        let help = format!("write {rest:?}: a zone covers its name and everything below");
        return Err(Wrong::new("is a wildcard, not a zone", help));
    }
    let name = Name::parse(&text).ok().filter(is_plain);
    name.map(|name| name.to_string()).ok_or_else(|| {
        // RFC 1035 section 2.3.4: at most 63 octets per label, 255 per name on the wire.
        let help = "write \"cluster.local\", or \".\" for every name; a label has 1 to 63 characters, a name at most 253";
        Wrong::new("is not a domain name", help)
    })
}

/// Whether a name is that of a zone, or below it; both as [`zone_name`] returns them.
pub(super) fn is_within(name: &str, zone: &str) -> bool {
    zone == "." || name == zone || name.ends_with(&format!(".{zone}"))
}

/// Whether it has only characters that are used in names of zones. Any other is probably a mistake.
fn is_plain(name: &Name) -> bool {
    let mut rest = name.as_bytes();
    while let [length @ 1..=u8::MAX, tail @ ..] = rest {
        let (label, next) = tail.split_at(usize::from(*length).min(tail.len()));
        let is_plain = |(index, octet): (usize, &u8)| match octet {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' => true,
            b'-' => index > 0,
            b'*' => index == 0,
            _ => false,
        };
        if !label.iter().enumerate().all(is_plain) {
            return false;
        }
        rest = next;
    }
    true
}

/// What to write instead of an address or prefix; `None` if `text` is neither.
fn reverse_zones(text: &str) -> Option<String> {
    let (address, length) = network::parse(text)?;
    let length = length?;
    let (first, _) = Network::of(address, length)?.bounds();
    // IPv4 reverse zones are cut at octets (RFC 1035 section 3.5), IPv6 ones at nibbles (RFC 3596 section 2.5).
    let (bits, suffix): (u8, &str) = match address {
        IpAddr::V4(_) => (8, "in-addr.arpa"),
        IpAddr::V6(_) => (4, "ip6.arpa"),
    };
    if length == 0 {
        return Some(format!("write {suffix:?}"));
    }
    let labels = length.div_ceil(bits);
    let after = |label: u8| 128 - u32::from(label * bits);
    let spell = |address: u128| {
        let labels = (1..=labels).rev().map(|label| {
            let digit = address >> after(label) & ((1 << bits) - 1);
            match bits {
                4 => format!("{digit:x}."),
                _ => format!("{digit}."),
            }
        });
        labels.collect::<String>() + suffix
    };
    // A prefix that ends inside a digit covers a range of its values.
    let run = 1u128 << (labels * bits - length);
    let last = first | (run - 1) << after(labels);
    Some(match run {
        1 => format!("write its reverse zone: {:?}", spell(first)),
        run => format!(
            "write its {run} reverse zones, from {:?} to {:?}",
            spell(first),
            spell(last)
        ),
    })
}
