//! What speaks TLS: a server before an [`Upstream`](super::Upstream), and a client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use super::certificates::Authority;
use super::client::{frame, read_frame};
use super::{Message, PATIENCE, address};

/// A server of DNS over TLS that has another one answer. It listens for as long as the process lives.
pub struct TlsFront {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// What came to it.
#[derive(Default)]
struct Seen {
    handshakes: usize,
    queries: Vec<Vec<u8>>,
}

impl TlsFront {
    /// One before the server at an address.
    pub fn before(server: SocketAddr, config: Arc<ServerConfig>) -> TlsFront {
        let listener = TcpListener::bind(address::fresh_socket()).expect("a port");
        let address = listener.local_addr().expect("its address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&noted));
                std::thread::spawn(move || converse(stream, config, server, &seen));
            }
        });
        TlsFront { address, seen }
    }

    /// Connections on which a query came.
    pub fn conversations(&self) -> usize {
        self.seen.lock().expect("no panic").handshakes
    }

    /// All queries, as they were decrypted.
    pub fn queries(&self) -> Vec<Vec<u8>> {
        self.seen.lock().expect("no panic").queries.clone()
    }
}

/// One query after the other. A client that goes away is no mistake.
fn converse(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    server: SocketAddr,
    seen: &Mutex<Seen>,
) -> Option<()> {
    let mut stream = StreamOwned::new(ServerConnection::new(config).ok()?, stream);
    let mut behind = TcpStream::connect(server).ok()?;
    let mut first = true;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length).ok()?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query).ok()?;
        {
            let mut seen = seen.lock().expect("no panic");
            seen.handshakes += usize::from(std::mem::take(&mut first));
            seen.queries.push(query.clone());
        }
        behind.write_all(&frame(&query)).ok()?;
        let answer = read_frame(&mut behind)?;
        stream.write_all(&frame(&answer)).ok()?;
        stream.flush().ok()?;
    }
}

/// What a client needs that trusts an authority. Sessions are resumed among those that share it.
pub fn trusting(authority: &Authority) -> Arc<ClientConfig> {
    trusting_for(authority, &[])
}

/// The same, for these protocols (ALPN).
pub fn trusting_for(authority: &Authority, protocols: &[&str]) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

/// A client of DNS over TLS.
pub struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Connects to a server that has to be `name`.
    #[track_caller]
    pub fn connect(server: SocketAddr, name: &str, config: Arc<ClientConfig>) -> TlsClient {
        let mut stream = TcpStream::connect_timeout(&server, PATIENCE).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut tls = ClientConnection::new(config, name).expect("a client");
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).expect("a handshake");
        }
        TlsClient(StreamOwned::new(tls, stream))
    }

    /// Whether it goes on with an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Sends queries.
    #[track_caller]
    pub fn send(&mut self, queries: &[Message]) {
        let octets: Vec<u8> = queries.iter().flat_map(|query| frame(&query.encode())).collect();
        self.write(&octets);
    }

    /// Sends octets.
    #[track_caller]
    pub fn write(&mut self, octets: &[u8]) {
        self.0
            .write_all(octets)
            .and_then(|()| self.0.flush())
            .expect("a write");
    }

    /// Sends octets to somebody who may not take them.
    pub fn try_write(&mut self, octets: &[u8]) -> std::io::Result<()> {
        self.0.write_all(octets)?;
        self.0.flush()
    }

    /// All that comes until the end, however that comes about.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        let _ = self.0.read_to_end(&mut octets);
        octets
    }

    /// The next message and its length, or none at the end.
    #[track_caller]
    pub fn receive(&mut self) -> Option<(usize, Message)> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).ok()?;
        let mut octets = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut octets).ok()?;
        Some((octets.len(), Message::decode(&octets).expect("a message")))
    }
}
