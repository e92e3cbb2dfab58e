//! Values shared by several kinds of nodes: names, types, rcodes.

use kdl::{KdlNode, KdlValue};

use crate::config::decode::{Decoder, Wrong, text, word};
use crate::dns::name::Name;
use crate::dns::text::parse_type;
use crate::dns::{Origin, RCODES};

pub(super) fn rcode(decoder: &mut Decoder, node: &KdlNode) -> u16 {
    decoder.property(node, "rcode", word(&RCODES)).unwrap_or(0)
}

/// The origin of a response; by default an upstream.
pub(super) fn origin(decoder: &mut Decoder, node: &KdlNode) -> Origin {
    let origins = Origin::ALL.map(|origin| (origin.as_str(), origin));
    let origin = decoder.property(node, "source", word(&origins));
    origin.unwrap_or(Origin::Upstream)
}

pub(super) fn query_name(value: &KdlValue) -> Result<Name, Wrong> {
    Name::parse(&text(value)?).map_err(|_| {
        Wrong::new(
            "is not a domain name",
            "write \"www.example\", or \".\" for the root",
        )
    })
}

pub(super) fn query_type(value: &KdlValue) -> Result<u16, Wrong> {
    parse_type(&text(value)?).ok_or_else(|| {
        Wrong::new(
            "is not a type",
            "write \"AAAA\", or \"TYPE65280\" for one without a name",
        )
    })
}
