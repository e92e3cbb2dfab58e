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
    /// The code installed with the program.
    pub(super) precompiled: Option<Precompiled>,
    /// The cache of compiled code.
    pub(super) compiled: Option<CompiledCache>,
    /// Where modules are compiled.
    pub(super) compiler: Where,
    /// Whether the engine counts instructions.
    metered: bool,
    /// Cancels loads that are no longer needed.
    pub(super) cancel: Cancel,
    /// Notified when a filter on probation has failed for several names and clients.
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

    /// An engine whose filters print to `sink`, from a separate thread.
    ///
    /// # Errors
    ///
    /// As for [`Engine::new`].
    pub fn printing_to(sink: impl Write + Send + 'static) -> Result<Engine, EngineError> {
        Engine::start(false, queue(sink)?)
    }

    /// Accepts no more output of filters, and waits at most a second until what is queued has been written.
    /// An instance that is still being made as a spare does not delay that.
    pub fn finish_printing(&self) {
        self.output.finish();
    }

    /// An engine that counts instructions. That makes calls much slower: it is for trying out filters, not
    /// for answering queries.
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

    /// The same engine, with modules compiled by a child process within their filter's limits. Only for the
    /// program `dnsweir`, since the child is the running program under a command that only this one has.
    pub fn compiling_aside(self) -> Engine {
        let metered = self.metered;
        Engine {
            compiler: Where::Aside { metered },
            ..self
        }
    }

    /// The same engine, whose loads can be cancelled.
    pub fn until(&self, cancel: Cancel) -> Engine {
        Engine {
            cancel,
            ..self.clone()
        }
    }

    /// Resolves when a filter on probation has failed for several names and clients;
    /// [`Filter::charges`](super::Filter::charges) returns the queries.
    pub async fn alarm(&self) {
        self.alarm.notified().await;
    }

    /// Whether loads are cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// The same engine, using the code that was installed with the program, if any.
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
