//! Asks other servers for what is not known here.
//!
//! [`Forwarder`] is what all workers share about the upstreams of one `forward` stage; [`Forward`] is one
//! worker's sockets for it. [`Forward::race`] is one query: a [`race`] of attempts. An [`attempt`] exchanges
//! messages with one upstream, over [`udp`] or a [`pool`] of [connections](connection), which lie on [`tcp`] or [`tls`], or [`multiplexed`] over [`https`] or [`quic`]; a
//! further transport is a file beside that, chosen where the pool connects. What is known of an upstream is in
//! [`upstream`] and [`health`]; a [`probe`] decides whether it is asked.
//!
//! It does not cache, does not coalesce, does not follow CNAMEs, and changes nothing in an answer but its
//! ID (RFC 5625 section 4).

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
mod figures;
mod forwarder;
mod health;
mod https;
mod left_behind;
mod message;
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
pub use udp::batch_octets;
