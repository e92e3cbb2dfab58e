//! The labels of names in a cluster.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::index::Entry;
use super::objects::Port;
use super::rules::Schema;
use crate::dns::name::NAME_MAXIMUM;

/// The labels of the longest valid name: `_port._protocol.service.namespace.svc`.
const MOST_LABELS: usize = 5;

/// The labels of a name below its zone, from the left.
pub struct Labels<'a> {
    name: &'a [u8],
    begins: [usize; MOST_LABELS + 1],
    /// How many there are.
    pub count: usize,
    /// Whether the query asks for each port, and not only for addresses.
    each_port: bool,
}

impl<'a> Labels<'a> {
    /// Splits the part of `name` before `end`; `None` if it has more labels than any valid name.
    pub fn read(name: &'a [u8], end: usize, each_port: bool) -> Option<Labels<'a>> {
        let mut labels = Labels {
            name,
            begins: [0; MOST_LABELS + 1],
            count: 0,
            each_port,
        };
        let mut at = 0;
        while at < end {
            if labels.count == MOST_LABELS {
                return None;
            }
            labels.count += 1;
            at += 1 + usize::from(name[at]);
            labels.begins[labels.count] = at;
        }
        Some(labels)
    }

    /// The label at this position from the right, without its length byte.
    pub fn get(&self, from_right: usize) -> &'a [u8] {
        match self.count.checked_sub(from_right + 1) {
            Some(index) => &self.name[self.begins[index] + 1..self.begins[index + 1]],
            None => &[],
        }
    }

    /// The labels in front of the last `from` ones.
    pub fn front(&self, from: usize) -> Front<'a> {
        Front {
            labels: match self.count - from {
                2 => [self.get(from + 1), self.get(from)],
                _ => [self.get(from), b""],
            },
            count: self.count - from,
            is_port: self.count - from == 2,
            each_port: self.each_port,
            wire: &self.name[..self.begins[self.count - from]],
        }
    }

    /// The labels between two positions from the right, in wire format.
    pub fn wire(&self, from: usize, to: usize) -> &'a [u8] {
        &self.name[self.begins[self.count - from - 1]..self.begins[self.count - to]]
    }
}

/// The labels in front of a service's name: none, an endpoint's, or those of a port and its protocol.
pub struct Front<'a> {
    /// From the left, without length bytes.
    pub labels: [&'a [u8]; 2],
    /// How many there are.
    pub count: usize,
    /// Whether they name a port.
    pub is_port: bool,
    /// Whether the query asks for each port of an address.
    pub each_port: bool,
    /// All of them, in wire format.
    pub wire: &'a [u8],
}

impl Front<'_> {
    /// Returns whether this is the name of a cluster, with the names of its endpoints below.
    pub(crate) fn is_cluster_of(&self, entry: &Entry) -> bool {
        let above = |label: &[u8]| label.len() > self.wire.len() && label.ends_with(self.wire);
        self.count == 1
            && entry.service.is_some()
            && entry
                .slices()
                .any(|(endpoints, _)| endpoints.iter().any(|endpoint| above(&endpoint.label)))
    }

    /// Returns whether this is the name of a protocol, with the names of ports below.
    pub(crate) fn is_protocol_of<'p>(&self, mut ports: impl Iterator<Item = &'p Port>) -> bool {
        let protocol = self.labels[0].strip_prefix(b"_");
        protocol
            .is_some_and(|protocol| ports.any(|port| *port.protocol == *protocol && !port.name.is_empty()))
    }
}

/// The name of a service in a zone, or of its endpoint with this label, in wire format, unless too long.
pub(crate) fn full_name(label: &[u8], service: &[u8], schema: &Schema, zone: &[u8]) -> Option<Vec<u8>> {
    let name = [label, service, schema.middle(), zone].concat();
    (name.len() <= NAME_MAXIMUM).then_some(name)
}

/// Returns whether a name is in the reverse zones.
pub fn is_reverse(name: &[u8]) -> bool {
    name.ends_with(b"\x07in-addr\x04arpa\0") || name.ends_with(b"\x03ip6\x04arpa\0")
}

/// The address of a reverse name (RFC 1035 section 3.5, RFC 3596 section 2.5).
pub fn address_of(name: &[u8]) -> Option<IpAddr> {
    let labels = |end: &[u8]| {
        let mut rest = name.strip_suffix(end)?;
        let mut labels = Vec::new();
        while let Some((&length, after)) = rest.split_first() {
            let (label, after) = after.split_at_checked(usize::from(length))?;
            labels.push(std::str::from_utf8(label).ok()?);
            rest = after;
        }
        labels.reverse();
        Some(labels)
    };
    if let Some(labels) = labels(b"\x07in-addr\x04arpa\0") {
        let four: Ipv4Addr = labels.join(".").parse().ok()?;
        return Some(four.into());
    }
    let labels = labels(b"\x03ip6\x04arpa\0")?;
    if labels.len() != 32 || labels.iter().any(|label| label.len() != 1) {
        return None;
    }
    let six = u128::from_str_radix(&labels.concat(), 16).ok()?;
    Some(Ipv6Addr::from_bits(six).into())
}
