//! Runs filters: WebAssembly modules that others wrote, within limits.
//!
//! [`filter`] takes modules in, compiles them in a child process, calls them with batches of queries, and blames failed calls on
//! whoever caused them. [`cases`] reads the test cases of filters and runs them. Nothing else of the proxy knows wasmtime.

pub mod cases;
pub mod filter;

use dnsweir_config as config;
use dnsweir_counts::{attempts, figures};
use dnsweir_os::{background, confine, output, plain_text, private_folder};
use dnsweir_wire::dns;
