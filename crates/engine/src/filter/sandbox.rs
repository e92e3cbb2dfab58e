//! One configured instance of a guest, in its own store, and calls into it within their limits.

use std::sync::Arc;
use std::time::Duration;

use dnsweir_os::clock::UnixTime;
use wasmtime::Store;

use super::ask::Answers;
use super::bindings::dnsweir::filter::types;
use super::cancel::Cancel;
use super::data::{self, Output, SourceFile, WithData as _};
use super::exports::{Exports, Functions};
use super::failure::{Failure, HOSTCALL_BYTES};
use super::host_state::{Context, HostState};
use super::repeated::Verdicts;
use super::ticker::Mark;
use super::time_limit::TimeLimit;
use super::wasi::HANDLES;

/// Configuration may take this many times the limit of a call, and at least a second: it happens once.
const CONFIGURE_FACTOR: u32 = 100;
const CONFIGURE_MINIMUM: Duration = Duration::from_secs(1);

/// A configured instance in its own store. After a failed call it must be dropped: it refuses further calls.
pub(super) struct Sandbox {
    store: Store<HostState>,
    mark: Mark,
    functions: Functions,
}

/// Why there is no configured instance.
pub(super) enum StartError {
    Failed(Failure),
    Rejected(Vec<types::ConfigError>),
}

impl Sandbox {
    /// Starts and configures an instance. Fails if cancelled.
    pub(super) fn start(
        exports: &Exports<HostState>,
        context: &Arc<Context>,
        setup: &types::Setup,
        cancel: &Cancel,
    ) -> Result<(Sandbox, types::Manifest), StartError> {
        let (mut sandbox, manifest) = Sandbox::configured(exports, context, setup, cancel, None)?;
        let time = TimeLimit::new(context.limits.time);
        sandbox.store.data_mut().start_serving(time);
        Ok((sandbox, manifest))
    }

    /// Starts and configures an instance for one refresh. Fails if cancelled. Its granted folders stay open
    /// until the refresh ends.
    pub(super) fn start_to_refresh(
        exports: &Exports<HostState>,
        context: &Arc<Context>,
        setup: &types::Setup,
        cancel: &Cancel,
    ) -> Result<Sandbox, StartError> {
        let memory = context.limits.refresh_memory;
        let (mut sandbox, _) = Sandbox::configured(exports, context, setup, cancel, Some(memory))?;
        let (time, output) = (TimeLimit::new(context.limits.refresh_time), context.limits.data);
        sandbox.store.data_mut().start_refreshing(time, output);
        Ok(sandbox)
    }

    fn configured(
        exports: &Exports<HostState>,
        context: &Arc<Context>,
        setup: &types::Setup,
        cancel: &Cancel,
        memory: Option<usize>,
    ) -> Result<(Sandbox, types::Manifest), StartError> {
        let mark = context.ticker.mark();
        let mut store = Sandbox::store(exports.component().engine(), context, cancel, memory)
            .map_err(|error| StartError::Failed(Failure::of(&error, None)))?;
        // A module's start function runs under the same limits as `configure`.
        let started = within(&mark, &mut store, |store| {
            let functions = Functions::new(exports, store)?;
            let configured = functions.configure(store, setup)?;
            Ok((functions, configured))
        });
        let (functions, configured) = started.map_err(|error| StartError::Failed(failure(&store, &error)))?;
        let manifest = configured.map_err(StartError::Rejected)?;
        let sandbox = Sandbox {
            store,
            mark,
            functions,
        };
        Ok((sandbox, manifest))
    }

    /// Makes a store for a start.
    fn store(
        engine: &wasmtime::Engine,
        context: &Arc<Context>,
        cancel: &Cancel,
        memory: Option<usize>,
    ) -> wasmtime::Result<Store<HostState>> {
        let time = TimeLimit::new(start_time(context));
        let memory = memory.unwrap_or_else(|| context.linear_memory());
        let world = HostState::new(Arc::clone(context), memory, time, cancel.clone())?;
        let mut store = Store::new(engine, world);
        store.limiter(|state| &mut state.allocated);
        store.set_hostcall_fuel(HOSTCALL_BYTES);
        store.set_max_component_handles(HANDLES);
        store.epoch_deadline_callback(|mut store| Ok(store.data_mut().deadline()));
        Ok(store)
    }

    /// Makes a call within its limits.
    #[inline]
    fn call<T>(
        &mut self,
        call: impl FnOnce(&Functions, &mut Store<HostState>) -> wasmtime::Result<T>,
    ) -> Result<T, Failure> {
        self.store.data_mut().data_mut().renew();
        let result = within(&self.mark, &mut self.store, |store| call(&self.functions, store));
        let ran = self.mark.ran_since_seen();
        if result.is_ok() && ran.is_some_and(|ran| self.store.data().time.is_beyond(ran)) {
            return Err(Failure::late());
        }
        result.map_err(|error| failure(&self.store, &error))
    }

    /// Calls the refresh: its output from these files, or its error message about them.
    pub(super) fn refresh(
        &mut self,
        now: UnixTime,
        files: Vec<SourceFile>,
    ) -> Result<Result<Output, String>, Failure> {
        let sources = data::sources(self.store.data_mut().data_mut(), files);
        let said = self.call(|functions, store| functions.refresh(store, now, &sources))?;
        let output = self.store.data_mut().data_mut().take_output();
        Ok(said.and_then(|()| output.ok_or_else(|| "it has been refreshed before".to_owned())))
    }

    /// Calls the query phase; no verdicts if the guest does not export it.
    pub(super) fn queries(
        &mut self,
        now: UnixTime,
        batch: &[types::Query],
        bytes: &[u8],
    ) -> Result<Verdicts, Failure> {
        self.call(|functions, store| functions.queries(store, now, batch, bytes))
    }

    /// Calls the response phase; no verdicts if the guest does not export it.
    pub(super) fn responses(
        &mut self,
        now: UnixTime,
        batch: &[types::Response],
        bytes: &[u8],
    ) -> Result<Vec<types::ResponseVerdict>, Failure> {
        self.call(|functions, store| functions.responses(store, now, batch, bytes))
    }

    /// Continues with a query after its lookups.
    pub(super) fn query_answers(
        &mut self,
        now: UnixTime,
        answers: &Answers<types::AskedQuery>,
    ) -> Result<Verdicts, Failure> {
        self.call(|functions, store| functions.query_answers(store, now, answers))
    }

    /// Continues with a response after its lookups.
    pub(super) fn response_answers(
        &mut self,
        now: UnixTime,
        answers: &Answers<types::AskedResponse>,
    ) -> Result<Vec<types::ResponseVerdict>, Failure> {
        self.call(|functions, store| functions.response_answers(store, now, answers))
    }

    /// Calls the event phase; does nothing if the guest does not export it.
    pub(super) fn events(&mut self, batch: &[types::Event], bytes: &[u8]) -> Result<(), Failure> {
        self.call(|functions, store| functions.events(store, batch, bytes))
    }
}

/// Enters a guest for at most its store's time limit.
#[inline]
fn within<T>(mark: &Mark, store: &mut Store<HostState>, call: impl FnOnce(&mut Store<HostState>) -> T) -> T {
    store.data_mut().time.begin();
    // The callback runs in the next tick and every one after it.
    store.set_epoch_deadline(1);
    #[cfg(feature = "box-fuel")]
    let call = |store: &mut Store<HostState>| super::fuel::spend(store, call);
    mark.during(|| call(store))
}

/// Time limit of a start.
fn start_time(context: &Context) -> Duration {
    context
        .limits
        .time
        .saturating_mul(CONFIGURE_FACTOR)
        .max(CONFIGURE_MINIMUM)
}

#[cold]
fn failure(store: &Store<HostState>, error: &wasmtime::Error) -> Failure {
    Failure::of(error, store.data().allocated.refused)
}
