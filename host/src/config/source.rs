//! What answers: the words of a zone that name sources.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kdl::KdlNode;

use super::SourceConfig;
use super::decode::{Mistakes, child};
use super::forward;

/// What a zone may hold. Whatever is not `clients`, `use` or `cache` is a source.
pub(super) const IN_ZONE: &[&str] = &["clients", "use", "cache", "forward"];

/// The words that name sources.
pub(super) const WORDS: &[&str] = IN_ZONE.split_at(3).1;

/// Decodes a node that one of [`WORDS`] names.
pub(super) fn decode(
    mistakes: &mut Mistakes,
    place: &mut forward::Place<'_>,
    node: &KdlNode,
) -> Option<SourceConfig> {
    match node.name().value() {
        "forward" => Some(SourceConfig::Forward(forward::decode(mistakes, place, node))),
        _ => None,
    }
}

/// Whether a node that one of [`WORDS`] names leaves some questions to the stages below it.
pub(super) fn passes_on(node: &KdlNode) -> bool {
    let block = super::decode::block(node);
    forward::PASSES_ON.iter().any(|word| child(block, word).is_some())
}

impl SourceConfig {
    /// Whether queries for ANY are for it, too.
    pub fn wants_any(&self) -> bool {
        match self {
            SourceConfig::Forward(forward) => forward.any,
        }
    }

    /// What tells it from others: sources that agree in it say the same.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}
