//! Calls through the component API: the reference, and the way for every component that is not an ordinary one.

use wasmtime::Store;
use wasmtime::component::{Component, InstancePre};

use crate::filter::bindings::dnsweir::filter::types;
use crate::filter::bindings::exports::dnsweir::filter::{configure, events, queries, responses};
use crate::filter::world::State;

/// A compiled component with its imports resolved.
pub(super) struct Code {
    pre: InstancePre<State>,
    configure: configure::GuestIndices,
    pub(super) queries: Option<queries::GuestIndices>,
    pub(super) responses: Option<responses::GuestIndices>,
    pub(super) events: Option<events::GuestIndices>,
}

impl Code {
    /// # Errors
    ///
    /// When an interface lacks its function, or the mandatory one is missing.
    pub(super) fn new(pre: InstancePre<State>) -> wasmtime::Result<Code> {
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

    pub(super) fn component(&self) -> &Component {
        self.pre.component()
    }
}

/// An instance of a component.
pub(super) struct Guest {
    instance: wasmtime::component::Instance,
    configure: configure::Guest,
    queries: Option<queries::Guest>,
    responses: Option<responses::Guest>,
    events: Option<events::Guest>,
}

impl Guest {
    pub(super) fn new(code: &Code, store: &mut Store<State>) -> wasmtime::Result<Guest> {
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
    pub(super) fn module(&self, store: &mut Store<State>, name: &str) -> Option<wasmtime::Module> {
        self.instance.get_module(store, name)
    }

    pub(super) fn configure(
        &self,
        store: &mut Store<State>,
        setup: &types::Setup,
    ) -> wasmtime::Result<Result<types::Manifest, Vec<types::ConfigError>>> {
        self.configure.call_configure(store, setup)
    }

    pub(super) fn queries(
        &self,
        store: &mut Store<State>,
        now: u64,
        batch: &[types::Query],
        bytes: &[u8],
    ) -> wasmtime::Result<Vec<types::Verdict>> {
        match &self.queries {
            Some(guest) => guest.call_on_queries(store, now, batch, bytes),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn responses(
        &self,
        store: &mut Store<State>,
        now: u64,
        batch: &[types::Response],
        bytes: &[u8],
    ) -> wasmtime::Result<Vec<types::ResponseVerdict>> {
        match &self.responses {
            Some(guest) => guest.call_on_responses(store, now, batch, bytes),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn events(
        &self,
        store: &mut Store<State>,
        batch: &[types::Event],
        bytes: &[u8],
    ) -> wasmtime::Result<()> {
        match &self.events {
            Some(guest) => guest.call_on_events(store, batch, bytes),
            None => Ok(()),
        }
    }
}
