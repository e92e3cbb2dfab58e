//! The way of a query through the stages of its zone, and back.
//!
//! [`serve`] tells the life of a query and is the file to read first. It uses three things that do not know each other: the filters'
//! engine, the [`cache`], and [`source`], which says what answers where neither knows. Sockets of clients are not its business.

pub mod cache;
pub mod serve;
pub mod source;

use dnsweir_answer::dnstap;
use dnsweir_cluster::identity;
use dnsweir_config as config;
use dnsweir_counts::{admission, figures, histogram, ranking};
use dnsweir_engine::{cases, filter};
use dnsweir_wire::{dns, zonefile};
