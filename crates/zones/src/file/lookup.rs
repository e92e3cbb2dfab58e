//! Finds what a name of a zone leads to (RFC 1034 section 4.3.2, RFC 4592, RFC 6672).

use crate::zonefile::{Node, Redirect, Zone};

/// What a name leads to.
pub enum Found<'z> {
    /// The name exists.
    Node(&'z Node),
    /// The name does not exist; a wildcard stands for it.
    Wildcard {
        node: &'z Node,
        /// The length of the closest existing name above.
        encloser: usize,
    },
    /// Neither the name nor a wildcard for it exists.
    Nothing {
        /// The length of the closest existing name above.
        encloser: usize,
    },
    /// The name is at or below a zone cut: the length of the cut's name, and its node.
    Delegation(usize, &'z Node),
    /// The name is below a DNAME: the length of the DNAME's name, and its node.
    Dname(usize, &'z Node),
}

/// The name without its first label.
pub fn parent(name: &[u8]) -> &[u8] {
    match name.first() {
        Some(&length) if length > 0 => &name[1 + usize::from(length)..],
        _ => name,
    }
}

/// The suffix of `name` with this length.
pub fn ending(name: &[u8], length: usize) -> &[u8] {
    &name[name.len() - length..]
}

/// The suffix of `name` one label longer than `encloser` (RFC 5155 section 1.3: the next closer name).
pub(crate) fn next_closer(name: &[u8], encloser: usize) -> &[u8] {
    let mut closer = name;
    while parent(closer).len() > encloser {
        closer = parent(closer);
    }
    closer
}

/// The wildcard directly below a name.
pub fn wildcard(encloser: &[u8]) -> Vec<u8> {
    [b"\x01*", encloser].concat()
}

/// Finds what `name`, which must be in the zone, leads to.
pub fn find<'z>(zone: &'z Zone, name: &[u8]) -> Found<'z> {
    let apex = zone.origin.as_bytes().len();
    let (mut existing, mut node) = (name, zone.node(name));
    while node.is_none() && existing.len() > apex {
        existing = parent(existing);
        node = zone.node(existing);
    }
    // Every zone has its apex.
    let Some(node) = node else {
        return Found::Nothing { encloser: apex };
    };
    match node.redirect {
        Some((length, redirect)) => {
            let length = usize::from(length);
            if let Some(there) = zone.node(ending(name, length)) {
                return match redirect {
                    Redirect::Delegation => Found::Delegation(length, there),
                    Redirect::Dname => Found::Dname(length, there),
                };
            }
        }
        None if existing.len() == name.len() => return Found::Node(node),
        None if node.set(crate::dns::rtype::DNAME).is_some() => return Found::Dname(existing.len(), node),
        None => {}
    }
    let encloser = existing.len();
    match zone.node(&wildcard(existing)) {
        Some(node) => Found::Wildcard { node, encloser },
        None => Found::Nothing { encloser },
    }
}
