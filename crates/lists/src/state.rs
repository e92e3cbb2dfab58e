//! The state of a list, shared by all workers.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::counters::Counters;
use super::rules::Rules;
use crate::attempts::Attempts;
use crate::background::Arrival;
use crate::config::{List, Selector, spell_duration};
use dnsweir_answer::Question;
use dnsweir_answer::identity::{Identity, Labels, Pod};

/// A list as read.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Its names.
    pub rules: Rules,
    /// How many lines cannot be used.
    pub skipped: u64,
    /// The SHA-256 of its text.
    pub digest: String,
}

/// A list.
pub(crate) struct State {
    /// Its configuration.
    pub config: List,
    /// What queries are answered from; `None` until it was first read.
    pub known: ArcSwapOption<Contents>,
    /// The outcomes of attempts to read it.
    pub attempts: Attempts,
    /// The outcomes of queries.
    pub counters: Counters,
    /// Whether it was ever read.
    pub arrival: Arrival,
}

impl State {
    /// Creates a list, with the contents that a `former` state has of the same list.
    pub fn new<'s>(config: &List, former: impl IntoIterator<Item = &'s Arc<State>>) -> Arc<State> {
        let mut former = former.into_iter().filter(|former| former.reads_as(config));
        let known = former.find_map(|former| former.known.load_full());
        let known = known.filter(|known| known.rules.octets() <= config.memory);
        let arrival = Arrival::default();
        if known.is_some() {
            arrival.come();
        }
        Arc::new(State {
            config: config.clone(),
            arrival,
            known: ArcSwapOption::new(known),
            attempts: Attempts::default(),
            counters: Counters::default(),
        })
    }

    /// Returns whether a list with this configuration would read the same contents.
    fn reads_as(&self, config: &List) -> bool {
        let own = &self.config;
        own.origin == config.origin && own.format == config.format && own.subdomains == config.subdomains
    }

    /// Returns whether the list is for the client that asks.
    pub fn is_for(&self, question: &Question<'_>) -> bool {
        let list = &self.config;
        let mut networks = list.clients.iter();
        (list.clients.is_empty() || networks.any(|network| network.contains(question.client)))
            && (!list.is_for_pods() || matches!(question.identity, Identity::Pod(pod) if selects(list, pod)))
    }

    /// Replaces what queries are answered from.
    pub fn publish(&self, contents: Contents) {
        self.known.store(Some(Arc::new(contents)));
        self.arrival.come();
    }

    /// Describes its state for `/status`.
    pub fn status(&self) -> String {
        let mut text = match &*self.known.load() {
            Some(known) => format!("{:?} with {} names", self.config.name, known.rules.names()),
            None => format!("{:?} has not been loaded yet", self.config.name),
        };
        if let Some(age) = self.attempts.age() {
            text += &format!(", read {} ago", spell_duration(age));
        }
        if let Some(problem) = self.attempts.problem() {
            text += &format!(", {problem}");
        }
        text
    }
}

/// Returns whether a list is for this pod.
fn selects(list: &List, pod: &Pod) -> bool {
    let meets = |selector: Option<&Selector>, labels: &Labels| {
        selector.is_none_or(|selector| selector.matches(labels))
    };
    let mut namespaces = list.namespaces.iter();
    (list.namespaces.is_empty() || namespaces.any(|name| **name == *pod.object.namespace))
        && meets(list.namespace_labels.as_ref(), &pod.namespace.labels)
        && meets(list.labels.as_ref(), &pod.object.labels)
}
