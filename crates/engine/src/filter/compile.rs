//! From a module to machine code, beside everything else.
//!
//! A few kilobytes of WebAssembly can keep a compiler busy for minutes and have it take hundreds of megabytes, and
//! nothing in a compiler asks whether anybody still waits. So the program compiles in a [process of its
//! own](child), with limits that the kernel keeps, and ends it when nobody waits any more. That process is this program
//! under another command. Tests and benchmarks are other programs, and compile where they are.

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
    /// On the calling thread, without limits and without a way to end it.
    Here,
    /// In a child process of this program.
    Aside {
        /// Whether the engine counts instructions.
        metered: bool,
    },
}

impl Where {
    /// Machine code for a module, serialized.
    ///
    /// # Errors
    ///
    /// When it does not compile, or not within its limits, or when it is not wanted any more.
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
