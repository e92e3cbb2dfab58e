//! Everything that needs a Kubernetes API server.
//!
//! [`api_server`] connects to it and follows objects. [`kubernetes`] answers from services and endpoints,
//! [`service_entries`] for the hosts of Istio's, and [`identity`] maps addresses to pods. No other part of
//! the proxy but the webhook asks an API server.

#![forbid(unsafe_code)]

pub mod api_server;
pub mod identity;
pub mod kubernetes;
pub mod service_entries;

use dnsweir_config as config;
use dnsweir_counts::metrics;
use dnsweir_os::{background, plain_text};
use dnsweir_wire::dns;
use dnsweir_zones::transfer;
