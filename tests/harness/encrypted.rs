//! TLS: a server in front of an [`Upstream`](super::Upstream), and a client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use super::certificates::Authority;
use super::client::{self, read_frame};
use super::{Message, PATIENCE, address};

/// A DNS-over-TLS server that lets another one answer. It listens for as long as the process lives.
pub struct TlsFront {
    /// Its address.
    pub address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// What it received.
#[derive(Default)]
struct Seen {
    handshakes: usize,
    queries: Vec<Vec<u8>>,
}

impl TlsFront {
    /// Starts one in front of the server at an address.
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

    /// Returns the number of connections with a query.
    pub fn conversations(&self) -> usize {
        self.seen.lock().expect("no panic").handshakes
    }

    /// Returns all queries, decrypted.
    pub fn queries(&self) -> Vec<Vec<u8>> {
        self.seen.lock().expect("no panic").queries.clone()
    }
}

/// Serves one query after the other. A client that disconnects is no error.
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
        behind.write_all(&client::frame(&query)).ok()?;
        let answer = read_frame(&mut behind)?;
        stream.write_all(&client::frame(&answer)).ok()?;
        stream.flush().ok()?;
    }
}

/// Returns the configuration of a client that trusts an authority. Clients that share it resume sessions.
pub fn trusting(authority: &Authority) -> Arc<ClientConfig> {
    trusting_for(authority, &[])
}

/// Returns the same, for these protocols (ALPN).
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

/// A DNS-over-TLS client.
pub struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Connects to a server, which must prove to be `name`.
    #[track_caller]
    pub fn connect(server: SocketAddr, name: &str, config: Arc<ClientConfig>) -> TlsClient {
        let stream = TcpStream::connect_timeout(&server, PATIENCE).expect("a connection");
        TlsClient::over(stream, name, config).expect("a handshake")
    }

    /// Connects over an existing TCP connection.
    pub fn over(mut stream: TcpStream, name: &str, config: Arc<ClientConfig>) -> std::io::Result<TlsClient> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut tls = ClientConnection::new(config, name).expect("a client");
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(TlsClient(StreamOwned::new(tls, stream)))
    }

    /// Whether it resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Sends queries.
    #[track_caller]
    pub fn send(&mut self, queries: &[Message]) {
        let octets: Vec<u8> = queries
            .iter()
            .flat_map(|query| client::frame(&query.encode()))
            .collect();
        self.write(&octets);
    }

    /// Sends bytes.
    #[track_caller]
    pub fn write(&mut self, octets: &[u8]) {
        self.0
            .write_all(octets)
            .and_then(|()| self.0.flush())
            .expect("a write");
    }

    /// Sends bytes to a server that may not take them.
    pub fn try_write(&mut self, octets: &[u8]) -> std::io::Result<()> {
        self.0.write_all(octets)?;
        self.0.flush()
    }

    /// Reads until these bytes have come.
    #[track_caller]
    pub fn read_until(&mut self, end: &[u8]) {
        let mut octets = Vec::new();
        while !octets.ends_with(end) {
            let mut octet = [0];
            self.0.read_exact(&mut octet).expect("what was expected");
            octets.push(octet[0]);
        }
    }

    /// Reads until the end, however the connection ends.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        let _ = self.0.read_to_end(&mut octets);
        octets
    }

    /// Returns the next message and its length, or `None` at the end.
    #[track_caller]
    pub fn receive(&mut self) -> Option<(usize, Message)> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).ok()?;
        let mut octets = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut octets).ok()?;
        Some((octets.len(), Message::decode(&octets).expect("a message")))
    }
}

/// Builds an HTTP/2 frame (RFC 9113 section 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let mut frame = (content.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(content);
    frame
}

/// Builds the client preface of HTTP/2, with settings.
pub fn preface(settings: &[u8]) -> Vec<u8> {
    [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(4, 0, 0, settings),
    ]
    .concat()
}

/// Builds the headers of a DNS-over-HTTPS POST request on an HTTP/2 stream, whose body follows.
pub fn post(stream: u32) -> Vec<u8> {
    // POST https, /dns-query, of localhost (RFC 7541 appendix A).
    let mut fields = vec![0x83, 0x87];
    let literals: [(&[u8], &str); 3] = [
        (&[0x04], "/dns-query"),
        (&[0x01], "localhost"),
        (&[0x0f, 0x10], "application/dns-message"),
    ];
    for (name, value) in literals {
        fields.extend(name);
        fields.push(value.len() as u8);
        fields.extend(value.as_bytes());
    }
    frame(1, 4, stream, &fields)
}

/// Builds a valid first datagram of a QUIC client, which can be sent from any forged address (RFC 9001
/// section 5.2).
pub fn first_datagram(config: &Arc<ClientConfig>, name: &str, number: u64) -> Vec<u8> {
    use rustls::quic::{ClientConnection, Version};
    let destination = number.to_be_bytes();
    let source = [7; 8];
    // initial_source_connection_id (RFC 9000 section 18.2).
    let parameters = [&[0x0f, 8][..], &source].concat();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut tls = ClientConnection::new(Arc::clone(config), Version::V1, name, parameters).expect("a client");
    let mut hello = Vec::new();
    tls.write_hs(&mut hello);
    let mut payload = vec![6, 0];
    payload.extend((0x4000 | hello.len() as u16).to_be_bytes());
    payload.extend(hello);
    let mut header = vec![0xc3, 0, 0, 0, 1, 8];
    header.extend(destination);
    header.push(8);
    header.extend(source);
    header.push(0);
    payload.resize(1200 - header.len() - 2 - 4 - 16, 0);
    header.extend((0x4000 | (4 + payload.len() + 16) as u16).to_be_bytes());
    let number_at = header.len();
    header.extend([0; 4]);
    let suites = &config.crypto_provider().cipher_suites;
    let suite = suites.iter().filter_map(|suite| suite.tls13()?.quic_suite());
    let suite = suite
        .into_iter()
        .find(|suite| suite.suite.common.suite == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256)
        .expect("the suite of first packets");
    let keys = suite.keys(&destination, rustls::Side::Client, Version::V1);
    let tag = keys
        .local
        .packet
        .encrypt_in_place(0, &header, &mut payload)
        .expect("room");
    let mut datagram = [&header[..], &payload, tag.as_ref()].concat();
    let (head, rest) = datagram.split_at_mut(number_at);
    let (packet_number, sampled) = rest.split_at_mut(4);
    let sample = &sampled[..keys.local.header.sample_len()];
    keys.local
        .header
        .encrypt_in_place(sample, &mut head[0], packet_number)
        .expect("a sample");
    datagram
}
