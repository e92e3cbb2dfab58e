//! What is at a name of a zone (RFC 1034 section 4.3.2, RFC 4592, RFC 6672).

use crate::zonefile::{Node, Redirect, Zone};

/// What a name leads to.
pub enum Found<'z> {
    /// It exists.
    Node(&'z Node),
    /// It does not, and a wildcard stands for it.
    Wildcard {
        node: &'z Node,
        /// The length of the closest name above that exists.
        encloser: usize,
    },
    /// Neither.
    Nothing {
        /// The length of the closest name above that exists.
        encloser: usize,
    },
    /// It is at or below a zone cut: the length of the name there, and what is there.
    Delegation(usize, &'z Node),
    /// It is below a DNAME: the length of the name there, and what is there.
    Dname(usize, &'z Node),
}

/// The name above: without the first label.
pub fn parent(name: &[u8]) -> &[u8] {
    match name.first() {
        Some(&length) if length > 0 => &name[1 + usize::from(length)..],
        _ => name,
    }
}

/// The name of this length that `name` ends in.
pub fn ending(name: &[u8], length: usize) -> &[u8] {
    &name[name.len() - length..]
}

/// One label below the name of a length that `name` ends in (RFC 5155 section 1.3: the next closer name).
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

/// What `name`, which is in the zone, leads to.
pub fn find<'z>(zone: &'z Zone, name: &[u8]) -> Found<'z> {
    let apex = zone.origin.as_bytes().len();
    let (mut existing, mut node) = (name, zone.node(name));
    while node.is_none() && existing.len() > apex {
        existing = parent(existing);
        node = zone.node(existing);
    }
    // The apex is there in every zone.
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
