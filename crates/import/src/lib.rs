//! What CoreDNS and node-cache read, in our words.
//!
//! [`corefile`] reads a Corefile as CoreDNS does and writes a configuration that means the same, or says which word it has
//! none for. [`nodecache`] makes such a Corefile of node-cache's template and config map. Neither starts anything.

#![forbid(unsafe_code)]

pub mod corefile;
pub mod nodecache;

use dnsweir_config as config;
use dnsweir_wire::dns;
