//! Runs filters: third-party WebAssembly modules, within limits.
//!
//! [`filter`] loads modules, compiles them in a child process, calls them with batches of queries, and blames
//! failed calls on the name or client that caused them. [`cases`] reads and runs the test cases of filters.
//! No other part of the proxy depends on wasmtime.

pub mod cases;
pub mod filter;

use dnsweir_config as config;
use dnsweir_counts::{attempts, metrics};
use dnsweir_os::{background, confine, output, plain_text, private_folder};
use dnsweir_wire::dns;
