//! A query as received, and its client.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::dns::Transport;
use crate::dns::edns::Edns;
use crate::dns::query::Query;
use dnsweir_answer::identity::Identity;
use dnsweir_os::clock::Uptime;

/// The client of a query, the listener that received it, and when.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// The client's address.
    pub address: SocketAddr,
    /// Index of the listener.
    pub server: u16,
    /// The transport.
    pub transport: Transport,
    /// When the query was received.
    pub received: Uptime,
    /// Largest reply in bytes that the listener sends; 65,535 over TCP.
    pub limit: usize,
    /// The idle timeout to announce to a TCP client, in units of 100 ms (RFC 7828).
    pub keepalive: Option<u16>,
}

/// Longest query in bytes that is kept whole for logging; of a longer one only header and question are kept.
/// A waiting query keeps its message in memory.
pub const MESSAGE_KEPT: usize = 1232;

/// A query as received, and its client.
pub struct Asked {
    /// The client.
    pub client: Client,
    /// The server name that the client sent in TLS, if any.
    pub server_name: Option<Arc<str>>,
    /// The client's identity, if the generation uses it.
    pub identity: Identity,
    /// The message ID.
    pub id: u16,
    /// The second 16 bits of the header.
    pub flags: u16,
    /// The OPT record.
    pub edns: Option<Edns>,
    /// Size of the query in bytes.
    pub size: u16,
    /// The options of its OPT record, if a filter of the generation uses them.
    pub options: Vec<u8>,
    /// The message as received, if dnstap logs clients' messages.
    pub message: Vec<u8>,
    /// The whole message, if it is signed and so must be relayed unchanged.
    pub signed: Option<Box<[u8]>>,
}

/// The parts of a query that are kept although its answer does not need them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keeps {
    /// EDNS options, for a filter.
    pub options: bool,
    /// The message, for dnstap.
    pub message: bool,
}

impl Asked {
    /// Creates an empty one to [`admit`](Asked::admit) queries into.
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

    /// Replaces this with a newly received query, reusing the buffers. Every field is named, so that none is
    /// left over from the query before by mistake.
    // Runs for every query, and has one caller; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub fn admit(&mut self, query: &Query<'_>, client: Client, keeps: Keeps) {
        let Asked {
            client: from,
            server_name,
            identity,
            id,
            flags,
            edns,
            size,
            options,
            message,
            signed,
        } = self;
        *from = client;
        (*server_name, *identity) = (None, Identity::Unknown);
        (*id, *flags, *edns) = (query.id, query.flags, query.edns);
        *size = query.message.len() as u16;
        options.clear();
        message.clear();
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
