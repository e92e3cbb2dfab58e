//! What all filters of the process share: the compiler and its settings, the clock, and standard output.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use wasmtime::{Config, OptLevel};

use super::cancel::Cancel;
use super::compile::Where;
use super::compiled::CompiledCache;
use super::ticker::Ticker;
use crate::output::{self, Queue};

/// Bytes of native stack a guest may use. A worker's stack must hold this and the host's frames above it:
/// running into the guard page inside the host aborts the process, running out inside the guest is a trap.
pub const GUEST_STACK: usize = 256 << 10;

/// Compiles and runs filters. One per process, since code compiled by one engine must not meet another's
/// (RUSTSEC-2026-0222); clones share it.
#[derive(Clone)]
pub struct Engine {
    pub(super) wasm: wasmtime::Engine,
    pub(super) ticker: Arc<Ticker>,
    pub(super) output: Arc<Queue>,
    /// Where compiled code is kept.
    pub(super) compiled: Option<CompiledCache>,
    /// Where modules are compiled.
    pub(super) compiler: Where,
    /// Whether the engine counts instructions.
    metered: bool,
    /// Whether what is loaded is still wanted.
    pub(super) cancel: Cancel,
}

impl Engine {
    /// An engine whose filters print to standard output.
    ///
    /// # Errors
    ///
    /// When this machine cannot run compiled WebAssembly, or a thread cannot be started.
    pub fn new() -> Result<Engine, EngineError> {
        Engine::start(false, output::stdout().map_err(EngineError::Thread)?)
    }

    /// An engine whose filters print to `sink`, from a thread of its own.
    ///
    /// # Errors
    ///
    /// As for [`Engine::new`].
    pub fn printing_to(sink: impl Write + Send + 'static) -> Result<Engine, EngineError> {
        Engine::start(false, queue(sink)?)
    }

    /// An engine that counts instructions. Calls into its code cost a good deal more: it is for trying
    /// filters, not for answering queries.
    ///
    /// # Errors
    ///
    /// As for [`Engine::new`].
    pub fn metered() -> Result<Engine, EngineError> {
        Engine::start(true, queue(io::sink())?)
    }

    fn start(metered: bool, output: Arc<Queue>) -> Result<Engine, EngineError> {
        let wasm = compiler(metered)?;
        let ticker = Ticker::start({
            let wasm = wasm.clone();
            move || wasm.increment_epoch()
        })
        .map_err(EngineError::Thread)?;
        Ok(Engine {
            wasm,
            ticker: Arc::new(ticker),
            output,
            compiled: None,
            compiler: Where::Here,
            metered,
            cancel: Cancel::default(),
        })
    }

    /// The same engine, which has modules compiled by a child process with the limits of their filter. Only for the
    /// program `dnsweir`, since the child is whatever program runs, under a command that only this one has.
    pub fn compiling_aside(self) -> Engine {
        let metered = self.metered;
        Engine {
            compiler: Where::Aside { metered },
            ..self
        }
    }

    /// The same engine, whose loads end when they are not wanted any more.
    pub fn until(&self, cancel: Cancel) -> Engine {
        Engine {
            cancel,
            ..self.clone()
        }
    }

    /// Whether what is loaded is not wanted any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// The same engine, which looks in `cache` before it compiles.
    pub fn with_compiled_cache(self, cache: CompiledCache) -> Engine {
        Engine {
            compiled: Some(cache),
            ..self
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

fn queue(sink: impl Write + Send + 'static) -> Result<Arc<Queue>, EngineError> {
    let queue = Queue::start("filters", sink, Duration::ZERO).map_err(EngineError::Thread)?;
    Ok(Arc::new(queue))
}

/// What compiles modules, and runs what came of them if it was compiled with the same settings.
pub(super) fn compiler(metered: bool) -> Result<wasmtime::Engine, EngineError> {
    let mut config = config();
    config.consume_fuel(metered);
    wasmtime::Engine::new(&config).map_err(EngineError::Wasm)
}

fn config() -> Config {
    let mut config = Config::new();
    config
        // One thread, so that what compiling takes does not depend on the machine, and other processors are left to
        // those who answer queries.
        .parallel_compilation(false)
        // Components may neither block nor run beside themselves here; the support for it costs three times
        // the call.
        .concurrency_support(false)
        // Ends calls that take too long; cheaper than counting instructions.
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(GUEST_STACK)
        // With four gigabytes of address space and a guard behind each memory, the MMU checks bounds, and
        // no load is speculated past a software check.
        .memory_reservation(4 << 30)
        .memory_guard_size(32 << 20)
        .signals_based_traps(true)
        .memory_init_cow(true)
        // Proposals that a filter has no use for and that would be more compiler to trust. What rustc, clang and
        // interpreters are compiled to by default (reference types, bulk memory, multi-value, SIMD, tail calls)
        // stays on, and so do several memories: the runtime itself needs them between the parts of a composed
        // component.
        .wasm_memory64(false)
        .wasm_relaxed_simd(false);
    config
}

/// Why no filter can run in this process.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The compiler does not support this machine or the kernel refused what it needs.
    #[error("cannot run WebAssembly on this machine: {0:#}")]
    Wasm(wasmtime::Error),
    /// No thread.
    #[error("cannot start a thread for the filters: {0}")]
    Thread(io::Error),
}
