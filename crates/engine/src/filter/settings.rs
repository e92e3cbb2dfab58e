//! How WebAssembly is compiled and run, the same in a process that only compiles as in the one that runs what came of it.

use std::io;

use wasmtime::{Config, OptLevel};

/// Bytes of native stack a guest may use. A worker's stack must hold this and the host's frames above it:
/// running into the guard page inside the host aborts the process, running out inside the guest is a trap.
pub(crate) const GUEST_STACK: usize = 256 << 10;

/// What compiles modules, and runs what came of them if it was compiled with the same settings.
pub(super) fn compiler(metered: bool) -> Result<wasmtime::Engine, EngineError> {
    let mut config = config();
    config.consume_fuel(metered || cfg!(feature = "box-fuel"));
    wasmtime::Engine::new(&config).map_err(EngineError::Wasm)
}

/// The same for every processor of a kind that has these features, whichever this one is.
pub(super) fn compiler_for(target: &str, features: &[&str]) -> Result<wasmtime::Engine, EngineError> {
    let mut config = config();
    config.consume_fuel(cfg!(feature = "box-fuel"));
    config.target(target).map_err(EngineError::Wasm)?;
    for feature in features {
        // SAFETY: it says which instructions code may use. What loads the code refuses it where the processor lacks them.
        unsafe { config.cranelift_flag_enable(feature) };
    }
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
