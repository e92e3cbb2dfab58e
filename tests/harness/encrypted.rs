//! What speaks TLS before an [`Upstream`](super::Upstream).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::address;
use super::client::{frame, read_frame};

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
