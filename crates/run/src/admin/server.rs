//! The HTTP server of an admin address.
//!
//! It is read-only, and clients that are slow, silent or many keep no others out.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Socket, Type};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

use super::compressed::{compressed, takes_gzip};
use super::connected::Connected;
use crate::listen::{Port, in_use, steer};
use crate::netstat::Protocol;

/// How long a client may take to send a request head, and be silent between two requests.
const HEAD: Duration = Duration::from_secs(5);

/// The maximum size of a request head in bytes.
const HEAD_OCTETS: usize = 16 << 10;

/// How long a connection may last: a client that does not read its response is disconnected.
const LASTING: Duration = Duration::from_secs(60);

/// The most open connections. At the limit, the client with the most loses its oldest, and this host last, so
/// that everyone gets an answer.
pub const CONNECTIONS: usize = 32;

/// Connections that may wait to be accepted. If they are too many, the client's kernel retries after a
/// second.
const WAITING: i32 = 1024;

/// A bound admin address, registered with the runtime.
pub struct Listener(tokio::net::TcpListener);

impl Listener {
    /// Binds the address, on the runtime that will serve it. [`Port::Shared`] lets a successor listen before
    /// we end; of two processes, the later one answers. `[::]` includes every IPv4 address; on a machine
    /// without IPv6, it stands for those alone.
    ///
    /// # Errors
    /// When the address cannot be bound, with the process that holds it. If the machine lacks it or its whole
    /// family, the kind is `AddrNotAvailable`.
    pub fn bind(address: SocketAddr, port: Port) -> io::Result<Listener> {
        let bound = match bind(address, port) {
            Err(error) if lacks_family(&error) && address.ip().is_unspecified() => {
                bind((Ipv4Addr::UNSPECIFIED, address.port()).into(), port)
            }
            bound => bound,
        };
        bound.map(Listener).map_err(|error| {
            let (kind, hint) = match error.kind() {
                io::ErrorKind::AddrInUse => (error.kind(), in_use(address, Protocol::Tcp, port)),
                _ if lacks_family(&error) => (
                    io::ErrorKind::AddrNotAvailable,
                    ": this machine has no IPv6".to_owned(),
                ),
                kind => (kind, String::new()),
            };
            io::Error::new(kind, format!("cannot serve admin on {address}: {error}{hint}"))
        })
    }

    /// Answers GET and HEAD with `reply(path, headers)`, on the calling runtime, which `reply` must not
    /// block.
    pub fn serve(self, reply: impl Fn(&str, &HeaderMap) -> Reply + Clone + Send + Sync + 'static) -> Server {
        Server(tokio::spawn(async move {
            // Only the head of a request is read.
            let connected = Connected::new(CONNECTIONS, usize::MAX);
            loop {
                match self.0.accept().await {
                    Ok((stream, _)) => {
                        let reply = reply.clone();
                        connected.serve(stream, |stream, guest| async move {
                            let service = service_fn(|request: Request<Incoming>| {
                                guest.asks();
                                let reply = match *request.method() {
                                    Method::GET | Method::HEAD => {
                                        reply(request.uri().path(), request.headers())
                                    }
                                    _ => not_allowed(),
                                };
                                let takes_gzip = takes_gzip(request.headers());
                                async move { Ok::<_, Infallible>(compressed(reply, takes_gzip).await) }
                            });
                            let mut http = http1::Builder::new();
                            http.timer(TokioTimer::new())
                                .header_read_timeout(HEAD)
                                .max_buf_size(HEAD_OCTETS);
                            // Clients that disconnect do not matter.
                            let served = http.serve_connection(TokioIo::new(stream), service);
                            let _ = timeout(LASTING, served).await;
                        });
                        yield_now().await;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an admin connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }))
    }
}

fn bind(address: SocketAddr, port: Port) -> io::Result<tokio::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(port == Port::Shared)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // Otherwise net.ipv6.bindv6only decides.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    socket.listen(WAITING)?;
    let listener: TcpListener = socket.into();
    steer(&listener, 1)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Returns whether the kernel has the address family disabled.
fn lacks_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// A served admin address; dropping it ends service.
pub struct Server(JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The response to a request.
pub type Reply = Response<Full<Bytes>>;

fn not_allowed() -> Reply {
    let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n".into());
    refused
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refused
}

/// Returns a plain text reply.
pub fn text(code: StatusCode, body: String) -> Reply {
    typed(code, "text/plain; charset=utf-8", body)
}

/// Returns a reply of another content type.
pub fn typed(code: StatusCode, content_type: &'static str, body: String) -> Reply {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
