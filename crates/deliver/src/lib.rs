//! Fetches files and modules from elsewhere.
//!
//! [`fetch`] gets `https://` locations of the configuration, and [`registry`] gets modules from OCI
//! registries, through processes of another program. Both keep bounded copies on disk, and hand out only what they
//! have verified. Neither knows what a module does. [`agent`] sends requests for both, and for that program.

#![forbid(unsafe_code)]

pub mod agent;
pub mod fetch;
pub mod registry;
#[cfg(test)]
#[path = "../../../tests/harness/web.rs"]
mod web;

use dnsweir_config::{self as config, tls};
use dnsweir_counts::metrics;
use dnsweir_os::{confine, plain_text, private_folder, programs};
use dnsweir_wire::dns;
