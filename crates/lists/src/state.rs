//! A list, as all workers see it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use super::counters::Counters;
use super::rules::Rules;
use crate::attempts::Attempts;
use crate::config::{List, spell_duration};

/// What a list said when it was read.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Of names.
    pub rules: Rules,
    /// Lines that cannot be used.
    pub skipped: u64,
    /// The SHA-256 of its text.
    pub digest: String,
}

/// A list.
pub(crate) struct State {
    /// What is written about it.
    pub config: List,
    /// What queries are answered from; none: nothing has come yet.
    pub known: ArcSwapOption<Contents>,
    /// How attempts to read it came out.
    pub attempts: Attempts,
    /// What became of queries.
    pub counters: Counters,
    /// Whether it has ever come.
    came: watch::Sender<bool>,
}

impl State {
    /// One that knows what `former` ones do of the same list.
    pub fn new<'s>(config: &List, former: impl IntoIterator<Item = &'s Arc<State>>) -> Arc<State> {
        let mut former = former.into_iter().filter(|former| former.reads_as(config));
        let known = former.find_map(|former| former.known.load_full());
        let known = known.filter(|known| known.rules.octets() <= config.memory);
        Arc::new(State {
            config: config.clone(),
            came: watch::Sender::new(known.is_some()),
            known: ArcSwapOption::new(known),
            attempts: Attempts::default(),
            counters: Counters::default(),
        })
    }

    /// Whether what it read is what one that is written so would.
    fn reads_as(&self, config: &List) -> bool {
        let own = &self.config;
        own.origin == config.origin && own.format == config.format && own.subdomains == config.subdomains
    }

    /// Has queries answered from something else.
    pub fn publish(&self, contents: Contents) {
        self.known.store(Some(Arc::new(contents)));
        self.came.send_replace(true);
    }

    /// Waits until it has come.
    pub async fn came(&self) {
        // The sender is here.
        let _ = self.came.subscribe().wait_for(|came| *came).await;
    }

    /// Whether it has.
    pub fn has_come(&self) -> bool {
        *self.came.borrow()
    }

    /// How it is, for `/status`.
    pub fn status(&self) -> String {
        let mut text = match &*self.known.load() {
            Some(known) => format!("{:?} with {} names", self.config.name, known.rules.names()),
            None => format!("{:?} has not come yet", self.config.name),
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
