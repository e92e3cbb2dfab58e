//! What all filters of the process share: the compiler and its settings, the clock, and standard output.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::cancel::Cancel;
use super::compile::Where;
use super::compiled::CompiledCache;
use super::precompiled::Precompiled;
use super::settings::{EngineError, compiler};
use super::ticker::Ticker;
use crate::output::{self, Queue};

/// Compiles and runs filters. One per process, since code compiled by one engine must not meet another's
/// (RUSTSEC-2026-0222); clones share it.
#[derive(Clone)]
pub struct Engine {
    pub(super) wasm: wasmtime::Engine,
    pub(super) ticker: Arc<Ticker>,
    pub(super) output: Arc<Queue>,
    /// Where code is that was installed with the program.
    pub(super) precompiled: Option<Precompiled>,
    /// Where compiled code is kept.
    pub(super) compiled: Option<CompiledCache>,
    /// Where modules are compiled.
    pub(super) compiler: Where,
    /// Whether the engine counts instructions.
    metered: bool,
    /// Whether what is loaded is still wanted.
    pub(super) cancel: Cancel,
    /// Told when a filter on probation fails for many.
    pub(super) alarm: Arc<Notify>,
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

    /// Takes nothing more of what filters print, and waits until what there is has been written: for a second at most. An
    /// instance that is still being made for later does not hold that up.
    pub fn finish_printing(&self) {
        self.output.finish();
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
            precompiled: None,
            compiled: None,
            compiler: Where::Here,
            metered,
            cancel: Cancel::default(),
            alarm: Arc::default(),
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

    /// Resolves when a filter on probation has failed for many: which, [`Filter::charges`](super::Filter::charges) tells.
    pub async fn alarm(&self) {
        self.alarm.notified().await;
    }

    /// Whether what is loaded is not wanted any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// The same engine, which takes what was installed with the program, if anything was.
    pub fn with_precompiled(self, installed: Option<Precompiled>) -> Engine {
        Engine {
            precompiled: installed,
            ..self
        }
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
