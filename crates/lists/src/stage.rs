//! The `lists` source.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::answer::{DENIED, Reply, THERE};
use super::fetch::Fetch;
use super::follow::Follower;
use super::hash::Names;
use super::rules::Word;
use super::show::show;
use super::state::State;
use crate::background::{Background, Loading};
use crate::config::{self, ListAnswer};
use crate::dns::name::Text;
use crate::metrics::Metrics;
use dnsweir_answer::{Fallthrough, Part, Question, Resolution, Status, Upkeep};

/// A `lists` stage.
pub struct Lists {
    config: config::Lists,
    states: Vec<Arc<State>>,
    /// The names of `allow`, which no list blocks.
    allowed: Fallthrough,
    fetch: OnceLock<Arc<dyn Fetch>>,
    loading: Loading,
    thread: Mutex<Option<Background>>,
}

/// The most descriptors it has open: one request including the lookup of its server, one file, and the file
/// watch.
pub const MOST_SOCKETS: usize = 12;

/// Returns the most bytes its lists take: all served lists, and for the one being read its text, the names
/// collected so far, and the table made from them.
pub fn most_octets(config: &config::Lists) -> usize {
    let served = config.lists.iter().map(|list| list.memory).sum::<usize>();
    let reading = config.lists.iter().map(|list| 2 * list.memory + list.size);
    served + reading.max().unwrap_or_default()
}

/// Lists that were read before, which a new stage takes over.
#[derive(Default)]
pub struct Known<'k>(Vec<&'k Arc<State>>);

impl<'k> Known<'k> {
    /// Collects the lists of other stages.
    pub fn of(stages: impl Iterator<Item = &'k Lists>) -> Known<'k> {
        Known(stages.flat_map(|stage| &stage.states).collect())
    }
}

/// What the lists say about the name in a question.
enum Said<'s> {
    /// A list has it: that list, its verdict, and the listed name.
    Listed(&'s State, Word<'s>, &'s [u8]),
    /// A list has it, but another list, or else `allow` (`None`), lets it through.
    Passed(Option<&'s State>),
    /// No list has it.
    Nothing,
}

impl Lists {
    /// Creates a stage that takes over lists already read; all others start empty.
    pub fn new(config: &config::Lists, known: &Known<'_>) -> Lists {
        let former = || known.0.iter().copied();
        Lists {
            states: config
                .lists
                .iter()
                .map(|list| State::new(list, former()))
                .collect(),
            allowed: Fallthrough::new(&config.allow),
            config: config.clone(),
            fetch: OnceLock::new(),
            loading: Loading::new(config.wait),
            thread: Mutex::new(None),
        }
    }

    /// Sets what fetches remote lists. Only the first call, before it loads, has an effect.
    pub fn fetch_by(&self, fetch: &Arc<dyn Fetch>) {
        let _ = self.fetch.set(Arc::clone(fetch));
    }

    /// Answers a question from the lists as last read.
    pub fn immediate(&self, question: &Question<'_>) -> Resolution {
        self.said(question, |said| match said {
            Said::Listed(state, word, listed) => {
                state.counters.blocked.fetch_add(1, Relaxed);
                let (list, client, name) = (&*state.config.name, question.client, Text(question.name));
                tracing::debug!(list, %client, %name, "a list decided about a query");
                self.reply(state, word, listed).to(question)
            }
            Said::Passed(by) => {
                if let Some(state) = by {
                    state.counters.passed.fetch_add(1, Relaxed);
                }
                Resolution::NotMine
            }
            Said::Nothing => Resolution::NotMine,
        })
    }

    fn said<T>(&self, question: &Question<'_>, then: impl FnOnce(Said<'_>) -> T) -> T {
        let names = Names::of(question.name);
        for state in self.states_for(question) {
            if state.config.answer == ListAnswer::Pass {
                continue;
            }
            let known = state.known.load();
            if let Some((word, start)) = known.as_ref().and_then(|known| known.rules.find(&names)) {
                return then(match self.passing(&names, question) {
                    Some(by) => Said::Passed(by),
                    None => Said::Listed(state, word, &question.name[start..]),
                });
            }
        }
        then(Said::Nothing)
    }

    /// Returns what lets a listed name through, if anything. Called for few names: most are on no list.
    fn passing(&self, names: &Names, question: &Question<'_>) -> Option<Option<&State>> {
        if self.allowed.covers(question.name) {
            return Some(None);
        }
        let mut states = self.states_for(question);
        let lets_through = |state: &&State| match &*state.known.load() {
            Some(known) if state.config.answer == ListAnswer::Pass => known.rules.find(names).is_some(),
            Some(known) => known.rules.allows(names),
            None => false,
        };
        states.find(lets_through).map(Some)
    }

    /// Returns the lists that apply to the client.
    fn states_for(&self, question: &Question<'_>) -> impl Iterator<Item = &State> {
        let states = self.states.iter().map(|state| &**state);
        states.filter(move |state| state.is_for(question))
    }

    /// Returns the reply for a name that a list gives this verdict.
    fn reply<'r>(&'r self, state: &'r State, word: Word<'r>, listed: &'r [u8]) -> Reply<'r> {
        let (rcode, addresses) = match (word, &state.config.answer) {
            (Word::Addresses(addresses), _) => (THERE, addresses),
            (Word::Empty, _) | (Word::Block, ListAnswer::Nodata) => (THERE, &[][..]),
            (Word::Block, ListAnswer::Addresses(addresses)) => (THERE, &addresses[..]),
            (Word::Block, ListAnswer::Nxdomain | ListAnswer::Pass) => (DENIED, &[][..]),
        };
        let is_blocked = !matches!(word, Word::Addresses(_));
        Reply {
            listed,
            rcode,
            addresses,
            ttl: u32::try_from(self.config.ttl.as_secs()).unwrap_or(u32::MAX),
            why: is_blocked.then(|| format!("list {:?}", state.config.name)),
        }
    }
}

impl Upkeep for Lists {
    fn word(&self) -> &'static str {
        "lists"
    }

    fn status(&self) -> Status {
        let lists: Vec<String> = self.states.iter().map(|state| state.status()).collect();
        Status {
            text: format!("lists {}", lists.join("; ")),
            upstreams: Vec::new(),
        }
    }

    fn show(&self, metrics: &mut Metrics) {
        self.states.iter().for_each(|state| show(state, metrics));
    }

    /// Describes the verdict; `None` if no list has the name.
    fn words(&self, question: &Question<'_>) -> Option<String> {
        self.said(question, |said| match said {
            Said::Listed(state, word, listed) => {
                let verb = if matches!(word, Word::Addresses(_)) {
                    "has"
                } else {
                    "blocks"
                };
                Some(format!(
                    "the list {:?} {verb} {}",
                    state.config.name,
                    Text(listed)
                ))
            }
            Said::Passed(Some(state)) => Some(format!("the list {:?} lets it through", state.config.name)),
            Said::Passed(None) => Some("`allow` lets it through".into()),
            Said::Nothing => None,
        })
    }

    /// Whether a list for some clients only has the name.
    fn tells_clients_apart(&self, name: &[u8]) -> bool {
        let names = Names::of(name);
        let has = |state: &State| match &*state.known.load() {
            Some(known) => known.rules.find(&names).is_some() || known.rules.allows(&names),
            None => false,
        };
        let mut states = self.states.iter();
        states.any(|state| state.config.is_for_some() && has(state))
    }

    /// Starts the thread that reads the lists.
    fn load(&self) {
        if !self.loading.begins() {
            return;
        }
        let follower = Follower {
            states: self.states.clone(),
            fetch: self.fetch.get().cloned(),
            every: self.config.every,
            turn: Semaphore::new(1),
        };
        match Background::start("lists", move || follower.run()) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => tracing::error!(%error, "lists: cannot start a thread to read them"),
        }
    }

    fn loading(&self) -> Option<&Loading> {
        Some(&self.loading)
    }

    /// Its lists, each read once.
    fn parts(&self) -> Vec<Part<'_>> {
        let parts = self.states.iter().map(|state| Part {
            arrival: &state.arrival,
            name: format!("the list {:?}", state.config.name),
            why: state
                .attempts
                .problem()
                .unwrap_or_else(|| "it is being read".into()),
        });
        parts.collect()
    }
}
