//! Loads the filter of a `filter` block, so that it can be instantiated.

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
use super::host_state::{Context, HostState, print_in_place};
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
use crate::background;
use crate::config::{self, ConfigNode, hex};
use crate::confine::Confinement;

/// A compiled filter that has accepted its configuration. Shared by all workers; each makes its own
/// [`Instance`](super::Instance).
pub struct Filter {
    pub(super) exports: Exports<HostState>,
    pub(super) context: Arc<Context>,
    pub(super) setup: types::Setup,
    /// CPU time of starting an instance: what a failed call costs beside the call itself.
    pub(super) start: Duration,
    config: Vec<ConfigNode>,
    interest: Interest,
    /// Blames failed calls.
    pub(super) blame: Blame,
    /// Spare instances.
    pub(super) spares: Spares,
    notes: Vec<String>,
    code_octets: usize,
    digest: String,
    /// Cancels the load that this is part of.
    cancel: Cancel,
}

impl Filter {
    /// Compiles and configures a filter. `zones` are those that use it, in presentation format. It takes over
    /// the counters and tables of the filter `before`, which it replaces.
    ///
    /// Takes tens of milliseconds, longer for large modules, and at most as long as `limits` allow, so it
    /// must not run on a worker's thread. The [`Cancel`](super::Cancel) that the engine was given ends it
    /// early.
    ///
    /// # Errors
    ///
    /// When the module is invalid, or the filter fails or rejects its configuration.
    pub fn load(
        engine: &Engine,
        config: &config::Filter,
        zones: &[String],
        before: Option<&Filter>,
    ) -> Result<Arc<Filter>, LoadError> {
        let bytes = &config.code[..];
        // First, so that the checks after it are cheap.
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
        // CPU time of this thread: other load on this machine says nothing about the next start.
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
            digest: hex::digits(&Sha256::digest(bytes)),
        }))
    }

    /// Makes a sandbox for one worker.
    ///
    /// # Errors
    ///
    /// When the filter fails, or now rejects the configuration that it accepted before.
    pub(super) fn sandbox(&self) -> Result<Sandbox, LoadError> {
        let started = Sandbox::start(&self.exports, &self.context, &self.setup, &self.cancel);
        let (sandbox, _) = started.map_err(|error| no_start(error, &self.config, &self.cancel))?;
        Ok(sandbox)
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// The SHA-256 of its module, as in the configuration's `sha256`.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Bytes of its machine code and metadata, shared by all instances.
    pub fn code_octets(&self) -> usize {
        self.code_octets
    }

    /// Maximum bytes of its tables.
    pub fn table_octets(&self) -> usize {
        self.context.tables.get().map_or(0, Tables::octets)
    }

    /// Maximum bytes of messages, labels and annotations in pending events on a worker.
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

    /// What it requests.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Sets how many bits of an IPv4 and of an IPv6 address identify a client, when failed calls are blamed.
    pub fn tell_clients_apart_by(&self, bits: (u8, u8)) {
        self.blame.tell_apart_by(bits);
    }

    /// Warnings about what may be a mistake, worded to follow its name: WASI imports that are not granted,
    /// and a manifest without phases.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Its counters, over all instances.
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

/// The load error for a failed start, with places in the configuration.
fn no_start(error: StartError, config: &[ConfigNode], cancel: &Cancel) -> LoadError {
    match error {
        StartError::Failed(_) if cancel.is_cancelled() => LoadError::Cancelled,
        StartError::Failed(failure) => LoadError::Failed(failure),
        StartError::Rejected(errors) => LoadError::Rejected(configure::rejections(errors, config)),
    }
}

/// Loads filters on a separate thread, with an engine whose loads are cancelled when the future is dropped,
/// even those of modules that compile for minutes.
///
/// # Errors
///
/// When no thread can be started, or the work panics.
pub async fn beside<T: Send + 'static>(
    engine: &Engine,
    work: impl FnOnce(&Engine) -> T + Send + 'static,
) -> io::Result<T> {
    let unwanted = CancelOnDrop::default();
    let engine = engine.until(unwanted.cancel().clone());
    let done = background::beside("loading", move || work(&engine)).await;
    // Loading is done, so what was loaded must not be cancelled.
    unwanted.disarm();
    done
}

/// Compiles a module, or loads its code from the installed code or the cache.
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
    // SAFETY: this process or a child of it has just compiled the code, and no other process can access its
    // memory.
    let component = unsafe { compile::open(&engine.wasm, &code) }
        .map_err(|error| LoadError::Compile(in_words(&error)))?;
    if let Some(cache) = &engine.compiled
        && let Err(error) = cache.store(&engine.wasm, bytes, &code)
    {
        tracing::warn!(%error, "cannot store compiled code: the next start will compile again");
    }
    Ok(component)
}

/// Links a component's imports and checks its exports.
fn prepare(engine: &Engine, component: &Component) -> Result<Exports<HostState>, LoadError> {
    let mut linker = link::<HostState>(engine, component)?;
    let pre = print_in_place(&mut linker)
        .and_then(|()| linker.instantiate_pre(component))
        .map_err(|error| LoadError::Interface(in_words(&error)))?;
    Exports::new(pre).map_err(|error| LoadError::Interface(in_words(&error)))
}

/// Links a component's imports: ours, [WASI's](super::wasi), and traps for all other functions of WASI, which
/// standard libraries import whether they use it or not. Refuses all other imports.
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

/// Whether an import is part of the interface in a compatible version, 0.1.x.
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
