//! What was asked, and by whom.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::dns::Transport;
use crate::dns::edns::Edns;
use crate::dns::query::Query;
use dnsweir_answer::identity::Identity;

/// Who sent a query, through which listener, and when.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Who asks.
    pub address: SocketAddr,
    /// Index of the listener that took it.
    pub server: u16,
    /// How it came.
    pub transport: Transport,
    /// Microseconds of the worker's clock.
    pub received: u64,
    /// Octets of the largest reply the listener sends; 65 535 over TCP.
    pub limit: usize,
    /// The idle timeout in units of 100 ms that a TCP client may be told (RFC 7828).
    pub keepalive: Option<u16>,
}

/// Octets of the longest query that is kept whole to be told; of a longer one it is the header and the question. A query may wait,
/// and takes its message along.
pub const MESSAGE_KEPT: usize = 1232;

/// What was asked, by whom: it stays as it came.
pub struct Asked {
    /// Who sent it.
    pub client: Client,
    /// The name that the client asked for in TLS, if there is one.
    pub server_name: Option<Arc<str>>,
    /// Who that is, if the generation wants to know: only [`Live::identity`](super::Live::identity) may read it.
    pub identity: Identity,
    /// The message ID.
    pub id: u16,
    /// The second 16 bits of the header.
    pub flags: u16,
    /// The OPT record.
    pub edns: Option<Edns>,
    /// Octets of the query.
    pub size: u16,
    /// The options of its OPT record, if a filter of the generation wants to know them.
    pub options: Vec<u8>,
    /// The message as it came, if somebody is told of messages.
    pub message: Vec<u8>,
    /// The whole message, if it is signed and may only be relayed as it is.
    pub signed: Option<Box<[u8]>>,
}

/// What of a query is kept beside what answering it takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keeps {
    /// EDNS options: a filter wants to know them.
    pub options: bool,
    /// The message: somebody is told of messages.
    pub message: bool,
}

impl Asked {
    /// Nothing, by somebody, to be [`admit`](Asked::admit)ted into.
    pub fn new(client: Client) -> Asked {
        Asked {
            client,
            server_name: None,
            identity: Identity::Unknown,
            id: 0,
            flags: 0,
            edns: None,
            size: 0,
            options: Vec::new(),
            message: Vec::new(),
            signed: None,
        }
    }

    /// Becomes what another client sent, keeping its buffers.
    // For every query, and called from one place; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub fn admit(&mut self, query: &Query<'_>, client: Client, keeps: Keeps) {
        let Asked {
            client: from,
            server_name: _,
            identity: _,
            id,
            flags,
            edns,
            size,
            options,
            message: _,
            signed,
        } = self;
        *from = client;
        (*id, *flags, *edns) = (query.id, query.flags, query.edns);
        *size = query.message.len() as u16;
        options.clear();
        *signed = query.signed.then(|| query.message.into());
        if keeps.options || keeps.message {
            self.keep(query, keeps);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep(&mut self, query: &Query<'_>, keeps: Keeps) {
        if keeps.options && query.edns.is_some() {
            self.options.extend_from_slice(query.options());
        }
        if keeps.message {
            self.message.clear();
            match query.message.len() {
                0..=MESSAGE_KEPT => self.message.extend_from_slice(query.message),
                _ => {
                    self.message.extend_from_slice(&query.message[..6]);
                    self.message.extend([0; 6]);
                    self.message.extend_from_slice(query.question());
                }
            }
        }
    }
}
