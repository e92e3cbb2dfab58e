//! A manifest's requests as text.

use crate::filter::bindings::dnsweir::filter::types::{Detail, Manifest, Outcome};
use crate::filter::text;

/// Maximum bytes of a name chosen by the filter; longer ones are cut.
const NAME: usize = 1024;

/// A filter's manifest as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The phases it takes part in.
    pub phases: Vec<&'static str>,
    /// The qtypes it handles; empty: all.
    pub qtypes: Vec<u16>,
    /// The suffixes of names it handles; empty: all.
    pub suffixes: Vec<String>,
    /// Whether responses and events include the message.
    pub messages: bool,
    /// Whether it may request lookups before it decides.
    pub asks: bool,
    /// The details of queries that it requests, with the interface's names.
    pub details: Vec<String>,
    /// The sources it may send queries to, by their names in the configuration.
    pub sources: Vec<String>,
    /// The outcomes for which its event phase receives events; empty: all.
    pub outcomes: Vec<&'static str>,
    /// Its tables.
    pub tables: Vec<DeclaredTable>,
}

/// A table that a filter's instances share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredTable {
    /// Its name.
    pub name: String,
    /// Maximum bytes.
    pub octets: u32,
    /// Whether the metrics show its contents.
    pub shown: bool,
}

impl Declared {
    /// Describes this manifest.
    pub(super) fn new(manifest: &Manifest) -> Declared {
        let phases = [
            ("query", manifest.queries),
            ("response", manifest.responses),
            ("event", manifest.events),
        ];
        let names = |names: &[String]| names.iter().map(|name| text::one_line(name, NAME)).collect();
        let tables = manifest.tables.iter().map(|shape| DeclaredTable {
            name: text::one_line(&shape.name, NAME),
            octets: shape.octets,
            shown: shape.shown,
        });
        Declared {
            phases: phases
                .into_iter()
                .filter_map(|(name, wanted)| wanted.then_some(name))
                .collect(),
            qtypes: manifest.qtypes.clone(),
            suffixes: names(&manifest.suffixes),
            messages: manifest.messages,
            asks: manifest.asks,
            details: manifest.details.iter().map(detail).collect(),
            sources: names(&manifest.sources),
            outcomes: manifest.outcomes.iter().copied().map(outcome).collect(),
            tables: tables.collect(),
        }
    }
}

fn detail(detail: &Detail) -> String {
    let named = |kind: &str, name: &str| format!("{kind} {}", text::one_line(name, NAME));
    match detail {
        Detail::EdnsOption(code) => format!("edns-option {code}"),
        Detail::EdnsOptions => "edns-options".to_owned(),
        Detail::Listener => "listener".to_owned(),
        Detail::ServerName => "server-name".to_owned(),
        Detail::Identity => "identity".to_owned(),
        Detail::PodLabel(name) => named("pod-label", name),
        Detail::PodAnnotation(name) => named("pod-annotation", name),
        Detail::NamespaceLabel(name) => named("namespace-label", name),
        Detail::NamespaceAnnotation(name) => named("namespace-annotation", name),
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Denial => "denial",
        Outcome::Error => "error",
    }
}
