//! TLS settings of the listeners, for new connections.

use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{IdleTimeout, TransportConfig};
use rustls::ServerConfig;

use crate::config::{Encryption, Listen};
use crate::dns::QUERY_MAXIMUM;
use dnsweir_config::tls;

/// ALPN of DNS over TLS, as registered under RFC 7301.
const TLS: &[&[u8]] = &[b"dot"];

/// ALPN of DNS over HTTPS: HTTP/2, and HTTP/1.1 for clients that have nothing else (RFC 8484 section 5.2).
const HTTPS: &[&[u8]] = &[HTTP2, b"http/1.1"];

/// The ALPN name of HTTP/2 (RFC 9113 section 3.1).
pub(crate) const HTTP2: &[u8] = b"h2";

/// ALPN of DNS over QUIC (RFC 9250 section 4.1.1).
const QUIC: &[&[u8]] = &[b"doq"];

/// Concurrent queries per connection.
const STREAMS: u32 = 100;

/// Flow-control windows for queries in bytes: of one, and of all of a connection.
pub const WINDOW: u32 = 2 + QUERY_MAXIMUM as u32;
const WINDOWS: u32 = 32 << 10;

/// Bytes of unacknowledged replies beyond which no more are sent.
const UNSENT: u32 = 64 << 10;

/// Bytes a connection holds besides its queries: its windows, and quinn's state of streams and datagrams.
pub(crate) const QUIC_MEMORY: usize = WINDOWS as usize + UNSENT as usize + (32 << 10);

/// The most connections not looked at yet, and the bytes buffered of each.
const INCOMING: usize = 1024;
const INCOMING_OCTETS: u64 = 4 << 10;

/// Bytes buffered of all of them.
const ALL_INCOMING_OCTETS: u64 = 256 << 10;

/// The least idle timeout on the wire: the server itself decides which connections are idle.
const LEAST_SILENCE: Duration = Duration::from_secs(30);

/// The settings per protocol.
#[derive(Clone, Default)]
pub struct Secured {
    /// For DNS over TLS, if there is such a listener.
    pub tls: Option<Arc<ServerConfig>>,
    /// For DNS over HTTPS, if there is such a listener.
    pub https: Option<Arc<ServerConfig>>,
    /// For DNS over QUIC, if there is such a listener.
    pub quic: Option<Arc<quinn::ServerConfig>>,
}

impl Secured {
    /// Builds the settings from the configuration.
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

/// Builds quinn's server settings.
fn over_quic(config: Arc<ServerConfig>, listen: &Listen) -> Option<Arc<quinn::ServerConfig>> {
    let crypto = QuicServerConfig::try_from(config)
        .inspect_err(|error| tracing::error!(%error, "connections over QUIC are not taken"))
        .ok()?;
    let mut transport = TransportConfig::default();
    let silence = listen.tcp_idle.max(LEAST_SILENCE);
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        // RFC 9250 section 4.2: clients open no unidirectional streams.
        .max_concurrent_uni_streams(0_u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOWS.into())
        .send_window(UNSENT.into())
        .max_idle_timeout(IdleTimeout::try_from(silence).ok());
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    server
        .transport_config(Arc::new(transport))
        // Connections not looked at yet, and the data buffered for them.
        .max_incoming(INCOMING)
        .incoming_buffer_size(INCOMING_OCTETS)
        .incoming_buffer_size_total(ALL_INCOMING_OCTETS)
        // From a new address, its packets would reach another worker.
        .migration(false);
    Some(Arc::new(server))
}
