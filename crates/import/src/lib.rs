//! Translates the configurations of CoreDNS and node-cache.
//!
//! [`corefile`] reads a Corefile as CoreDNS does, and writes an equivalent configuration or reports the words
//! that have none. [`nodecache`] makes such a Corefile from node-cache's template and config map. Neither
//! starts anything.

#![forbid(unsafe_code)]

pub mod corefile;
pub mod nodecache;

use dnsweir_config as config;
use dnsweir_wire::dns;
