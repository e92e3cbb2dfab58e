//! An HTTP proxy between the registry client and the network, inside the process that pulls.
//!
//! The client follows redirects, and gets tokens, wherever a registry says. It accepts no resolver or rule to
//! limit that, but it accepts a proxy. This one connects to hosts in the configuration, wherever they are,
//! and otherwise to public addresses only, like [`fetch`](crate::fetch): no registry can make us contact a
//! cloud's metadata service or a kubelet. The address that is checked is the one connected to. If the
//! configuration names a proxy, that decides instead.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::timeout;

use crate::fetch::{NOT_WRITTEN, is_inside};

/// The largest request head in bytes.
const HEAD: usize = 64 << 10;

/// How long a request head may take, and how long connecting may take.
const PATIENCE: Duration = Duration::from_secs(10);

const REFUSED: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// An HTTP proxy on loopback, which lives as long as its runtime.
pub struct Guard {
    address: SocketAddr,
    problem: Arc<Mutex<Option<String>>>,
}

impl Guard {
    /// Starts it. It connects to the hosts named in `written`, and to public addresses.
    ///
    /// # Errors
    /// When no port on loopback can be bound.
    pub async fn start(written: Vec<String>) -> io::Result<Guard> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let guard = Guard {
            address: listener.local_addr()?,
            problem: Arc::default(),
        };
        let (problem, written) = (Arc::clone(&guard.problem), Arc::new(written));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (problem, written) = (Arc::clone(&problem), Arc::clone(&written));
                tokio::spawn(async move {
                    if let Err(why) = lead(stream, &written).await {
                        *problem.lock() = Some(why);
                    }
                });
            }
        });
        Ok(guard)
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns why the last failed connection was refused, which the client is not told.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }
}

/// Serves one connection.
async fn lead(mut client: TcpStream, written: &[String]) -> Result<(), String> {
    let head = timeout(PATIENCE, head(&mut client)).await;
    let head = head
        .map_err(|_| "no request came")?
        .map_err(|error| error.to_string())?;
    let request = String::from_utf8_lossy(&head);
    let mut words = request.split_ascii_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_tunnel = method == "CONNECT";
    // RFC 9112 sections 3.2.2 and 3.2.3.
    let authority = match target.strip_prefix("http://") {
        Some(rest) if !is_tunnel => rest.split(['/', '?']).next().unwrap_or_default(),
        _ => target,
    };
    let connected = match timeout(PATIENCE, connect(authority, written)).await {
        Ok(connected) => connected,
        Err(_) => Err(format!("{authority} does not answer")),
    };
    let mut server = match connected {
        Ok(server) => server,
        Err(why) => {
            let _ = client.write_all(REFUSED).await;
            return Err(why);
        }
    };
    let begun = match is_tunnel {
        true => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await,
        // Unchanged: servers also accept the absolute form.
        false => server.write_all(&head).await,
    };
    // The client notices when the other side disconnects.
    if begun.is_ok() {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
    Ok(())
}

/// Reads a request head, and what came with it.
async fn head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > HEAD || client.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(head)
}

/// Connects to a host and port, if allowed.
async fn connect(authority: &str, written: &[String]) -> Result<TcpStream, String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| "a port that is none")?),
        _ => (authority, 80),
    };
    let is_written = written.iter().any(|written| written.eq_ignore_ascii_case(host));
    // An IPv6 address is in brackets (RFC 3986 section 3.2.2).
    let name = host.trim_matches(['[', ']']);
    let found = lookup_host((name, port))
        .await
        .map_err(|error| format!("dns error: {error}"))?;
    let found: Vec<SocketAddr> = found
        .filter(|address| is_written || !is_inside(address.ip()))
        .collect();
    if found.is_empty() {
        return Err(format!("it leads to {host}: {NOT_WRITTEN}"));
    }
    let connected = TcpStream::connect(&found[..]).await;
    connected.map_err(|error| format!("tcp connect error: {authority}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first response line that a client gets, and why it was refused.
    async fn asked(written: &[&str], request: &str) -> (String, Option<String>) {
        let guard = Guard::start(written.iter().map(ToString::to_string).collect())
            .await
            .unwrap();
        let mut client = TcpStream::connect(guard.address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut said = vec![0; 256];
        let length = client.read(&mut said).await.unwrap();
        let said = String::from_utf8_lossy(&said[..length]).into_owned();
        (
            said.lines().next().unwrap_or_default().to_owned(),
            guard.problem(),
        )
    }

    #[tokio::test]
    async fn private_addresses_are_led_to_if_they_are_written() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            }
        });
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"] {
            for request in [
                format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n"),
                format!("GET http://{host}:{port}/token HTTP/1.1\r\nHost: x\r\n\r\n"),
            ] {
                let (said, problem) = asked(&["registry.example"], &request).await;
                assert_eq!(said, "HTTP/1.1 502 Bad Gateway", "{request}");
                assert_eq!(problem.unwrap(), format!("it leads to {host}: {NOT_WRITTEN}"));
            }
        }
        let tunnel = format!("CONNECT LOCALHOST:{port} HTTP/1.1\r\n\r\n");
        assert_eq!(asked(&["localhost"], &tunnel).await.0, "HTTP/1.1 200 OK");
        let plain = format!("GET http://127.0.0.1:{port}/v2/ HTTP/1.1\r\n\r\n");
        assert_eq!(asked(&["127.0.0.1"], &plain).await.0, "HTTP/1.1 204 No Content");
    }
}
