//! Names of a cluster, label by label.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::index::Entry;
use super::objects::Port;
use super::rules::Schema;
use crate::dns::name::NAME_MAXIMUM;

/// Labels of the longest name that stands for something: `_port._protocol.service.namespace.svc`.
const MOST_LABELS: usize = 5;

/// A name's labels below its zone, from the left.
pub struct Labels<'a> {
    name: &'a [u8],
    begins: [usize; MOST_LABELS + 1],
    /// How many they are.
    pub count: usize,
    /// Whether ports are asked for, and not only addresses.
    each_port: bool,
}

impl<'a> Labels<'a> {
    /// Those of `name` before `end`, of which `each_port` is asked for or one; none if there are too many for anything.
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

    /// The label at this place from the right, without its length.
    pub fn get(&self, from_right: usize) -> &'a [u8] {
        match self.count.checked_sub(from_right + 1) {
            Some(index) => &self.name[self.begins[index] + 1..self.begins[index + 1]],
            None => &[],
        }
    }

    /// Those in front of so many from the right.
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

    /// In wire format, those from one place to another, both counted from the right.
    pub fn wire(&self, from: usize, to: usize) -> &'a [u8] {
        &self.name[self.begins[self.count - from - 1]..self.begins[self.count - to]]
    }
}

/// The labels of a name in front of its service's: none, an endpoint's, or those of a port and its protocol.
pub struct Front<'a> {
    /// Each without its length, from the left.
    pub labels: [&'a [u8]; 2],
    /// How many they are.
    pub count: usize,
    /// Whether they are a port's.
    pub is_port: bool,
    /// Whether each port of an address is asked for, or any of them.
    pub each_port: bool,
    /// All of them, in wire format.
    pub wire: &'a [u8],
}

impl Front<'_> {
    /// Whether the names of endpoints stand below it, which are in the cluster with this name.
    pub(crate) fn is_cluster_of(&self, entry: &Entry) -> bool {
        let above = |label: &[u8]| label.len() > self.wire.len() && label.ends_with(self.wire);
        self.count == 1
            && entry.service.is_some()
            && entry
                .slices()
                .any(|(endpoints, _)| endpoints.iter().any(|endpoint| above(&endpoint.label)))
    }

    /// Whether the names of ports stand below it.
    pub(crate) fn is_protocol_of<'p>(&self, mut ports: impl Iterator<Item = &'p Port>) -> bool {
        let protocol = self.labels[0].strip_prefix(b"_");
        protocol
            .is_some_and(|protocol| ports.any(|port| *port.protocol == *protocol && !port.name.is_empty()))
    }
}

/// The name of a service in a zone, or of an endpoint of it with this label, in wire format, if it is not too long for one.
pub(crate) fn full_name(label: &[u8], service: &[u8], schema: &Schema, zone: &[u8]) -> Option<Vec<u8>> {
    let name = [label, service, schema.middle(), zone].concat();
    (name.len() <= NAME_MAXIMUM).then_some(name)
}

/// Whether names that end like this are those of addresses.
pub fn is_reverse(name: &[u8]) -> bool {
    name.ends_with(b"\x07in-addr\x04arpa\0") || name.ends_with(b"\x03ip6\x04arpa\0")
}

/// The address whose name this is (RFC 1035 section 3.5, RFC 3596 section 2.5).
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
