//! What a Kubernetes API server says.
//!
//! [`api_server`] reaches it and follows objects. [`kubernetes`] answers from services and endpoints, [`service_entries`] for the
//! hosts of Istio's, and [`identity`] says which pod has an address. Nothing else of the proxy knows kube.

#![forbid(unsafe_code)]

pub mod api_server;
pub mod identity;
pub mod kubernetes;
pub mod service_entries;

use dnsweir_config as config;
use dnsweir_counts::figures;
use dnsweir_os::background;
use dnsweir_wire::dns;
use dnsweir_zones::transfer;
