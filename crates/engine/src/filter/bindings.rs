//! The host's side of `wit/`, generated.

#![allow(missing_docs, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({ path: "../../wit", world: "filter" });
