//! The settings of wasmtime, the same in a process that only compiles as in the one that runs the code.

use std::io;

use wasmtime::{Config, OptLevel};

/// Bytes of native stack for a guest. A worker's stack must hold this plus the host's frames above it:
/// hitting the guard page inside the host aborts the process, overflowing inside the guest is a trap.
pub(crate) const GUEST_STACK: usize = 256 << 10;

/// An engine that compiles modules, and runs code compiled with the same settings.
pub(super) fn compiler(metered: bool) -> Result<wasmtime::Engine, EngineError> {
    let mut config = config();
    config.consume_fuel(metered || cfg!(feature = "box-fuel"));
    wasmtime::Engine::new(&config).map_err(EngineError::Wasm)
}

/// An engine that compiles for every processor of a target with these features, whatever this machine has.
pub(super) fn compiler_for(target: &str, features: &[&str]) -> Result<wasmtime::Engine, EngineError> {
    let mut config = config();
    config.consume_fuel(cfg!(feature = "box-fuel"));
    config.target(target).map_err(EngineError::Wasm)?;
    for feature in features {
        // SAFETY: this sets which instructions code may use. The loader refuses the code on processors that
        // lack them.
        unsafe { config.cranelift_flag_enable(feature) };
    }
    wasmtime::Engine::new(&config).map_err(EngineError::Wasm)
}

fn config() -> Config {
    let mut config = Config::new();
    config
        // One thread, so that compile time does not depend on the machine, and the other processors stay free
        // for answering queries.
        .parallel_compilation(false)
        // Components may neither block nor run concurrently here; support for that makes a call three times
        // as expensive.
        .concurrency_support(false)
        // Ends calls that take too long; cheaper than metering instructions.
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(GUEST_STACK)
        // With 4 GiB of address space per memory and a guard behind it, the MMU checks bounds, and no load
        // can be speculated past a software check.
        .memory_reservation(4 << 30)
        .memory_guard_size(32 << 20)
        .signals_based_traps(true)
        .memory_init_cow(true)
        // Proposals that filters do not need and that would mean more compiler to trust. The defaults of
        // rustc, clang and interpreters (reference types, bulk memory, multi-value, SIMD, tail calls) stay
        // on, and so do multiple memories, which the runtime needs between the parts of a composed component.
        .wasm_memory64(false)
        .wasm_relaxed_simd(false);
    config
}

/// Why filters cannot run in this process.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The compiler does not support this machine, or the kernel refused a resource.
    #[error("cannot run WebAssembly on this machine: {0:#}")]
    Wasm(wasmtime::Error),
    /// A thread could not be started.
    #[error("cannot start a thread for the filters: {0}")]
    Thread(io::Error),
}
