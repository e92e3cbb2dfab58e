//! A source's duties besides answering.

use std::pin::Pin;

use super::{Question, Status};
use crate::background::{Arrival, Loading};
use crate::dns::name::Name;
use crate::metrics::Metrics;

/// A boxed future without a result.
pub type Awaited<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A part of what a source loads, such as one of its zones.
pub struct Part<'s> {
    /// Whether it is there.
    pub arrival: &'s Arrival,
    /// What it is, with its name.
    pub name: String,
    /// Why it is not there yet.
    pub why: String,
}

/// Names of zones.
pub type Names<'a> = Box<dyn Iterator<Item = &'a Name> + 'a>;

/// A source, apart from answering queries. No query waits for any of it. The defaults hold for a source that
/// knows its answers from the beginning.
pub trait Upkeep: Send + Sync {
    /// Its word in the configuration.
    fn word(&self) -> &'static str;

    /// What `/status` shows about it.
    fn status(&self) -> Status;

    /// Adds its metrics.
    fn show(&self, metrics: &mut Metrics);

    /// Details for the trace of a question, besides its answer.
    fn words(&self, _question: &Question<'_>) -> Option<String> {
        None
    }

    /// Whether clients may get different answers for this name (in wire format), also to queries that the proxy
    /// makes for them.
    fn tells_clients_apart(&self, _name: &[u8]) -> bool {
        false
    }

    /// Starts to load what it needs before it can answer. Only the first call has an effect.
    fn load(&self) {}

    /// Starts all of its background work. Only the first call has an effect; it must come from a
    /// `LocalRuntime`.
    fn begin(&self) {
        self.load();
    }

    /// When it began to load, if it loads anything.
    fn loading(&self) -> Option<&Loading> {
        None
    }

    /// What it needs before it can answer.
    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    /// Waits until it is able to answer.
    fn ready(&self) -> Awaited<'_> {
        let parts = self.parts();
        Box::pin(async move {
            for part in parts {
                part.arrival.wait().await;
            }
        })
    }

    /// What it has not loaded yet, and why.
    fn missing(&self) -> Option<String> {
        let mut parts = self.parts().into_iter();
        let Part { name, why, .. } = parts.find(|part| !part.arrival.has_come())?;
        Some(format!("{name} has not been loaded yet: {why}"))
    }

    /// Starts to load, and waits for that, at most for the configured time since the start.
    fn bring_up(&self) -> Awaited<'_> {
        self.load();
        Box::pin(async {
            if let Some(loading) = self.loading() {
                loading.wait_for(self.ready()).await;
            }
        })
    }

    /// Why queries should not come here yet; `starting`: while startup may still wait for it.
    fn not_ready(&self, _starting: bool) -> Option<String> {
        self.loading().filter(|loading| loading.is_awaited())?;
        self.missing()
    }

    /// The zones that it holds completely.
    fn origins(&self) -> Names<'_> {
        Box::new(std::iter::empty())
    }

    /// Whether a HINFO query for this name (in wire format) is a loop probe that it sent: then it is one of
    /// its upstreams that leads back to this proxy, and the query deserves no answer.
    fn is_own_probe(&self, _name: &[u8]) -> bool {
        false
    }

    /// Whether queries to one of its upstreams come back to this proxy.
    fn loops(&self) -> bool {
        false
    }
}
