//! What TLS needs to know of us, for connections that begin from now on.

use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{IdleTimeout, TransportConfig};
use rustls::ServerConfig;

use crate::config::{Encryption, Listen};
use crate::dns::QUERY_MAXIMUM;
use dnsweir_config::tls;

/// What is spoken upon TLS: DNS, as the registry of RFC 7301 has it.
const TLS: &[&[u8]] = &[b"dot"];

/// HTTP/2, and HTTP/1.1 for who has nothing else (RFC 8484 section 5.2).
const HTTPS: &[&[u8]] = &[HTTP2, b"http/1.1"];

/// The name of HTTP/2 (RFC 9113 section 3.1).
pub(crate) const HTTP2: &[u8] = b"h2";

/// As the registry has it, too (RFC 9250 section 4.1.1).
const QUIC: &[&[u8]] = &[b"doq"];

/// Queries of one connection at a time.
const STREAMS: u32 = 100;

/// Octets of queries that are not read yet: of one, and of all.
pub const WINDOW: u32 = 2 + QUERY_MAXIMUM as u32;
const WINDOWS: u32 = 32 << 10;

/// Octets of replies that the client has not acknowledged, beyond which there are no others.
const UNSENT: u32 = 64 << 10;

/// Octets that a connection holds beside its queries: its windows, and what quinn keeps of streams and datagrams.
pub(crate) const QUIC_MEMORY: usize = WINDOWS as usize + UNSENT as usize + (32 << 10);

/// Connections that have come and were not looked at, and octets that are kept of each.
const INCOMING: usize = 1024;
const INCOMING_OCTETS: u64 = 4 << 10;

/// Octets that are kept of all of them.
const ALL_INCOMING_OCTETS: u64 = 256 << 10;

/// How long a connection may be silent on the wire at least: we know better which one is idle.
const LEAST_SILENCE: Duration = Duration::from_secs(30);

/// By what is spoken upon it.
#[derive(Clone, Default)]
pub struct Secured {
    /// For DNS over TLS, if somebody listens for it.
    pub tls: Option<Arc<ServerConfig>>,
    /// For DNS over HTTPS, if somebody listens for it.
    pub https: Option<Arc<ServerConfig>>,
    /// For DNS over QUIC, if somebody listens for it.
    pub quic: Option<Arc<quinn::ServerConfig>>,
}

impl Secured {
    /// As the configuration has it.
    pub fn new(listen: &Listen) -> Secured {
        let of = |wanted: Encryption, protocols: &[&[u8]]| {
            let identity = listen.identity.as_ref()?;
            let mut listening = listen.encrypted.iter().map(|(_, encryption)| *encryption);
            listening.find(|encryption| *encryption == wanted)?;
            tls::server(identity, protocols, None)
                .inspect_err(|error| tracing::error!(%error, "connections over TLS are not taken"))
                .ok()
        };
        Secured {
            tls: of(Encryption::Tls, TLS),
            https: of(Encryption::Https, HTTPS),
            quic: of(Encryption::Quic, QUIC).and_then(|config| over_quic(config, listen)),
        }
    }
}

/// What quinn needs to know to take connections.
fn over_quic(config: Arc<ServerConfig>, listen: &Listen) -> Option<Arc<quinn::ServerConfig>> {
    let crypto = QuicServerConfig::try_from(config)
        .inspect_err(|error| tracing::error!(%error, "connections over QUIC are not taken"))
        .ok()?;
    let mut transport = TransportConfig::default();
    let silence = listen.tcp_idle.max(LEAST_SILENCE);
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        // RFC 9250 section 4.2: clients open no others.
        .max_concurrent_uni_streams(0_u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOWS.into())
        .send_window(UNSENT.into())
        .max_idle_timeout(IdleTimeout::try_from(silence).ok());
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    server
        .transport_config(Arc::new(transport))
        // Those that nobody has looked at yet, and what came of them.
        .max_incoming(INCOMING)
        .incoming_buffer_size(INCOMING_OCTETS)
        .incoming_buffer_size_total(ALL_INCOMING_OCTETS)
        // From another address it would come to another worker.
        .migration(false);
    Some(Arc::new(server))
}
