//! What a filter wants to see.

use crate::bindings::dnsweir::filter::types as raw;
use crate::{NameBuf, Outcome, Type};

/// What the host calls the filter for; it calls it for nothing else, so whatever is left out here
/// costs nothing. At least one phase must be named.
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
    /// No phase; once phases are added, every name and type.
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

    /// Takes part in the query phase.
    pub fn queries(mut self) -> Manifest {
        self.0.queries = true;
        self
    }

    /// Takes part in the response phase.
    pub fn responses(mut self) -> Manifest {
        self.0.responses = true;
        self
    }

    /// Hears events.
    pub fn events(mut self) -> Manifest {
        self.0.events = true;
        self
    }

    /// Hears of those queries only that [became](crate::Event::outcome) one of these.
    pub fn outcomes(mut self, outcomes: impl IntoIterator<Item = Outcome>) -> Manifest {
        self.0.outcomes.extend(outcomes);
        self
    }

    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn hears(&self, outcome: Outcome) -> bool {
        self.0.outcomes.is_empty() || self.0.outcomes.contains(&outcome)
    }

    /// Wants the [message](crate::Response::message) of each response and each [event](crate::Event::message). Copying
    /// it costs.
    pub fn messages(mut self) -> Manifest {
        self.0.messages = true;
        self
    }

    /// Asks before it decides: its verdicts may be [`Verdict::ask`](crate::Verdict::ask).
    pub fn asks(mut self) -> Manifest {
        self.0.asks = true;
        self
    }

    /// Wants to know this [EDNS option](crate::Query::edns_option) of queries.
    pub fn edns_option(mut self, code: u16) -> Manifest {
        self.0.details.push(raw::Detail::EdnsOption(code));
        self
    }

    /// Wants to know all [EDNS options](crate::Query::edns_options) of queries.
    pub fn edns_options(mut self) -> Manifest {
        self.0.details.push(raw::Detail::EdnsOptions);
        self
    }

    /// Wants to know the [listener](crate::Query::listener) that queries come to.
    pub fn listener(mut self) -> Manifest {
        self.0.details.push(raw::Detail::Listener);
        self
    }

    /// Wants to know the [server name](crate::Query::server_name) that clients ask for in TLS.
    pub fn server_name(mut self) -> Manifest {
        self.0.details.push(raw::Detail::ServerName);
        self
    }

    /// Wants to know [who asks](crate::Query::identity). What is remembered of the filter then holds for the same
    /// identity only, and it stands above `cache`.
    pub fn identity(mut self) -> Manifest {
        self.0.details.push(raw::Detail::Identity);
        self
    }

    /// Wants to know who asks, and this [label](crate::Query::pod_label) of the pod. There may be 64 of these, and of the next
    /// three, in all.
    pub fn pod_label(mut self, name: &str) -> Manifest {
        self.0.details.push(raw::Detail::PodLabel(name.to_owned()));
        self
    }

    /// Wants to know who asks, and this [annotation](crate::Query::pod_annotation) of the pod.
    pub fn pod_annotation(mut self, name: &str) -> Manifest {
        self.0.details.push(raw::Detail::PodAnnotation(name.to_owned()));
        self
    }

    /// Wants to know who asks, and this [label](crate::Query::namespace_label) of the pod's namespace.
    pub fn namespace_label(mut self, name: &str) -> Manifest {
        self.0.details.push(raw::Detail::NamespaceLabel(name.to_owned()));
        self
    }

    /// Wants to know who asks, and this [annotation](crate::Query::namespace_annotation) of the pod's namespace.
    pub fn namespace_annotation(mut self, name: &str) -> Manifest {
        self.0
            .details
            .push(raw::Detail::NamespaceAnnotation(name.to_owned()));
        self
    }

    /// May send queries to the source that the configuration has under this name, `source "NAME" { forward … }`; without
    /// one, the filter does not load. What comes back is for [`Verdict::via`](crate::Verdict::via).
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

    /// Looks at queries of these types only.
    pub fn types(mut self, types: impl IntoIterator<Item = Type>) -> Manifest {
        self.0.qtypes.extend(types.into_iter().map(|qtype| qtype.0));
        self
    }

    /// Looks at names at or below these only.
    pub fn at_or_below<'b>(mut self, names: impl IntoIterator<Item = &'b NameBuf>) -> Manifest {
        self.0.suffixes.extend(names.into_iter().map(NameBuf::to_string));
        self
    }

    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn has_asks(&self) -> bool {
        self.0.asks
    }

    pub(crate) fn has_phase(&self) -> bool {
        self.0.queries || self.0.responses || self.0.events
    }

    /// With the tables that the filter has asked its [`Setup`](crate::Setup) for.
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

/// A source of the configuration, which a [manifest](Manifest::source) named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamedSource(pub(crate) u16);

impl Default for Manifest {
    fn default() -> Manifest {
        Manifest::new()
    }
}
