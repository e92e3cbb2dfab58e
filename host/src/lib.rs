//! dnsweir: a DNS proxy for one node whose filters are sandboxed WebAssembly.
//!
//! This crate is the program: the command line. The proxy itself is in `crates/`, as are the tools for authors of
//! filters, and the programs that commands such as `dnsweir top` are.
//!
//! Public is only what `main.rs` needs, and [`fuzzing`] for `fuzz/`, so that unused code is reported.

#![forbid(unsafe_code)]

pub mod args;
#[doc(hidden)]
pub mod fuzzing;

use dnsweir_config as config;
use dnsweir_engine::filter;
pub use dnsweir_import::nodecache;
use dnsweir_listen as listen;
use dnsweir_node as node;
use dnsweir_os::confine;
pub use dnsweir_os::{log, output, privileges, programs};
pub use dnsweir_run::{control, run};
use dnsweir_serve::{cache, serve, source};
use dnsweir_wire::dns;

pub use confine::Confinement;
pub use filter::{compile_for_parent, precompile_builtins};
pub use node::{Outcome, Plan};
