//! What a filter needs to see.

use crate::bindings::dnsweir::filter::types as raw;
use crate::{NameBuf, Outcome, Type, budget};

/// What the host calls the filter for. Whatever is left out here costs nothing. At least one phase must be
/// enabled.
///
/// ```
/// use dnsweir_filter::{Manifest, Type};
/// let manifest = Manifest::new().queries().types([Type::A, Type::AAAA]);
/// # let _ = manifest;
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Manifest(raw::Manifest);

impl Manifest {
    /// A manifest without phases; once phases are enabled, they cover every name and type.
    pub fn new() -> Manifest {
        Manifest(raw::Manifest {
            qtypes: Vec::new(),
            suffixes: Vec::new(),
            queries: false,
            responses: false,
            events: false,
            messages: false,
            tables: Vec::new(),
            details: Vec::new(),
            asks: false,
            sources: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    /// Enables the query phase.
    pub fn queries(mut self) -> Manifest {
        self.0.queries = true;
        self
    }

    /// Enables the response phase.
    pub fn responses(mut self) -> Manifest {
        self.0.responses = true;
        self
    }

    /// Enables events.
    pub fn events(mut self) -> Manifest {
        self.0.events = true;
        self
    }

    /// Limits events to queries with one of these [outcomes](crate::Event::outcome).
    pub fn outcomes(mut self, outcomes: impl IntoIterator<Item = Outcome>) -> Manifest {
        self.0.outcomes.extend(outcomes);
        self
    }

    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn hears(&self, outcome: Outcome) -> bool {
        self.0.outcomes.is_empty() || self.0.outcomes.contains(&outcome)
    }

    /// Requests the [message](crate::Response::message) of each response and each
    /// [event](crate::Event::message). Copying it has a cost.
    pub fn messages(mut self) -> Manifest {
        self.0.messages = true;
        self
    }

    /// Allows the filter to make lookups before it decides, with [`Verdict::ask`](crate::Verdict::ask).
    pub fn asks(mut self) -> Manifest {
        self.0.asks = true;
        self
    }

    /// Requests this [EDNS option](crate::Query::edns_option) of queries.
    pub fn edns_option(mut self, code: u16) -> Manifest {
        self.0.details.push(raw::Detail::EdnsOption(code));
        self
    }

    /// Requests all [EDNS options](crate::Query::edns_options) of queries.
    pub fn edns_options(mut self) -> Manifest {
        self.0.details.push(raw::Detail::EdnsOptions);
        self
    }

    /// Requests the [listener](crate::Query::listener) of each query.
    pub fn listener(mut self) -> Manifest {
        self.0.details.push(raw::Detail::Listener);
        self
    }

    /// Requests the TLS [server name](crate::Query::server_name) of each query.
    pub fn server_name(mut self) -> Manifest {
        self.0.details.push(raw::Detail::ServerName);
        self
    }

    /// Requests the [identity](crate::Query::identity) of the client. Remembered verdicts then hold for the
    /// same identity only, and the filter must stand above `cache`.
    pub fn identity(mut self) -> Manifest {
        self.0.details.push(raw::Detail::Identity);
        self
    }

    /// Requests the client's identity, and this [label](crate::Query::pod_label) of its pod. At most 64
    /// labels and annotations in all, counting those of the next three methods.
    pub fn pod_label(mut self, name: &str) -> Manifest {
        self.0.details.push(raw::Detail::PodLabel(name.to_owned()));
        self
    }

    /// Requests the client's identity, and this [annotation](crate::Query::pod_annotation) of its pod.
    pub fn pod_annotation(mut self, name: &str) -> Manifest {
        self.0.details.push(raw::Detail::PodAnnotation(name.to_owned()));
        self
    }

    /// Requests the client's identity, and this [label](crate::Query::namespace_label) of its pod's
    /// namespace.
    pub fn namespace_label(mut self, name: &str) -> Manifest {
        self.0.details.push(raw::Detail::NamespaceLabel(name.to_owned()));
        self
    }

    /// Requests the client's identity, and this [annotation](crate::Query::namespace_annotation) of its pod's
    /// namespace.
    pub fn namespace_annotation(mut self, name: &str) -> Manifest {
        self.0
            .details
            .push(raw::Detail::NamespaceAnnotation(name.to_owned()));
        self
    }

    /// Declares that the filter may send queries to this source, `source "NAME" { forward … }` in the
    /// configuration; without such a source, the filter does not load. Returns a handle for
    /// [`Verdict::via`](crate::Verdict::via).
    ///
    /// ```
    /// use dnsweir_filter::{Manifest, Verdict};
    /// let mut manifest = Manifest::new().queries();
    /// let eu = manifest.source("eu");
    /// // and later
    /// let verdict = Verdict::pass().via(eu);
    /// # let _ = (manifest, verdict);
    /// ```
    pub fn source(&mut self, name: &str) -> NamedSource {
        let sources = &mut self.0.sources;
        let known = sources.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            sources.push(name.to_owned());
            sources.len() - 1
        });
        NamedSource(index as u16)
    }

    /// Limits the filter to queries of these types.
    pub fn types(mut self, types: impl IntoIterator<Item = Type>) -> Manifest {
        self.0.qtypes.extend(types.into_iter().map(|qtype| qtype.0));
        self
    }

    /// Limits the filter to names at or below these. A call cannot hand over more than about 900 KB of names;
    /// with more of them, the filter is called for all names, so it has to check them itself.
    pub fn at_or_below<'b>(mut self, names: impl IntoIterator<Item = &'b NameBuf>) -> Manifest {
        let suffixes = &mut self.0.suffixes;
        let mut octets: usize = suffixes.iter().map(|name| budget::TEXT + name.len()).sum();
        for name in names {
            let name = name.to_string();
            octets += budget::TEXT + name.len();
            if octets > budget::MOST {
                // All names are at or below the root, whatever is added later.
                *suffixes = vec![NameBuf::root().to_string()];
                break;
            }
            suffixes.push(name);
        }
        self
    }

    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn has_asks(&self) -> bool {
        self.0.asks
    }

    pub(crate) fn has_phase(&self) -> bool {
        self.0.queries || self.0.responses || self.0.events
    }

    /// Adds the tables that the filter requested from its [`Setup`](crate::Setup).
    pub(crate) fn with_tables(mut self, tables: Vec<raw::TableShape>) -> Manifest {
        self.0.tables = tables;
        self
    }

    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn tables(&self) -> &[raw::TableShape] {
        &self.0.tables
    }

    pub(crate) fn into_raw(self) -> raw::Manifest {
        self.0
    }
}

/// A source of the configuration, declared by a [manifest](Manifest::source).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamedSource(pub(crate) u16);

impl Default for Manifest {
    fn default() -> Manifest {
        Manifest::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that count 37 bytes each: 24, and their text.
    fn names(count: usize) -> Vec<NameBuf> {
        let names = (0..count).map(|number| format!("{number:05}.a.test"));
        names.map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn more_names_than_a_call_hands_over_are_all_names() {
        let most = budget::MOST / 37;
        let all = Manifest::new().at_or_below(&[NameBuf::root()]);
        let fits = Manifest::new().at_or_below(&names(most));
        assert_eq!(fits.0.suffixes.len(), most);
        assert_eq!(Manifest::new().at_or_below(&names(most + 1)), all);
        // Those of earlier calls count, too, and no later call narrows it again.
        let over = fits.at_or_below(&names(1));
        assert_eq!(over, all);
        assert!(over.at_or_below(&names(1)).0.suffixes.contains(&".".to_owned()));
    }
}
