//! dnsweir: a DNS proxy for one node whose filters are sandboxed WebAssembly.
//!
//! [`run`] starts and ends everything. [`listen`] takes messages from sockets and hands them to
//! [`serve`], which tells the life of a query and is the file to read first. It uses three things that
//! do not know each other: [`filter`] runs WebAssembly, [`cache`] keeps answers, [`source`] answers
//! what neither knows, as a rule by asking upstreams. [`dns`] reads and writes messages and [`config`] the operator's file; neither uses
//! anything else of ours. [`admin`] and [`metrics`] show what goes on, [`ceiling`] what may at most, [`tools`] what would.

pub mod admin;
pub mod admission;
pub mod args;
pub mod cache;
pub mod cases;
pub mod ceiling;
pub mod config;
pub mod dns;
pub mod figures;
pub mod filter;

#[doc(hidden)]
pub mod fuzzing;
mod histogram;
pub mod listen;
pub mod metrics;
pub mod netstat;
pub mod node;
pub mod output;
pub mod run;
pub mod serve;
pub mod source;
pub mod state;
pub mod tools;
