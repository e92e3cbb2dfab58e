//! The words of a zone that name sources of answers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kdl::KdlNode;

use super::decode::{Decoder, Shape, block, child, text};
use super::forward::{self, FORWARD, Forward};
use super::kubernetes::{self, KUBERNETES, Kubernetes};
use super::lists::{LISTS, List, Lists};
use super::secondary::{SECONDARY, Secondary};
use super::service_entries::{SERVICE_ENTRIES, ServiceEntries};
use super::words::words;
use super::zone_file::{self, FILE, ZoneFile};

/// The sources: word, variant, and table.
macro_rules! sources {
    ($( $(#[$meta:meta])* $word:literal $Variant:ident($Config:ty) in $TABLE:ident; )*) => {
        /// A source of answers; one variant per word.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum SourceConfig {
            $( $(#[$meta])* $Variant($Config), )*
        }

        /// The words that name sources.
        pub(super) const WORDS: &[&str] = &[$($word),*];

        /// Decodes a node named by one of [`WORDS`].
        pub(super) fn decode(decoder: &mut Decoder, node: &KdlNode) -> Option<SourceConfig> {
            match node.name().value() {
                $( $word => Some(SourceConfig::$Variant($TABLE.read(decoder, node))), )*
                _ => None,
            }
        }
    };
}

sources! {
    /// `forward "ADDRESS"… { … }`
    "forward" Forward(Forward) in FORWARD;
    /// `kubernetes { … }`
    "kubernetes" Kubernetes(Kubernetes) in KUBERNETES;
    /// `service-entries { … }`
    "service-entries" ServiceEntries(ServiceEntries) in SERVICE_ENTRIES;
    /// `file "PATH" { … }`
    "file" File(ZoneFile) in FILE;
    /// `secondary "ADDRESS"… { … }`
    "secondary" Secondary(Secondary) in SECONDARY;
    /// `lists { … }`
    "lists" Lists(Lists) in LISTS;
}

/// `source "NAME" { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSource {
    /// Its name in filters.
    pub name: String,
    /// Its source.
    pub source: SourceConfig,
}

words! {
    () in SOURCE(1..=1): r#"source "eu" { forward "192.0.2.53" }"#;
    by hand {
        /// The upstreams, without `except` and `next`.
        hand "forward" = ("required") in forward::FORWARD, "addresses and paths";
    }
}

/// What a source is checked against. Includes sources that need a zone, for which a better error follows.
const CHECKED: Shape = Shape {
    children: WORDS,
    ..SOURCE.shape
};

/// Decodes the `source` nodes, to which filters may send queries.
pub(super) fn decode_named<'k>(
    decoder: &mut Decoder,
    nodes: impl Iterator<Item = &'k KdlNode>,
) -> Vec<NamedSource> {
    decoder.around.zones.clear();
    let mut met = Vec::new();
    let mut sources = Vec::new();
    for node in nodes {
        decoder.check(node, &CHECKED);
        let name = decoder.argument(node, text);
        let inner = WORDS.iter().find_map(|word| child(block(node), word));
        let Some(inner) = inner else {
            // If there is anything else, `check` has reported it.
            if block(node).is_empty() {
                let help = format!("write one: {}", SOURCE.shape.example);
                decoder.report(node, "this source has nothing that answers", help);
            }
            continue;
        };
        let word = inner.name().value();
        if word != "forward" {
            let problem = format!("`{word}` answers for the names of a zone, and a named source has none");
            decoder.report(inner, problem, "write it in a zone");
            continue;
        }
        for word in forward::PASSES_ON {
            if let Some(passes_on) = child(block(inner), word) {
                let problem =
                    format!("`{word}` leaves queries to the next stage, and a named source has none");
                decoder.report(passes_on, problem, "remove it");
            }
        }
        let (Some(name), Some(source)) = (name, decode(decoder, inner)) else {
            continue;
        };
        let problem = format!("source {name:?} is written twice");
        if decoder.meet(&mut met, name.clone(), node, problem, "rename one of them") {
            sources.push(NamedSource { name, source });
        }
    }
    sources
}

/// Whether a node named by one of [`WORDS`], in a zone with the names `zones`, leaves some queries to the
/// stages below it.
pub(super) fn passes_on(node: &KdlNode, zones: &[String]) -> bool {
    match node.name().value() {
        // Names that are no host, or on no list, are always left to other stages.
        "service-entries" | "lists" => return true,
        "file" if zone_file::is_part(node, zones) => return true,
        _ => {}
    }
    let mut words = forward::PASSES_ON.iter().chain(&kubernetes::PASSES_ON);
    words.any(|word| child(block(node), word).is_some())
}

impl SourceConfig {
    /// The names that it answers for, with everything below them; none if it has no zone of its own.
    pub(super) fn origins(&self) -> Vec<String> {
        match self {
            SourceConfig::Forward(_) | SourceConfig::ServiceEntries(_) | SourceConfig::Lists(_) => Vec::new(),
            SourceConfig::Kubernetes(kubernetes) => {
                let external = kubernetes.external.iter().flat_map(|external| &external.zones);
                let others = external.chain(&kubernetes.multicluster).cloned();
                [kubernetes.domain.clone()].into_iter().chain(others).collect()
            }
            SourceConfig::File(file) => file.zones.iter().map(|zone| zone.origin.to_string()).collect(),
            SourceConfig::Secondary(secondary) => secondary.origins.clone(),
        }
    }

    /// Whether it also handles ANY queries.
    pub fn wants_any(&self) -> bool {
        matches!(self, SourceConfig::Forward(forward) if forward.any)
    }

    /// Whether it may answer two clients differently.
    pub fn decides_by_client(&self) -> bool {
        match self {
            SourceConfig::Kubernetes(kubernetes) => kubernetes.autopath.is_some(),
            SourceConfig::Lists(lists) => lists.lists.iter().any(List::is_for_some),
            SourceConfig::Forward(_)
            | SourceConfig::ServiceEntries(_)
            | SourceConfig::File(_)
            | SourceConfig::Secondary(_) => false,
        }
    }

    /// A hash of the configuration: sources with the same hash give the same answers.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_names_a_source_is_a_stage() {
        let stages = crate::zone::ZONE.shape.children;
        assert!(stages.ends_with(super::WORDS), "{stages:?}");
    }
}
