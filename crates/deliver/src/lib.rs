//! Brings files and modules from elsewhere.
//!
//! [`fetch`] gets what the configuration names by `https://`, and [`registry`] modules from OCI registries, by a child process.
//! Both keep what came on disk, within bounds, and hand it out only once it is what it should be. Neither knows what a module does.

#![forbid(unsafe_code)]

pub mod fetch;
pub mod registry;

use dnsweir_config::{self as config, tls};
use dnsweir_counts::figures;
use dnsweir_os::{confine, plain_text, private_folder};
use dnsweir_wire::dns;
