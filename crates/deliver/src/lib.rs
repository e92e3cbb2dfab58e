//! Fetches files and modules from elsewhere.
//!
//! [`fetch`] gets `https://` locations of the configuration, and [`registry`] gets modules from OCI
//! registries, through a child process. Both keep bounded copies on disk, and hand out only what they have
//! verified. Neither knows what a module does.

#![forbid(unsafe_code)]

mod agent;
pub mod fetch;
pub mod registry;
#[cfg(test)]
#[path = "../../../tests/harness/web.rs"]
mod web;

use dnsweir_config::{self as config, tls};
use dnsweir_counts::metrics;
use dnsweir_os::{confine, plain_text, private_folder};
use dnsweir_wire::dns;
