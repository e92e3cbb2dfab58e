//! A source's duties besides answering.
//!
//! No query waits for any of it. The defaults here hold for a source unless it overrides them.

use std::pin::Pin;
use std::sync::Arc;

use dnsweir_answer::{Question, Status};
use dnsweir_cluster::kubernetes::Kubernetes;
use dnsweir_cluster::service_entries::ServiceEntries;
use dnsweir_lists::{Fetch, Lists};
use dnsweir_upstream::Forwarder;
use dnsweir_zones::file::File;
use dnsweir_zones::secondary::{AskedNotify, Notified, Secondary};
use dnsweir_zones::transfer::{Asked, Reply};

use crate::dns::name::Name;
use crate::metrics::Metrics;

/// A boxed future without a result.
type Awaited<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Names of zones.
type Names<'a> = Box<dyn Iterator<Item = &'a Name> + 'a>;

/// A source, apart from answering queries.
pub(super) trait Aside {
    /// Its word in the configuration.
    fn word(&self) -> &'static str;

    /// Details for the trace of a question, besides its answer.
    fn words(&self, _question: &Question<'_>) -> Option<String> {
        None
    }

    /// Sets what fetches remote data for it.
    fn fetch_by(&self, _fetch: &Arc<dyn Fetch>) {}

    /// Starts its background work. Only the first call has an effect.
    fn begin(&self);

    /// Starts to load what it needs before it can answer, and waits for that, at most for the configured
    /// time.
    fn bring_up(&self) -> Awaited<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Waits until it is able to answer.
    fn ready(&self) -> Awaited<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Why it is not ready yet; `starting`: while startup may still wait for it.
    fn not_ready(&self, _starting: bool) -> Option<String> {
        None
    }

    /// What `/status` shows about it.
    fn status(&self) -> Status;

    /// Adds its metrics.
    fn show(&self, metrics: &mut Metrics);

    /// The zones that it holds completely.
    fn origins(&self) -> Names<'_> {
        Box::new(std::iter::empty())
    }

    /// Answers a request for a zone transfer; `None`: it has no zone of this name to transfer.
    fn transfer(&self, _asked: &Asked<'_>) -> Option<Reply> {
        None
    }

    /// Handles a primary's NOTIFY; `None`: it is not about a zone of this source.
    fn notified(&self, _asked: &AskedNotify<'_>) -> Option<Notified> {
        None
    }

    /// Whether a HINFO query for this name (in wire format) is a loop probe that it sent.
    fn is_own_probe(&self, _name: &[u8]) -> bool {
        false
    }

    /// Whether queries to one of its upstreams come back to this proxy.
    fn loops(&self) -> bool {
        false
    }
}

impl Aside for Arc<Forwarder> {
    fn word(&self) -> &'static str {
        "forward"
    }
    fn begin(&self) {
        Forwarder::begin(self);
    }
    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.answer())
    }
    fn not_ready(&self, starting: bool) -> Option<String> {
        if self.only_loops() {
            return Some("every upstream loops back to this proxy".into());
        }
        (starting && !self.has_answer()).then(|| "no upstream has answered yet".into())
    }
    fn status(&self) -> Status {
        Forwarder::status(self)
    }
    fn show(&self, metrics: &mut Metrics) {
        Forwarder::show(self, metrics);
    }
    fn is_own_probe(&self, name: &[u8]) -> bool {
        self.loop_found(name)
    }
    fn loops(&self) -> bool {
        Forwarder::loops(self)
    }
}

impl Aside for Kubernetes {
    fn word(&self) -> &'static str {
        "kubernetes"
    }
    fn begin(&self) {
        self.begin();
        self.begin_to_notify();
    }
    fn bring_up(&self) -> Awaited<'_> {
        Box::pin(self.bring_up())
    }
    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.ready())
    }
    fn not_ready(&self, _: bool) -> Option<String> {
        self.not_ready()
    }
    fn status(&self) -> Status {
        self.status()
    }
    fn show(&self, metrics: &mut Metrics) {
        self.show(metrics);
    }
    fn transfer(&self, asked: &Asked<'_>) -> Option<Reply> {
        self.transfer(asked)
    }
}

impl Aside for ServiceEntries {
    fn word(&self) -> &'static str {
        "service-entries"
    }
    fn begin(&self) {
        self.begin();
    }
    fn bring_up(&self) -> Awaited<'_> {
        Box::pin(self.bring_up())
    }
    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.ready())
    }
    fn not_ready(&self, _: bool) -> Option<String> {
        self.not_ready()
    }
    fn status(&self) -> Status {
        self.status()
    }
    fn show(&self, metrics: &mut Metrics) {
        self.show(metrics);
    }
}

impl Aside for File {
    fn word(&self) -> &'static str {
        "file"
    }
    fn begin(&self) {
        self.begin();
    }
    fn status(&self) -> Status {
        self.status()
    }
    fn show(&self, metrics: &mut Metrics) {
        self.show(metrics);
    }
    fn origins(&self) -> Names<'_> {
        Box::new(self.origins())
    }
    fn transfer(&self, asked: &Asked<'_>) -> Option<Reply> {
        self.transfer(asked)
    }
}

impl Aside for Secondary {
    fn word(&self) -> &'static str {
        "secondary"
    }
    fn begin(&self) {
        self.begin();
    }
    fn bring_up(&self) -> Awaited<'_> {
        Box::pin(self.bring_up())
    }
    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.ready())
    }
    fn not_ready(&self, _: bool) -> Option<String> {
        self.not_ready()
    }
    fn status(&self) -> Status {
        self.status()
    }
    fn show(&self, metrics: &mut Metrics) {
        self.show(metrics);
    }
    fn origins(&self) -> Names<'_> {
        Box::new(self.origins())
    }
    fn transfer(&self, asked: &Asked<'_>) -> Option<Reply> {
        self.transfer(asked)
    }
    fn notified(&self, asked: &AskedNotify<'_>) -> Option<Notified> {
        self.notified(asked)
    }
}

impl Aside for Lists {
    fn word(&self) -> &'static str {
        "lists"
    }
    fn words(&self, question: &Question<'_>) -> Option<String> {
        self.words(question)
    }
    fn fetch_by(&self, fetch: &Arc<dyn Fetch>) {
        self.fetch_by(fetch);
    }
    fn begin(&self) {
        self.begin();
    }
    fn bring_up(&self) -> Awaited<'_> {
        Box::pin(self.bring_up())
    }
    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.ready())
    }
    fn not_ready(&self, _: bool) -> Option<String> {
        self.not_ready()
    }
    fn status(&self) -> Status {
        self.status()
    }
    fn show(&self, metrics: &mut Metrics) {
        self.show(metrics);
    }
}
