//! Forwards queries to upstream servers.
//!
//! [`Forwarder`] is the state that all workers share for one `forward` stage; [`Forward`] holds one worker's
//! sockets for it. [`Forward::race`] resolves one query: a [`race`] of attempts. An [`attempt`] exchanges
//! messages with one upstream, over [`udp`], over a [`pool`] of [connections](connection) on [`tcp`] or
//! [`tls`], or [`multiplexed`] over [`https`] or [`quic`]. A new transport is another such file, chosen where
//! the pool connects. [`upstream`] and [`health`] hold what is known of an upstream; a [`probe`] decides
//! whether it is used.
//!
//! It does not cache, coalesce or follow CNAMEs, and changes only an answer's ID (RFC 5625 section 4).

#![forbid(unsafe_code)]

mod alarms;
mod arranged;
mod attempt;
mod bare;
mod bounds;
mod connection;
mod counters;
mod denied;
mod failure;
mod forwarder;
mod health;
mod https;
mod left_behind;
mod message;
mod metrics;
mod multiplexed;
mod pace;
mod policy;
mod pool;
mod probe;
mod quic;
mod quota;
mod race;
mod secured;
mod source;
mod tcp;
mod tls;
mod udp;
mod upstream;

#[cfg(test)]
mod tests;

use dnsweir_answer::dnstap;
use dnsweir_config as config;
use dnsweir_counts::{admission, histogram};
use dnsweir_os::datagrams;
use dnsweir_wire::dns;

pub use attempt::Forward;
pub use bounds::{most_connections, most_octets, most_sockets};
pub use failure::Failure;
pub use forwarder::Forwarder;
pub use health::recovered;
pub use probe::PROBE_SOCKETS;
pub use quota::Quota;
pub use race::Answer;
pub use udp::{SPARE_SOCKETS, batch_octets};
