//! An admin address: HTTP for those who come to look.
//!
//! Nothing can be changed through it, and a client that is slow, silent or one of many keeps nobody else out.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
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

/// How long a client may take to send its request's head, and be silent between two requests.
const HEAD: Duration = Duration::from_secs(5);

/// Octets of a request's head, at most.
const HEAD_OCTETS: usize = 16 << 10;

/// How long a connection may last: a client that does not read its response is let go.
const LASTING: Duration = Duration::from_secs(60);

/// Connections that are open at once. When there are as many, the oldest of whoever has most makes room, and of the host itself
/// last: whoever comes to look gets to see.
pub const CONNECTIONS: usize = 32;

/// Connections that may wait to be accepted. Where there is no room among them, a client asks the kernel again after a second.
const WAITING: i32 = 1024;

/// A bound admin address, known to the runtime.
pub struct Listener(tokio::net::TcpListener);

impl Listener {
    /// Binds the address, on the runtime that will serve it. [`Port::Shared`] lets a successor listen before we
    /// end; of two processes, the one that came second answers.
    ///
    /// # Errors
    /// When the address cannot be had; then who has it.
    pub fn bind(address: SocketAddr, port: Port) -> io::Result<Listener> {
        let bound = (|| {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(port == Port::Shared)?;
            socket.bind(&address.into())?;
            socket.set_reuse_port(true)?;
            socket.listen(WAITING)?;
            let listener: TcpListener = socket.into();
            steer(&listener, 1)?;
            tokio::net::TcpListener::from_std(listener)
        })();
        match bound {
            Ok(listener) => Ok(Listener(listener)),
            Err(error) => {
                let error: io::Error = error;
                let hint = match error.kind() {
                    io::ErrorKind::AddrInUse => in_use(address, Protocol::Tcp, port),
                    _ => String::new(),
                };
                Err(io::Error::new(
                    error.kind(),
                    format!("cannot serve admin on {address}: {error}{hint}"),
                ))
            }
        }
    }

    /// Serves GET and HEAD by `reply`, which gets path and headers, on the calling runtime, which `reply` must not hold up.
    pub fn serve(self, reply: impl Fn(&str, &HeaderMap) -> Reply + Clone + Send + Sync + 'static) -> Server {
        Server(tokio::spawn(async move {
            // A request has a head, and no more is read of it.
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
                            // A client that breaks off is no concern of ours.
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

/// A served admin address; dropped, it is not served any more.
pub struct Server(JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a request is answered with.
pub type Reply = Response<Full<Bytes>>;

fn not_allowed() -> Reply {
    let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n".into());
    refused
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refused
}

/// Text for a person.
pub fn text(code: StatusCode, body: String) -> Reply {
    typed(code, "text/plain; charset=utf-8", body)
}

/// What is of another type.
pub fn typed(code: StatusCode, content_type: &'static str, body: String) -> Reply {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
