//! From a `filter` block of the configuration to something that can be instantiated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::task::{JoinError, spawn_blocking};
use wasmtime::component::{Component, HasSelf, Linker};

use super::bindings::dnsweir::filter::{host, types};
use super::cancel::{Cancel, CancelOnDrop};
use super::compile::{self, Confinement};
use super::configure::{self, ConfigError};
use super::counters::Counters;
use super::engine::Engine;
use super::exports::Exports;
use super::failure::Failure;
use super::footprint::overhead;
use super::instance::Instance;
use super::interest::Interest;
use super::sandbox::{Sandbox, StartError};
use super::text;
use super::time_limit::thread_clock;
use super::world::{Context, State, print_in_place};
use crate::config::{self, ConfigNode};

/// Octets of a module. What is larger is hardly a filter, and compiling it would take long.
pub const MODULE_MAXIMUM: usize = 64 << 20;

/// Octets of machine code that a module with so many octets may become, with what belongs to it: ordinary modules become
/// four times as large, and small ones are padded to whole pages.
pub(super) const fn code_maximum(module: usize) -> usize {
    (1 << 20) + 16 * module
}

/// A compiled filter that has accepted its configuration. Shared by all workers; each makes its own
/// [`Instance`].
pub struct Filter {
    pub(super) exports: Exports<State>,
    pub(super) context: Arc<Context>,
    pub(super) setup: types::Setup,
    /// How long starting an instance took.
    pub(super) start: Duration,
    config: Vec<ConfigNode>,
    interest: Interest,
    code_octets: usize,
    digest: String,
    /// Whether the load that this is part of is still wanted.
    cancel: Cancel,
}

impl Filter {
    /// Compiles and configures a filter. `zones` are those that use it, in presentation format. `counters` may be those of the filter that this one replaces.
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
        counters: Arc<Counters>,
    ) -> Result<Arc<Filter>, LoadError> {
        let bytes = &config.code[..];
        let overhead = overhead(bytes, &config.limits)?;
        let component = component(engine, bytes, &config.limits)?;
        let image = component.image_range();
        let exports = prepare(engine, &component)?;
        let context = Arc::new(Context::new(
            config.name.clone(),
            config.limits,
            overhead,
            counters,
            Arc::clone(&engine.output),
            Arc::clone(&engine.ticker),
        ));
        let setup = configure::setup(config, zones);
        // By the thread's own clock: what others do on this machine says nothing about the next start.
        let begin = thread_clock();
        let started = Sandbox::start(&exports, &context, &setup, &engine.cancel);
        let (_, manifest) = started.map_err(|error| no_start(error, &config.config, &engine.cancel))?;
        let start = thread_clock().saturating_sub(begin);
        let missing = exports.missing(&manifest);
        if !missing.is_empty() {
            return Err(LoadError::MissingPhases(missing.join(", ")));
        }
        let interest = Interest::new(&manifest).map_err(LoadError::Manifest)?;
        Ok(Arc::new(Filter {
            exports,
            context,
            setup,
            start,
            cancel: engine.cancel.clone(),
            config: config.config.clone(),
            interest,
            code_octets: image.end.addr() - image.start.addr(),
            digest: Sha256::digest(bytes)
                .iter()
                .map(|octet| format!("{octet:02x}"))
                .collect(),
        }))
    }

    /// An instance of its own for one worker.
    ///
    /// # Errors
    ///
    /// When the filter fails or changes its mind about the configuration that it has accepted before.
    pub fn instantiate(self: &Arc<Filter>) -> Result<Instance, LoadError> {
        let started = Sandbox::start(&self.exports, &self.context, &self.setup, &self.cancel);
        let (sandbox, _) = started.map_err(|error| no_start(error, &self.config, &self.cancel))?;
        Ok(Instance::new(Arc::clone(self), sandbox))
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

    /// What it wants to see.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// What it did so far, over all instances.
    pub fn counters(&self) -> &Arc<Counters> {
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
/// When the work panics.
pub async fn beside<T: Send + 'static>(
    engine: &Engine,
    work: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let unwanted = CancelOnDrop::default();
    let engine = engine.until(unwanted.cancel().clone());
    let done = spawn_blocking(move || work(&engine)).await;
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
    if let Some(component) = engine
        .compiled
        .as_ref()
        .and_then(|cache| cache.load(&engine.wasm, bytes))
    {
        return Ok(component);
    }
    let confinement = Confinement::of(limits);
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

/// What a file of WebAssembly holds.
#[derive(PartialEq, Eq)]
pub(super) enum Layer {
    Module,
    Component,
}

/// What a file holds by its preamble, which is "\0asm", a version, and the layer; none: something else. A precompiled
/// file has another preamble, and running it would be running foreign machine code.
pub(super) fn layer(bytes: &[u8]) -> Option<Layer> {
    match bytes.get(..8)? {
        [0, b'a', b's', b'm', _, _, 0, 0] => Some(Layer::Module),
        [0, b'a', b's', b'm', _, _, 1, 0] => Some(Layer::Component),
        _ => None,
    }
}

/// Gives a component the interface it imports, and checks what it exports.
fn prepare(engine: &Engine, component: &Component) -> Result<Exports<State>, LoadError> {
    let mut linker = link::<State>(engine, component)?;
    let pre = print_in_place(&mut linker)
        .and_then(|()| linker.instantiate_pre(component))
        .map_err(|error| LoadError::Interface(in_words(&error)))?;
    Exports::new(pre).map_err(|error| LoadError::Interface(in_words(&error)))
}

/// An error's text, which may quote names that the module chose.
pub(super) fn in_words(error: &impl fmt::Display) -> String {
    text::one_line(&format!("{error:#}"), 1024)
}

/// Gives the component its imports: ours, and for WASI's an empty world in which every function traps, since
/// standard libraries import it whether they use it or not. Refuses all others.
pub(super) fn link<World: types::Host + host::Host + 'static>(
    engine: &Engine,
    component: &Component,
) -> Result<Linker<World>, LoadError> {
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
    types::add_to_linker::<_, HasSelf<World>>(&mut linker, |world| world)
        .and_then(|()| host::add_to_linker::<_, HasSelf<World>>(&mut linker, |world| world))
        .and_then(|()| linker.define_unknown_imports_as_traps(component))
        .map_err(|error| LoadError::Interface(in_words(&error)))?;
    Ok(linker)
}

/// Whether an import is of the interface's version line; 0.1.x are compatible with each other.
fn is_ours(import: &str) -> bool {
    ["dnsweir:filter/host@", "dnsweir:filter/types@"]
        .iter()
        .any(|name| import.starts_with(name))
        && is_of_this_line(import)
}

/// Whether an interface has a version that this proxy speaks.
pub(super) fn is_of_this_line(interface: &str) -> bool {
    interface
        .split_once('@')
        .is_some_and(|(_, version)| version.starts_with("0.1."))
}

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It has this many octets.
    #[error("the module has {0} octets; a filter has at most {MODULE_MAXIMUM}")]
    TooLarge(usize),
    /// Some other file.
    #[error("this is neither a WebAssembly module nor a component; name the .wasm file that cargo built")]
    NotWasm,
    /// A module without the exports of a filter, or with imports that none has.
    #[error("this file is not a dnsweir filter: {0}")]
    Encode(String),
    /// Invalid, or with features that filters do not get.
    #[error("the module does not compile: {0}")]
    Compile(String),
    /// It takes more than this of the processor.
    #[error(
        "compiling the module takes more than {} of processor time; \
         if the module is meant to be that large, allow more with `limits load-time=`", config::spell_duration(*.0)
    )]
    CompilingTime(Duration),
    /// It did not get to run for long enough in this time.
    #[error(
        "compiling the module was given up after {}: the machine left it too little processor time; \
         allow more with `limits load-time=`", config::spell_duration(*.0)
    )]
    CompilingWaits(Duration),
    /// It takes more than so many octets.
    #[error(
        "compiling the module takes more than {} of memory; if the module is meant to be that large, \
         allow more with `limits load-memory=`, and the container as much more", config::spell_size(*.0)
    )]
    CompilingMemory(usize),
    /// Somebody has sent SIGKILL.
    #[error(
        "the process that compiled the module was killed, as the kernel does when memory runs out; \
         leave it more memory, or lower `limits load-memory=`"
    )]
    CompilerKilled,
    /// Each instance takes more than all it may have, before it has any memory of its own.
    #[error(
        "each instance of the filter takes {octets} octets for {globals} globals and {others} imports, exports, segments \
         and entries of tables in {instances} instances of its modules, which is more than `limits memory=` allows it \
         in all ({})", config::spell_size(*.limit)
    )]
    Footprint {
        /// That it takes.
        octets: usize,
        /// That it may take.
        limit: usize,
        /// Of core modules.
        instances: u64,
        /// In all of them.
        globals: u64,
        /// Items of all other kinds.
        others: u64,
    },
    /// The code is out of all proportion.
    #[error("the module has {module} octets, and its machine code {code}; it may have {} at most", code_maximum(*.module))]
    CodeTooLarge {
        /// Octets.
        module: usize,
        /// Octets.
        code: usize,
    },
    /// It is not wanted any more.
    #[error("loading was cancelled")]
    Cancelled,
    /// The machine did not let us.
    #[error("the module cannot be compiled on this machine: {0}")]
    Machine(std::io::Error),
    /// It wants more of the world than there is.
    #[error("the module imports {0}; a filter may only import dnsweir:filter/host@0.1.0")]
    Imports(String),
    /// An interface that is not the one in `wit/`.
    #[error("the module does not have the interface of a filter: {0}; build it against dnsweir:filter@0.1.0")]
    Interface(String),
    /// It failed while starting.
    #[error("the filter failed while it was being configured: {}", .0.message)]
    Failed(Failure),
    /// It does not want to run with this configuration.
    #[error("the filter rejects its configuration")]
    Rejected(Vec<ConfigError>),
    /// Phases that it wants to take part in without having them.
    #[error("the filter's manifest asks for phases that its module does not export: {0}")]
    MissingPhases(String),
    /// Something else in the manifest.
    #[error("the filter's manifest is invalid: {0}")]
    Manifest(String),
}
