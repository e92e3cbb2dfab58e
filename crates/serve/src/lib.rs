//! A query's path through the stages of its zone, and back.
//!
//! [`serve`] follows the life of a query; read it first. It uses three parts that do not know each other: the
//! filter engine, the [`cache`], and the [`source`]s, which answer what neither of them can. Client sockets
//! are handled elsewhere.

pub mod cache;
pub mod serve;
pub mod source;

use dnsweir_answer::dnstap;
use dnsweir_cluster::identity;
use dnsweir_config as config;
use dnsweir_counts::{admission, histogram, metrics, ranking};
use dnsweir_engine::{cases, filter};
use dnsweir_wire::{dns, zonefile};
