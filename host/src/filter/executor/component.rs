//! Calls through the component API: the reference, and the way for every component that is not an ordinary one.

use wasmtime::Store;
use wasmtime::component::{Component, InstancePre};

use crate::filter::bindings::dnsweir::filter::types;
use crate::filter::bindings::exports::dnsweir::filter::{configure, events, queries, responses};

/// A compiled component with its imports resolved, for stores of one kind of world.
pub(in crate::filter) struct Code<W: 'static> {
    pre: InstancePre<W>,
    configure: configure::GuestIndices,
    queries: Option<queries::GuestIndices>,
    responses: Option<responses::GuestIndices>,
    events: Option<events::GuestIndices>,
}

impl<W: Send + 'static> Code<W> {
    /// # Errors
    ///
    /// When an interface lacks its function, or the mandatory one is missing.
    pub(in crate::filter) fn new(pre: InstancePre<W>) -> wasmtime::Result<Code<W>> {
        let exports = |interface: &str| {
            let name = format!("dnsweir:filter/{interface}@0.1.0");
            pre.component().get_export_index(None, &name).is_some()
        };
        Ok(Code {
            configure: configure::GuestIndices::new(&pre)?,
            queries: exports("queries")
                .then(|| queries::GuestIndices::new(&pre))
                .transpose()?,
            responses: exports("responses")
                .then(|| responses::GuestIndices::new(&pre))
                .transpose()?,
            events: exports("events")
                .then(|| events::GuestIndices::new(&pre))
                .transpose()?,
            pre,
        })
    }

    /// Whether the query, response and event phases are exported.
    pub(super) fn phases(&self) -> [bool; 3] {
        [
            self.queries.is_some(),
            self.responses.is_some(),
            self.events.is_some(),
        ]
    }

    /// Names of the phases that the manifest wants and the component does not export.
    pub(in crate::filter) fn missing(&self, manifest: &types::Manifest) -> Vec<&'static str> {
        let [queries, responses, events] = self.phases();
        [
            ("queries", manifest.queries && !queries),
            ("responses", manifest.responses && !responses),
            ("events", manifest.events && !events),
        ]
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect()
    }

    pub(in crate::filter) fn component(&self) -> &Component {
        self.pre.component()
    }
}

/// An instance of a component.
pub(in crate::filter) struct Guest {
    instance: wasmtime::component::Instance,
    configure: configure::Guest,
    queries: Option<queries::Guest>,
    responses: Option<responses::Guest>,
    events: Option<events::Guest>,
}

impl Guest {
    pub(in crate::filter) fn new<W: Send>(code: &Code<W>, store: &mut Store<W>) -> wasmtime::Result<Guest> {
        let instance = code.pre.instantiate(&mut *store)?;
        let queries = code.queries.as_ref();
        let responses = code.responses.as_ref();
        let events = code.events.as_ref();
        Ok(Guest {
            configure: code.configure.load(&mut *store, &instance)?,
            queries: queries
                .map(|indices| indices.load(&mut *store, &instance))
                .transpose()?,
            responses: responses
                .map(|indices| indices.load(&mut *store, &instance))
                .transpose()?,
            events: events
                .map(|indices| indices.load(&mut *store, &instance))
                .transpose()?,
            instance,
        })
    }

    /// The core module that the component exports under a name.
    pub(in crate::filter) fn module<W: Send>(
        &self,
        store: &mut Store<W>,
        name: &str,
    ) -> Option<wasmtime::Module> {
        self.instance.get_module(store, name)
    }

    pub(in crate::filter) fn configure<W: Send>(
        &self,
        store: &mut Store<W>,
        setup: &types::Setup,
    ) -> wasmtime::Result<Result<types::Manifest, Vec<types::ConfigError>>> {
        self.configure.call_configure(store, setup)
    }

    pub(in crate::filter) fn queries<W: Send>(
        &self,
        store: &mut Store<W>,
        now: u64,
        batch: &[types::Query],
        bytes: &[u8],
    ) -> wasmtime::Result<Vec<types::Verdict>> {
        match &self.queries {
            Some(guest) => guest.call_on_queries(store, now, batch, bytes),
            None => Ok(Vec::new()),
        }
    }

    pub(in crate::filter) fn responses<W: Send>(
        &self,
        store: &mut Store<W>,
        now: u64,
        batch: &[types::Response],
        bytes: &[u8],
    ) -> wasmtime::Result<Vec<types::ResponseVerdict>> {
        match &self.responses {
            Some(guest) => guest.call_on_responses(store, now, batch, bytes),
            None => Ok(Vec::new()),
        }
    }

    pub(in crate::filter) fn events<W: Send>(
        &self,
        store: &mut Store<W>,
        batch: &[types::Event],
        bytes: &[u8],
    ) -> wasmtime::Result<()> {
        match &self.events {
            Some(guest) => guest.call_on_events(store, batch, bytes),
            None => Ok(()),
        }
    }
}
