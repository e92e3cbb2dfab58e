//! dnsweir: a DNS proxy for one node whose filters are sandboxed WebAssembly.
//!
//! [`run`] starts and ends everything. [`listen`] takes messages from sockets and hands them to
//! [`serve`], which tells the life of a query and is the file to read first. It uses three things that
//! do not know each other: [`filter`] runs WebAssembly, [`cache`] keeps answers, [`source`] answers
//! what neither knows, as a rule by asking upstreams. [`dns`] reads and writes messages and [`config`] the operator's file; neither uses
//! anything else of ours. [`admin`] and [`metrics`] show what goes on, [`ceiling`] what may at most, [`tools`] what would. [`webhook`] is a
//! program of its own, which sends pods here.
//!
//! Public is what the program in `main.rs` needs, with [`fuzzing`] for `fuzz/` and [`measured`] for `bench/`. Nothing
//! else is, so that the compiler finds what nobody uses.

mod admin;
mod admission;
mod api_server;
pub mod args;
mod attempts;
mod background;
mod cache;
mod cases;
mod ceiling;
mod config;
mod confine;
pub mod control;
mod corefile;
mod datagrams;
mod dns;
mod dnstap;
mod fetch;
mod figures;
mod filter;
#[doc(hidden)]
pub mod fuzzing;
mod histogram;
mod identity;
mod listen;
pub mod log;
#[doc(hidden)]
pub mod measured;
mod metrics;
mod netstat;
mod node;
pub mod nodecache;
pub mod output;
mod plain_text;
mod private_folder;
mod ranking;
mod registry;
pub mod run;
mod serve;
mod source;
mod state;
mod tls;
pub mod tools;
pub mod top;
pub mod webhook;
mod zonefile;

pub use confine::Confinement;
pub use filter::compile_for_parent;
pub use node::Outcome;
pub use registry::pull_for_parent;
