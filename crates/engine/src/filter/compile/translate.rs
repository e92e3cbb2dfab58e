//! Compiles a module to machine code, in this process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmtime::component::Component;

use crate::filter::layer::{Layer, layer};
use crate::filter::load_error::LoadError;
use crate::filter::text::in_words;
use crate::filter::{plain, text};

/// Compiles a plain module or a component.
pub(in crate::filter) fn compile(engine: &wasmtime::Engine, module: &[u8]) -> Result<Vec<u8>, LoadError> {
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
    // If a module makes the compiler panic, only that module fails.
    catch_unwind(AssertUnwindSafe(|| engine.precompile_component(component)))
        .map_err(|_| LoadError::Compile("the compiler panicked".into()))?
        .map_err(|error| LoadError::Compile(told(in_words(&error))))
}

/// The compiler's message, except that a WASI version other than filters get is named instead of a compiler
/// feature.
fn told(error: String) -> String {
    match error.contains("component model async feature") {
        true => "it has asynchronous functions of the component model, which WASI 0.3 brought; build it for WASI 0.2, in Rust \
                 with `--target wasm32-wasip2`"
            .to_owned(),
        false => error,
    }
}

/// Loads the component from its machine code.
///
/// # Safety
///
/// The code must come from [`compile`] of this version of the program, and nobody else may have been able to
/// write to it.
pub(in crate::filter) unsafe fn open(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the caller guarantees that the compiler wrote it. Code for other settings or another version is
    // refused. It is copied into the engine's own memory.
    unsafe { Component::deserialize(engine, code) }
}
