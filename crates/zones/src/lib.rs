//! Complete zones: a name that is not in them does not exist.
//!
//! [`file`] answers from zone files, [`secondary`] from zones fetched from other servers, and [`transfer`]
//! sends whole zones to others. Zones arrive parsed; nothing here reads a zone file.

#![forbid(unsafe_code)]

pub mod file;
pub mod secondary;
pub mod transfer;

use dnsweir_config as config;
use dnsweir_counts::metrics;
use dnsweir_os::background;
use dnsweir_wire::{dns, zonefile};
