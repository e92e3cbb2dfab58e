//! Compiles a module to machine code, normally in a child process.
//!
//! A few kilobytes of WebAssembly can keep a compiler busy for minutes and make it take hundreds of
//! megabytes, and a compiler cannot be cancelled. So the program compiles in a [child process](child), under
//! limits that the kernel enforces, and kills it when the result is no longer needed. The child is this
//! program under another command. Tests and benchmarks are other programs, and compile in their own process.

mod child;
mod translate;

use super::cancel::Cancel;
use super::load_error::LoadError;
use crate::confine::Confinement;

pub use child::serve as compile_for_parent;
pub(super) use translate::{compile as compile_here, open};

/// Where modules are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// On the calling thread, without limits; it cannot be cancelled.
    Here,
    /// In a child process of this program.
    Aside {
        /// Whether the engine counts instructions.
        metered: bool,
    },
}

impl Where {
    /// Compiles a module and returns its machine code, serialized.
    ///
    /// # Errors
    ///
    /// When it does not compile, exceeds its limits, or is cancelled.
    pub(super) fn compile(
        self,
        engine: &wasmtime::Engine,
        module: &[u8],
        confinement: Confinement,
        cancel: &Cancel,
    ) -> Result<Vec<u8>, LoadError> {
        match self {
            Where::Here => compile_here(engine, module),
            Where::Aside { metered } => child::compile_aside(module, confinement, metered, cancel),
        }
    }
}
