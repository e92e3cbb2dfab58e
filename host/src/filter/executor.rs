//! One instance of a guest and the way into it.
//!
//! There are two ways. A filter *is* a component, and its component is what is checked and what every call could
//! go through; [`component`] does. But the component of a plain module, which is what cargo leaves, is that module in a
//! wrapper of our making that only converts calls. [`core_module`] enters such a module directly and converts by hand,
//! which costs a tenth for the records of a batch and a third for a call with one. It is taken only where the wrapper
//! lifts [those very exports](main_module). Which way it is shows nowhere: both end alike for the same guest, and the
//! tests hold them to that.

mod abi;
pub(super) mod component;
mod core_module;
mod layout;
mod main_module;

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{Component, InstancePre};
use wasmtime::{Store, Trap};

use super::bindings::dnsweir::filter::types;
use super::cancel::Cancel;
use super::text;
use super::ticker::Mark;
use super::time_limit::TimeLimit;
use super::world::{Context, State};

#[cfg(test)]
pub(super) use abi::Lowered;
pub(super) use main_module::{NAME as MAIN_MODULE, exported};

/// Octets that one call may carry out of a guest.
pub(super) const HOSTCALL_BYTES: usize = 1 << 20;

/// Resources a guest may hold; the interface has none, but WASI's have.
pub(super) const HANDLES: usize = 16;

/// Configuring may take this many times the limit of a call, and no less than a second: it happens once.
const CONFIGURE_FACTOR: u32 = 100;
const CONFIGURE_MINIMUM: Duration = Duration::from_secs(1);

/// Why a call or a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The guest trapped.
    Trap,
    /// It ran into its time limit.
    Time,
    /// It ran into its memory limit.
    Memory,
    /// It returned something that makes no sense.
    Garbage,
}

/// A failed call or start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For the counters.
    pub reason: Reason,
    /// For the log, in words.
    pub message: String,
}

/// A compiled guest with its imports resolved.
pub(super) struct Code {
    component: component::Code<State>,
    core: Option<core_module::Code>,
}

impl Code {
    /// Code that is called through the component API, for now.
    ///
    /// # Errors
    ///
    /// When an interface lacks its function, or the mandatory one is missing.
    pub(super) fn new(pre: InstancePre<State>) -> wasmtime::Result<Code> {
        Ok(Code {
            component: component::Code::new(pre)?,
            core: None,
        })
    }

    /// Takes the core path if the component has a [main module](exported) that means the same.
    ///
    /// # Errors
    ///
    /// When the component does not start.
    pub(super) fn prefer_core(&mut self, context: &Arc<Context>, cancel: &Cancel) -> Result<(), Failure> {
        let engine = self.component().engine();
        let mark = context.ticker.mark();
        let mut store = Executor::store(engine, context, cancel);
        let module = within(&mark, &mut store, |store| {
            component::Guest::new(&self.component, store)
        })
        .map(|guest| guest.module(&mut store, main_module::NAME))
        .map_err(|error| failure(&store, &error))?;
        // Whatever the core path has no room for is left to the component.
        let phases = self.component.phases();
        self.core = module
            .and_then(|module| core_module::Code::new(&module))
            .filter(|code| {
                let mut store = Executor::store(engine, context, cancel);
                within(&mark, &mut store, |store| core_module::Guest::new(code, store))
                    .is_ok_and(|guest| guest.phases() == phases)
            });
        let way = if self.core.is_some() {
            "core module"
        } else {
            "component"
        };
        tracing::debug!(target: "filter", filter = context.name, "calls enter its {way}");
        Ok(())
    }

    /// Whether calls take the core path.
    #[cfg(test)]
    pub(super) fn has_core(&self) -> bool {
        self.core.is_some()
    }

    /// Names of the phases that the manifest wants and the component does not export.
    pub(super) fn missing(&self, manifest: &types::Manifest) -> Vec<&'static str> {
        self.component.missing(manifest)
    }

    pub(super) fn component(&self) -> &Component {
        self.component.component()
    }
}

/// A configured instance in a store of its own. After a failed call it is good for nothing but being dropped:
/// it refuses to be entered again, and rightly so.
pub(super) struct Executor {
    store: Store<State>,
    mark: Mark,
    guest: Guest,
}

/// The two ways in.
enum Guest {
    Core(Box<core_module::Guest>),
    Component(component::Guest),
}

/// Why there is no configured instance.
pub(super) enum StartError {
    Failed(Failure),
    Rejected(Vec<types::ConfigError>),
}

impl Executor {
    /// A new instance, configured; none if it is not wanted any more before it is.
    pub(super) fn start(
        code: &Code,
        context: &Arc<Context>,
        setup: &types::Setup,
        cancel: &Cancel,
    ) -> Result<(Executor, types::Manifest), StartError> {
        let mark = context.ticker.mark();
        let mut store = Executor::store(code.component().engine(), context, cancel);
        // A module's start function runs within the same limits as `configure`.
        let started = within(&mark, &mut store, |store| Executor::configure(code, store, setup));
        let (guest, configured) = started.map_err(|error| StartError::Failed(failure(&store, &error)))?;
        let manifest = configured.map_err(StartError::Rejected)?;
        store
            .data_mut()
            .start_serving(TimeLimit::new(context.limits.time));
        let executor = Executor { store, mark, guest };
        Ok((executor, manifest))
    }

    fn configure(
        code: &Code,
        store: &mut Store<State>,
        setup: &types::Setup,
    ) -> wasmtime::Result<(Guest, Result<types::Manifest, Vec<types::ConfigError>>)> {
        match &code.core {
            Some(code) => {
                let mut guest = core_module::Guest::new(code, store)?;
                let configured = guest.configure(store, setup)?;
                Ok((Guest::Core(Box::new(guest)), configured))
            }
            None => {
                let guest = component::Guest::new(&code.component, store)?;
                let configured = guest.configure(store, setup)?;
                Ok((Guest::Component(guest), configured))
            }
        }
    }

    /// A store for a start.
    fn store(engine: &wasmtime::Engine, context: &Arc<Context>, cancel: &Cancel) -> Store<State> {
        let time = TimeLimit::new(start_time(context));
        let mut store = Store::new(engine, State::new(Arc::clone(context), time, cancel.clone()));
        store.limiter(|state| &mut state.allocated);
        store.set_hostcall_fuel(HOSTCALL_BYTES);
        store.set_max_component_handles(HANDLES);
        store.epoch_deadline_callback(|mut store| Ok(store.data_mut().deadline()));
        store
    }

    /// Makes a call within its limit.
    #[inline]
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Guest, &mut Store<State>) -> wasmtime::Result<T>,
    ) -> Result<T, Failure> {
        within(&self.mark, &mut self.store, |store| call(&mut self.guest, store))
            .map_err(|error| failure(&self.store, &error))
    }

    /// The query phase; no verdict at all if the guest does not export it.
    pub(super) fn queries(
        &mut self,
        now: u64,
        batch: &[types::Query],
        bytes: &[u8],
    ) -> Result<Vec<types::Verdict>, Failure> {
        self.call(|guest, store| match guest {
            Guest::Core(guest) => guest.queries(store, now, batch, bytes),
            Guest::Component(guest) => guest.queries(store, now, batch, bytes),
        })
    }

    /// The response phase; no verdict at all if the guest does not export it.
    pub(super) fn responses(
        &mut self,
        now: u64,
        batch: &[types::Response],
        bytes: &[u8],
    ) -> Result<Vec<types::ResponseVerdict>, Failure> {
        self.call(|guest, store| match guest {
            Guest::Core(guest) => guest.responses(store, now, batch, bytes),
            Guest::Component(guest) => guest.responses(store, now, batch, bytes),
        })
    }

    /// The event phase; nothing if the guest does not export it.
    pub(super) fn events(&mut self, batch: &[types::Event], bytes: &[u8]) -> Result<(), Failure> {
        self.call(|guest, store| match guest {
            Guest::Core(guest) => guest.events(store, batch, bytes),
            Guest::Component(guest) => guest.events(store, batch, bytes),
        })
    }
}

/// Enters a guest for no longer than its store's limit.
#[inline]
fn within<T>(mark: &Mark, store: &mut Store<State>, call: impl FnOnce(&mut Store<State>) -> T) -> T {
    store.data_mut().time.begin();
    // The next tick calls back, and so does each after it.
    store.set_epoch_deadline(1);
    mark.during(|| call(store))
}

/// How long a start may take.
fn start_time(context: &Context) -> Duration {
    context
        .limits
        .time
        .saturating_mul(CONFIGURE_FACTOR)
        .max(CONFIGURE_MINIMUM)
}

#[cold]
fn failure(store: &Store<State>, error: &wasmtime::Error) -> Failure {
    Failure::of(error, store.data().allocated.out_of_memory)
}

impl Failure {
    /// What ended a call. `out_of_memory`: whether the guest had asked for more than its limit.
    pub(super) fn of(error: &wasmtime::Error, out_of_memory: bool) -> Failure {
        let (reason, what) = if error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) {
            (Reason::Time, "it took longer than `limits time=` allows: ")
        } else if out_of_memory {
            // Guests answer a refused allocation with a trap of their own.
            (Reason::Memory, "it wants more than `limits memory=` allows: ")
        } else {
            (Reason::Trap, "")
        };
        Failure {
            reason,
            message: text::one_line(&format!("{what}{error:#}"), 1024),
        }
    }
}
