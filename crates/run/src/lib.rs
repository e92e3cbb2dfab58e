//! Start, reload and stop, and what a running process reports about itself.
//!
//! [`run`] starts the workers and every generation of the configuration. [`admin`] answers `/health`,
//! `/ready`, `/status` and [`metrics`], [`control`] takes requests over a unix socket, [`ceiling`] adds up
//! what all limits allow, and [`history`] remembers the last minute.

pub mod admin;
pub mod ceiling;
pub mod control;
pub mod exposition;
pub mod history;
pub mod run;
pub mod state;

use dnsweir_answer::dnstap;
use dnsweir_cluster::identity;
use dnsweir_config as config;
use dnsweir_counts::metrics;
use dnsweir_deliver::{fetch, registry};
use dnsweir_engine::filter;
use dnsweir_import::nodecache;
use dnsweir_listen as listen;
use dnsweir_node as node;
use dnsweir_os::{
    background, confine, log, netstat, output, plain_text, private_folder, privileges, programs, watch,
};
use dnsweir_serve::{cache, serve, source};
use dnsweir_wire::dns;
