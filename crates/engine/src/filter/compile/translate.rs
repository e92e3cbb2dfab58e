//! From a module to machine code, in the process that calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmtime::component::Component;

use crate::filter::layer::{Layer, layer};
use crate::filter::load_error::LoadError;
use crate::filter::text::in_words;
use crate::filter::{plain, text};

/// Compiles a module, a plain one or a component.
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
    // Should some module make the compiler panic, that is this module's failure and not the proxy's.
    catch_unwind(AssertUnwindSafe(|| engine.precompile_component(component)))
        .map_err(|_| LoadError::Compile("the compiler panicked".into()))?
        .map_err(|error| LoadError::Compile(told(in_words(&error))))
}

/// What the compiler says, but for what it says of another version of WASI than filters get: that of a feature of its own.
fn told(error: String) -> String {
    match error.contains("component model async feature") {
        true => "it has asynchronous functions of the component model, which WASI 0.3 brought; build it for WASI 0.2, in Rust \
                 with `--target wasm32-wasip2`"
            .to_owned(),
        false => error,
    }
}

/// The component that machine code belongs to.
///
/// # Safety
///
/// The code was made by [`compile`] of this version of the program, and nobody else could write to it.
pub(in crate::filter) unsafe fn open(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the caller says that it is what the compiler has written. Code for other settings or another version is
    // refused. It is copied into memory of the engine's own.
    unsafe { Component::deserialize(engine, code) }
}
