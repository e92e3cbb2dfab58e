//! From a module to machine code, beside everything else.
//!
//! A few kilobytes of WebAssembly can keep a compiler busy for minutes and have it take hundreds of megabytes, and
//! nothing in a compiler asks whether anybody still waits. So the program compiles in a [process of its
//! own](child), with limits that the kernel keeps, and ends it when nobody waits any more. That process is this program
//! under another command. Tests and benchmarks are other programs, and compile where they are.

mod child;
mod confine;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use wasmtime::component::Component;

use super::cancel::Cancel;
use super::load::{Layer, LoadError, in_words, layer};
use super::{plain, text};
use crate::config;

pub use child::serve as compile_for_parent;

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

/// What a child process may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confinement {
    /// Octets of writable memory.
    pub memory: usize,
    /// Of the processor.
    pub time: Duration,
}

impl Confinement {
    pub(super) fn of(limits: &config::Limits) -> Confinement {
        Confinement {
            memory: limits.load_memory,
            time: limits.load_time,
        }
    }
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
            Where::Here => compile(engine, module),
            Where::Aside { metered } => child::compile_aside(module, confinement, metered, cancel),
        }
    }
}

/// Compiles a module, a plain one or a component.
fn compile(engine: &wasmtime::Engine, module: &[u8]) -> Result<Vec<u8>, LoadError> {
    match layer(module) {
        Some(Layer::Module) => {
            let component =
                plain::component(module).map_err(|error| LoadError::Encode(text::one_line(&error, 1024)))?;
            translate(engine, &component)
        }
        Some(Layer::Component) => translate(engine, module),
        None => Err(LoadError::NotWasm),
    }
}

/// Compiles a component to machine code.
fn translate(engine: &wasmtime::Engine, component: &[u8]) -> Result<Vec<u8>, LoadError> {
    // Should some module make the compiler panic, that is this module's failure and not the proxy's.
    catch_unwind(AssertUnwindSafe(|| engine.precompile_component(component)))
        .map_err(|_| LoadError::Compile("the compiler panicked".into()))?
        .map_err(|error| LoadError::Compile(in_words(&error)))
}

/// The component that machine code belongs to.
///
/// # Safety
///
/// The code was made by [`Where::compile`] of this version of the program, and nobody else could write to it.
pub(super) unsafe fn open(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the caller says that it is what the compiler has written. Code for other settings or another version is
    // refused. It is copied into memory of the engine's own.
    unsafe { Component::deserialize(engine, code) }
}
