//! From a `filter` block of the configuration to something that can be instantiated.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use wasmtime::component::{Component, HasSelf, Linker};

use super::bindings::dnsweir::filter::{host, types};
use super::builtin;
use super::configure::{self, ConfigError};
use super::counters::Counters;
use super::engine::Engine;
use super::executor::{self, Code, Executor, Failure, StartError};
use super::instance::Instance;
use super::interest::Interest;
use super::observed;
use super::plain;
use super::text;
use super::world::{Context, State};
use crate::config::{self, ConfigNode};

/// Octets of a module. What is larger is hardly a filter, and compiling it would take long.
pub const MODULE_MAXIMUM: usize = 64 << 20;

/// A compiled filter that has accepted its configuration. Shared by all workers; each makes its own
/// [`Instance`].
pub struct Filter {
    pub(super) code: Code,
    pub(super) context: Arc<Context>,
    pub(super) setup: types::Setup,
    /// How long starting an instance took.
    pub(super) start: Duration,
    config: Vec<ConfigNode>,
    interest: Interest,
    code_octets: usize,
    digest: String,
}

impl Filter {
    /// Compiles and configures a filter. `lookup` finds the code of built-in ones, `zones` are those that use
    /// this filter, in presentation format. `counters` may be those of the filter that this one replaces.
    ///
    /// Takes tens of milliseconds, longer for large modules: not for a worker's thread.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the module, or what the filter finds wrong with its configuration.
    pub fn load(
        engine: &Engine,
        config: &config::Filter,
        lookup: impl Fn(&str) -> Option<&'static [u8]>,
        zones: &[String],
        counters: Arc<Counters>,
    ) -> Result<Arc<Filter>, LoadError> {
        let bytes = bytes(config, lookup)?;
        let component = component(engine, bytes)?;
        let image = component.image_range();
        let mut code = prepare(engine, &component)?;
        let context = Arc::new(Context::new(
            config.name.clone(),
            config.limits,
            counters,
            Arc::clone(&engine.output),
            Arc::clone(&engine.ticker),
        ));
        if !engine.by_component {
            code.prefer_core(&context).map_err(LoadError::Failed)?;
        }
        let setup = configure::setup(config, zones);
        let begin = Instant::now();
        let (_, manifest) = Executor::start(&code, &context, &setup).map_err(|error| match error {
            StartError::Failed(failure) => LoadError::Failed(failure),
            StartError::Rejected(errors) => {
                LoadError::Rejected(configure::rejections(errors, &config.config))
            }
        })?;
        let start = begin.elapsed();
        let missing = code.missing(&manifest);
        if !missing.is_empty() {
            return Err(LoadError::MissingPhases(missing.join(", ")));
        }
        let interest = Interest::new(&manifest).map_err(LoadError::Manifest)?;
        let filter = Filter {
            code,
            context,
            setup,
            start,
            config: config.config.clone(),
            interest,
            code_octets: image.end.addr() - image.start.addr(),
            digest: Sha256::digest(bytes)
                .iter()
                .map(|octet| format!("{octet:02x}"))
                .collect(),
        };
        if let Some(questions) = &config.questions {
            observed::hold(engine, &filter, config, questions)?;
        }
        Ok(Arc::new(filter))
    }

    /// An instance of its own for one worker.
    ///
    /// # Errors
    ///
    /// When the filter fails or changes its mind about the configuration that it has accepted before.
    pub fn instantiate(self: &Arc<Filter>) -> Result<Instance, LoadError> {
        let (executor, _) =
            Executor::start(&self.code, &self.context, &self.setup).map_err(|error| match error {
                StartError::Failed(failure) => LoadError::Failed(failure),
                StartError::Rejected(errors) => {
                    LoadError::Rejected(configure::rejections(errors, &self.config))
                }
            })?;
        Ok(Instance::new(Arc::clone(self), executor))
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

/// The octets of a filter's module.
pub(super) fn bytes(
    config: &config::Filter,
    lookup: impl Fn(&str) -> Option<&'static [u8]>,
) -> Result<&[u8], LoadError> {
    match &config.module {
        config::Module::Builtin(name) => {
            lookup(name).ok_or_else(|| LoadError::NoBuiltin { name: name.clone() })
        }
        config::Module::File { bytes, .. } => Ok(bytes),
    }
}

/// Compiles a module, or finds what it was compiled to before.
pub(super) fn component(engine: &Engine, bytes: &[u8]) -> Result<Component, LoadError> {
    if bytes.len() > MODULE_MAXIMUM {
        return Err(LoadError::TooLarge(bytes.len()));
    }
    if let Some(component) = engine
        .compiled
        .as_ref()
        .and_then(|cache| cache.load(&engine.wasm, bytes))
    {
        return Ok(component);
    }
    // The preamble: "\0asm", a version, and the layer (0: module, 1: component). A precompiled file has
    // another one and is refused with the rest: running it would be running foreign machine code.
    let component = match bytes.get(..8) {
        Some([0, b'a', b's', b'm', _, _, 0, 0]) => {
            let component =
                plain::component(bytes).map_err(|error| LoadError::Encode(text::one_line(&error, 1024)))?;
            translate(engine, &component)?
        }
        Some([0, b'a', b's', b'm', _, _, 1, 0]) => translate(engine, bytes)?,
        _ => return Err(LoadError::NotWasm),
    };
    if let Some(cache) = &engine.compiled
        && let Err(error) = cache.store(&engine.wasm, bytes, &component)
    {
        tracing::warn!(%error, "compiled code cannot be kept: the next start will compile again");
    }
    Ok(component)
}

/// Compiles a component to machine code.
fn translate(engine: &Engine, component: &[u8]) -> Result<Component, LoadError> {
    let component = executor::exported(component);
    // Should some module make the compiler panic, that is this module's failure and not the proxy's.
    catch_unwind(AssertUnwindSafe(|| {
        Component::from_binary(&engine.wasm, &component)
    }))
    .map_err(|_| LoadError::Compile("the compiler panicked".into()))?
    .map_err(|error| LoadError::Compile(in_words(&error)))
}

/// Gives a component the interface it imports, and checks what it exports.
fn prepare(engine: &Engine, component: &Component) -> Result<Code, LoadError> {
    let linker = link::<State>(engine, component)?;
    let pre = linker
        .instantiate_pre(component)
        .map_err(|error| LoadError::Interface(in_words(&error)))?;
    Code::new(pre).map_err(|error| LoadError::Interface(in_words(&error)))
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
    /// No built-in filter has this name.
    #[error("there is no built-in filter {name:?}; there are {}", builtin::names())]
    NoBuiltin {
        /// What was asked for.
        name: String,
    },
    /// It has this many octets.
    #[error("the module has {0} octets; a filter has at most {MODULE_MAXIMUM}")]
    TooLarge(usize),
    /// Some other file.
    #[error("this is neither a WebAssembly module nor a component; give the .wasm file that cargo built")]
    NotWasm,
    /// A module without the exports of a filter, or with imports that none has.
    #[error("the module is no filter: {0}")]
    Encode(String),
    /// Invalid, or with features that filters do not get.
    #[error("the module does not compile: {0}")]
    Compile(String),
    /// It wants more of the world than there is.
    #[error("the module imports {0}; a filter may only import dnsweir:filter/host@0.1.0")]
    Imports(String),
    /// An interface that is not the one in `wit/`.
    #[error("the module does not have the interface of a filter: {0}; build it against dnsweir:filter@0.1.0")]
    Interface(String),
    /// It failed while starting.
    #[error("the filter failed while it configured itself: {}", .0.message)]
    Failed(Failure),
    /// It does not want to run with this configuration.
    #[error("the filter rejects its configuration")]
    Rejected(Vec<ConfigError>),
    /// Phases that it wants to take part in without having them.
    #[error("the filter's manifest asks for phases that its module does not export: {0}")]
    MissingPhases(String),
    /// It says something else than what was recorded of it.
    #[error("{differing} of {of} recorded questions are answered otherwise; {first}")]
    Questions {
        /// How many.
        differing: usize,
        /// Of how many.
        of: usize,
        /// The first of them, in one line.
        first: String,
    },
    /// Something else in the manifest.
    #[error("the filter's manifest is invalid: {0}")]
    Manifest(String),
}
