//! Queries over QUIC (RFC 9250), each on its own stream.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, RecvStream, SendStream,
    TokioRuntime, TransportConfig, VarInt,
};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, Error};

use super::failure::Fault;
use super::https::ID;
use super::message::{Query, Reply};
use super::secured::Secured;
use super::upstream::Upstream;
use crate::config::{Encryption, Protocol};
use crate::dns::MESSAGE_MAXIMUM;
use dnsweir_config::tls::Problem;

/// Error codes that end a stream or a connection (RFC 9250 section 8.4).
const NO_ERROR: VarInt = VarInt::from_u32(0);
const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(3);

/// Receive windows: unread reply bytes per stream, and per connection.
const WINDOW: u32 = 80 << 10;
const WINDOWS: u32 = 256 << 10;

/// Most unacknowledged bytes of queries.
const UNSENT: u32 = 64 << 10;

/// Most bytes that a connection holds besides those of TLS: its windows, and a few datagrams.
pub(super) const QUIC_OCTETS: usize = WINDOWS as usize + UNSENT as usize + (32 << 10);

/// A connection that sends queries.
pub(super) struct Session(Connection);

/// A query's stream. Dropped before its reply, it cancels the query at the server (RFC 9250 section 4.3.1).
struct Stream {
    send: SendStream,
    recv: RecvStream,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Has no effect on a stream that has ended.
        let _ = self.send.reset(REQUEST_CANCELLED);
        let _ = self.recv.stop(REQUEST_CANCELLED);
    }
}

impl Session {
    pub fn is_closed(&self) -> bool {
        self.0.close_reason().is_some()
    }

    /// Sends `query` and waits for its reply.
    pub async fn ask(&self, query: &Query) -> Result<Reply, Fault> {
        let opened = self.0.open_bi().await;
        let (send, recv) = opened.map_err(|_| Fault::Closed)?;
        let mut stream = Stream { send, recv };
        // With a length prefix as over TCP (RFC 9250 section 4.2), and the ID 0 (section 4.2.1).
        let mut octets = Vec::with_capacity(2 + query.len());
        octets.extend_from_slice(&(query.len() as u16).to_be_bytes());
        query.write(ID, &mut octets);
        let sent = stream.send.write_all(&octets).await;
        sent.map_err(|_| Fault::Closed)?;
        let _ = stream.send.finish();
        let read = stream.recv.read_to_end(2 + MESSAGE_MAXIMUM).await;
        let octets = read.map_err(|_| Fault::Closed)?;
        let whole = octets
            .split_first_chunk()
            .filter(|(length, message)| usize::from(u16::from_be_bytes(**length)) == message.len());
        let over = Protocol::Encrypted(Encryption::Quic);
        let reply = whole.and_then(|(_, message)| query.accept(ID, over, message).ok());
        reply.ok_or_else(|| {
            // RFC 9250 section 4.3.3.
            self.0.close(PROTOCOL_ERROR, b"not a reply");
            Fault::Malformed
        })
    }
}

/// Establishes a connection; dropping the returned future closes it.
pub(super) async fn connect(upstream: Arc<Upstream>) -> Result<(Session, impl Future), Fault> {
    let secured = upstream.secured.as_ref();
    let secured = secured.ok_or(Fault::Tls(Problem::Protocol))?;
    let local = |error: std::io::Error| Fault::Local(error.kind());
    let any: IpAddr = match upstream.address {
        address if address.is_ipv4() => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0)).map_err(local)?;
    let endpoint =
        Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime)).map_err(local)?;
    let (config, name) = secured.client_config()?;
    let crypto = QuicClientConfig::try_from(config).map_err(|_| Fault::Tls(Problem::Protocol))?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport()));
    let connecting = endpoint.connect_with(config, upstream.address, &name.to_str());
    let connecting = connecting.map_err(|_| Fault::Tls(Problem::Protocol))?;
    let connection = connecting.await.map_err(|error| fault(secured, &error))?;
    let identity = connection.peer_identity();
    let chain = identity.and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
    secured.connected(None, chain.as_ref().and_then(|chain| chain.first()));
    let ended = Ended(connection.clone());
    let ended = async move { ended.0.closed().await };
    Ok((Session(connection), ended))
}

/// Closes the connection with NO_ERROR when dropped.
struct Ended(Connection);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.close(NO_ERROR, b"");
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    // Servers open no streams (RFC 9250 section 4.2), and send no datagrams.
    transport
        .max_concurrent_bidi_streams(0_u32.into())
        .max_concurrent_uni_streams(0_u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOWS.into())
        .send_window(UNSENT.into());
    transport
}

/// Why a handshake failed; it is logged.
fn fault(secured: &Secured, error: &ConnectionError) -> Fault {
    /// The range of TLS alerts among QUIC's error codes (RFC 9001 section 4.8).
    const ALERTS: std::ops::Range<u64> = 0x100..0x200;
    let problem = match error {
        // quinn passes the error on only as text.
        ConnectionError::TransportError(error) if ALERTS.contains(&u64::from(error.code)) => secured
            .refusal()
            .unwrap_or_else(|| Error::General(error.reason.clone())),
        ConnectionError::ConnectionClosed(close) if ALERTS.contains(&u64::from(close.error_code)) => {
            let alert = u64::from(close.error_code) as u8;
            Error::AlertReceived(AlertDescription::from(alert))
        }
        ConnectionError::TimedOut => return Fault::Timeout,
        ConnectionError::VersionMismatch => return Fault::Tls(Problem::Protocol),
        _ => return Fault::Closed,
    };
    secured.failed(&problem)
}
