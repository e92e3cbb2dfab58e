//! From a `filter` block of the configuration to something that can be instantiated.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use wasmtime::component::{Component, HasSelf, Linker};

use super::batch::{EVENT_OCTETS, LABEL_OCTETS};
use super::bindings::dnsweir::filter::{host, types};
use super::blame::Blame;
use super::cancel::{Cancel, CancelOnDrop};
use super::compile;
use super::configure;
use super::counters::FilterCounters;
use super::data::{self, WithData};
use super::engine::Engine;
use super::evidence::{Evidence, Probation};
use super::exports::Exports;
use super::face;
use super::footprint::overhead;
use super::interest::Interest;
use super::layer::layer;
use super::load_error::{LoadError, MODULE_MAXIMUM, code_maximum};
use super::outcomes::Outcomes;
use super::sandbox::{Sandbox, StartError};
use super::spares::Spares;
use super::tables::{self, Tables, WithTables};
use super::text::{self, in_words};
use super::time_limit::thread_clock;
use super::wasi::{self, HasWasi};
use super::world::{Context, World, print_in_place};
use crate::background;
use crate::config::{self, ConfigNode};
use crate::confine::Confinement;

/// A compiled filter that has accepted its configuration. Shared by all workers; each makes its own
/// [`Instance`](super::Instance).
pub struct Filter {
    pub(super) exports: Exports<World>,
    pub(super) context: Arc<Context>,
    pub(super) setup: types::Setup,
    /// How long starting an instance took: what a failed call costs beside itself.
    pub(super) start: Duration,
    config: Vec<ConfigNode>,
    interest: Interest,
    /// Whom failed calls are blamed on.
    pub(super) blame: Blame,
    /// Instances that are ready.
    pub(super) spares: Spares,
    notes: Vec<String>,
    code_octets: usize,
    digest: String,
    /// Whether the load that this is part of is still wanted.
    cancel: Cancel,
}

impl Filter {
    /// Compiles and configures a filter. `zones` are those that use it, in presentation format. It goes on with the counters
    /// and tables of the filter `before`, which it replaces.
    ///
    /// Takes tens of milliseconds, longer for large modules, and as long as `limits` allow at most: not for a worker's
    /// thread. A load that is not wanted any more is ended by the [`Cancel`](super::Cancel) that the engine was given.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the module, or what the filter finds wrong with its configuration.
    pub fn load(
        engine: &Engine,
        config: &config::Filter,
        zones: &[String],
        before: Option<&Filter>,
    ) -> Result<Arc<Filter>, LoadError> {
        let bytes = &config.code[..];
        // First of all what looking at it costs.
        let overhead = overhead(bytes, &config.limits)?;
        face::check(bytes)?;
        let component = component(engine, bytes, &config.limits)?;
        let image = component.image_range();
        let exports = prepare(engine, &component)?;
        let counters = before.map(|before| Arc::clone(before.counters()));
        let counters = counters.unwrap_or_default();
        let probation = Probation::begin(Arc::clone(&counters), config.probation, Arc::clone(&engine.alarm));
        let context = Arc::new(Context::new(
            config,
            overhead,
            counters,
            Arc::clone(&engine.output),
            Arc::clone(&engine.ticker),
        ));
        let setup = configure::setup(config, zones);
        // By the thread's own clock: what others do on this machine says nothing about the next start.
        let begin = thread_clock();
        let started = Sandbox::start(&exports, &context, &setup, &engine.cancel);
        let (sandbox, manifest) = started.map_err(|error| no_start(error, &config.config, &engine.cancel))?;
        let start = thread_clock().saturating_sub(begin);
        let mut missing = exports.missing(&manifest);
        if config.refresh.is_some() && !exports.refreshes() {
            missing.push("refresh");
        }
        if !missing.is_empty() {
            return Err(LoadError::MissingPhases(missing.join(", ")));
        }
        let interest = Interest::new(&manifest).map_err(LoadError::Manifest)?;
        let before = before.and_then(|before| before.context.tables.get());
        let tables = Tables::open(&manifest.tables, config.limits.tables, before);
        let tables = tables.map_err(LoadError::Manifest)?;
        context.tables.get_or_init(|| tables);
        Ok(Arc::new(Filter {
            exports,
            context,
            setup,
            start,
            cancel: engine.cancel.clone(),
            config: config.config.clone(),
            interest,
            blame: Blame::new(Evidence::of(probation)),
            spares: Spares::of(sandbox),
            notes: notes(&component, &manifest, &config.wasi),
            code_octets: image.end.addr() - image.start.addr(),
            digest: Sha256::digest(bytes)
                .iter()
                .map(|octet| format!("{octet:02x}"))
                .collect(),
        }))
    }

    /// A sandbox of its own for one worker.
    ///
    /// # Errors
    ///
    /// When the filter fails or changes its mind about the configuration that it has accepted before.
    pub(super) fn sandbox(&self) -> Result<Sandbox, LoadError> {
        let started = Sandbox::start(&self.exports, &self.context, &self.setup, &self.cancel);
        let (sandbox, _) = started.map_err(|error| no_start(error, &self.config, &self.cancel))?;
        Ok(sandbox)
    }

    /// The name in the configuration.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// The SHA-256 of its module, as the configuration's `sha256` would have it.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Octets of its machine code and what belongs to that, which all instances share.
    pub fn code_octets(&self) -> usize {
        self.code_octets
    }

    /// Octets that its tables have at most.
    pub fn table_octets(&self) -> usize {
        self.context.tables.get().map_or(0, Tables::octets)
    }

    /// Octets of messages, labels and annotations that wait to be heard of by it on a worker, at most.
    pub fn message_octets(&self) -> usize {
        let Interest {
            events,
            messages,
            details,
            ..
        } = &self.interest;
        let of_messages = if *messages { EVENT_OCTETS } else { 0 };
        let of_labels = if details.labels() { LABEL_OCTETS } else { 0 };
        match *events {
            Outcomes::NONE => 0,
            _ => of_messages + of_labels,
        }
    }

    /// What it wants to see.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// How many bits of an IPv4 and of an IPv6 address say who a client is that failed calls are blamed on.
    pub fn tell_clients_apart_by(&self, bits: (u8, u8)) {
        self.blame.tell_apart_by(bits);
    }

    /// What is no mistake and may be one, in words that follow its name: what its module imports of WASI and is not granted,
    /// and that it takes part in nothing.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What it did so far, over all instances.
    pub fn counters(&self) -> &Arc<FilterCounters> {
        &self.context.counters
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("name", &self.context.name)
            .finish_non_exhaustive()
    }
}

fn notes(component: &Component, manifest: &types::Manifest, grants: &config::Wasi) -> Vec<String> {
    let mut notes = wasi::not_granted(component, grants);
    if !(manifest.queries || manifest.responses || manifest.events) {
        let note = "is never called, since its manifest asks for no phase; in Rust, write `Manifest::new().queries()`";
        notes.push(note.into());
    }
    notes
}

/// Why an instance did not start, at its place in the configuration.
fn no_start(error: StartError, config: &[ConfigNode], cancel: &Cancel) -> LoadError {
    match error {
        StartError::Failed(_) if cancel.is_cancelled() => LoadError::Cancelled,
        StartError::Failed(failure) => LoadError::Failed(failure),
        StartError::Rejected(errors) => LoadError::Rejected(configure::rejections(errors, config)),
    }
}

/// Loads filters on a thread of its own, with an engine whose loads end when the future is dropped: those of modules that
/// compile for minutes as well.
///
/// # Errors
///
/// When there can be no thread, or the work panics.
pub async fn beside<T: Send + 'static>(
    engine: &Engine,
    work: impl FnOnce(&Engine) -> T + Send + 'static,
) -> io::Result<T> {
    let unwanted = CancelOnDrop::default();
    let engine = engine.until(unwanted.cancel().clone());
    let done = background::beside("loading", move || work(&engine)).await;
    // What was loaded is wanted from now on.
    unwanted.disarm();
    done
}

/// Compiles a module, or finds what it was compiled to before.
pub(super) fn component(
    engine: &Engine,
    bytes: &[u8],
    limits: &config::Limits,
) -> Result<Component, LoadError> {
    if bytes.len() > MODULE_MAXIMUM {
        return Err(LoadError::TooLarge(bytes.len()));
    }
    if layer(bytes).is_none() {
        return Err(LoadError::NotWasm);
    }
    face::check_names(bytes)?;
    let installed = || engine.precompiled.as_ref()?.load(&engine.wasm, bytes);
    let kept = || engine.compiled.as_ref()?.load(&engine.wasm, bytes);
    if let Some(component) = installed().or_else(kept) {
        return Ok(component);
    }
    let confinement = Confinement {
        memory: limits.load_memory,
        time: limits.load_time,
    };
    let code = engine
        .compiler
        .compile(&engine.wasm, bytes, confinement, &engine.cancel)?;
    if code.len() > code_maximum(bytes.len()) {
        let (module, code) = (bytes.len(), code.len());
        return Err(LoadError::CodeTooLarge { module, code });
    }
    // SAFETY: this process or a child of it has compiled it just now, and it lies in memory that nobody else has.
    let component = unsafe { compile::open(&engine.wasm, &code) }
        .map_err(|error| LoadError::Compile(in_words(&error)))?;
    if let Some(cache) = &engine.compiled
        && let Err(error) = cache.store(&engine.wasm, bytes, &code)
    {
        tracing::warn!(%error, "cannot store compiled code: the next start will compile again");
    }
    Ok(component)
}

/// Gives a component the interface it imports, and checks what it exports.
fn prepare(engine: &Engine, component: &Component) -> Result<Exports<World>, LoadError> {
    let mut linker = link::<World>(engine, component)?;
    let pre = print_in_place(&mut linker)
        .and_then(|()| linker.instantiate_pre(component))
        .map_err(|error| LoadError::Interface(in_words(&error)))?;
    Exports::new(pre).map_err(|error| LoadError::Interface(in_words(&error)))
}

/// Gives the component its imports: ours, [WASI's](super::wasi), and functions that trap for what else is called WASI, since
/// standard libraries import it whether they use it or not. Refuses all others.
pub(super) fn link<W: types::Host + host::Host + WithTables + WithData + HasWasi>(
    engine: &Engine,
    component: &Component,
) -> Result<Linker<W>, LoadError> {
    let foreign: Vec<String> = component
        .component_type()
        .imports(&engine.wasm)
        .map(|(name, _)| name)
        .filter(|name| !(is_ours(name) || name.starts_with("wasi:")))
        .map(String::from)
        .collect();
    if !foreign.is_empty() {
        return Err(LoadError::Imports(text::one_line(&foreign.join(", "), 1024)));
    }
    let mut linker = Linker::new(&engine.wasm);
    types::add_to_linker::<_, HasSelf<W>>(&mut linker, |world| world)
        .and_then(|()| host::add_to_linker::<_, HasSelf<W>>(&mut linker, |world| world))
        .and_then(|()| tables::link(&mut linker))
        .and_then(|()| data::link(&mut linker))
        .and_then(|()| wasi::add_to_linker(&mut linker))
        .and_then(|()| wasi::trap_the_rest(&mut linker, engine, component))
        .map_err(|error| LoadError::Interface(in_words(&error)))?;
    Ok(linker)
}

/// Whether an import is of the interface's version line; 0.1.x are compatible with each other.
fn is_ours(import: &str) -> bool {
    [
        "dnsweir:filter/host@",
        "dnsweir:filter/tables@",
        "dnsweir:filter/data@",
        "dnsweir:filter/output@",
        "dnsweir:filter/types@",
    ]
    .iter()
    .any(|name| import.starts_with(name))
        && face::is_of_this_line(import)
}
