//! DNS over HTTPS (RFC 8484): HTTP/2, or HTTP/1.1 for clients that have nothing else, on top of
//! [`tls`](super::tls).
//!
//! Requests are answered by [`exchange`](super::exchange). What they hold counts in `tcp-memory`. As over
//! TCP, `tcp-idle` ends a connection with nothing in progress, and `tcp-write` one whose client does not take
//! its replies.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::server::TlsStream;

use super::accept::{Accepted, serve_each};
use super::bounds::CloseReason;
use super::client_connections::ClientConnection;
use super::exchange::{Exchange, HEAD_OCTETS, Over, PIECE};
use super::secured::HTTP2;
use super::service::Service;
use super::tls::shake_hands;
use super::write_through::WriteThrough;
use crate::dns::Transport;

/// Concurrent requests per connection (RFC 9113 section 6.5.2 recommends no fewer).
const STREAMS: u32 = 100;

/// How many requests a client may reset before they are processed; more end the connection, because opening
/// and resetting streams makes us work for nothing.
const RESETS: usize = 20;

/// Flow-control window in bytes, of one request and of all of them together.
const WINDOW: u32 = 16 << 10;

/// Bytes a request holds besides its query or reply: its task, and the state of its HTTP/2 stream.
const REQUEST: usize = 2 << 10;

/// Bytes an HTTP/2 connection holds besides the queries and replies of its requests: its windows, its header
/// table, and two pieces of each reply, which are no longer counted once handed over.
pub(crate) const HTTP_MEMORY: usize = (64 << 10) + STREAMS as usize * (REQUEST + 2 * PIECE);

/// How long a connection may take to end after a graceful shutdown was started.
const LEAVING: Duration = Duration::from_millis(500);

/// Serves connections until the service stops; open ones then end by themselves.
pub async fn listen(listener: TcpListener, service: Service) {
    serve_each(listener, service, serve).await;
}

async fn serve(accepted: Accepted, service: Service) {
    let Accepted { stream, client, open } = accepted;
    let Some(config) = service.limits.borrow().secured.https.clone() else {
        return;
    };
    let reason = match shake_hands(stream, config, &open.connection).await {
        Ok(stream) => converse(stream, service, client, &open.connection).await,
        Err(reason) => reason,
    };
    open.close(reason);
}

/// Answers requests until the connection ends. Returns why, if we ended it.
async fn converse(
    stream: TlsStream<TcpStream>,
    service: Service,
    client: SocketAddr,
    connection: &Arc<ClientConnection>,
) -> Option<CloseReason> {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let exchange = Rc::new(Exchange::new(
        &service,
        Transport::Https,
        client,
        Arc::clone(connection),
    ));
    let answering = Rc::clone(&exchange);
    let answer = service_fn(move |request| Rc::clone(&answering).answer(request));
    let stream = TokioIo::new(WriteThrough::new(stream, connection));
    if is_http2 {
        let mut http = http2::Builder::new(Local);
        http.timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD_OCTETS as u32)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(RESETS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(u32::from(u16::MAX))
            .max_send_buf_size(PIECE);
        let http = http.serve_connection(stream, answer);
        keep(http, |http| http.graceful_shutdown(), service, &exchange).await
    } else {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(connection.bounds().read())
            .max_buf_size(HEAD_OCTETS);
        let http = http.serve_connection(stream, answer);
        keep(http, |http| http.graceful_shutdown(), service, &exchange).await
    }
}

/// Drives a connection until it ends, is dismissed, exceeds a timeout, or the service stops.
async fn keep<C: Future>(
    http: C,
    shut: fn(Pin<&mut C>),
    mut service: Service,
    exchange: &Exchange,
) -> Option<CloseReason> {
    let connection = &exchange.connection;
    let bounds = connection.bounds();
    let _over = Over(exchange);
    let mut http = pin!(http);
    let mut dismissed = pin!(connection.dismissed());
    let mut stopping = pin!(async { drop(service.stop.wait_for(|stopping| *stopping).await) });
    // The deadline for it to end by itself, and the reason if it was a timeout.
    let mut leaving: Option<(Instant, Option<CloseReason>)> = None;
    loop {
        let (due, reason) = leaving.unwrap_or_else(|| exchange.due(bounds.idle(), bounds.write()));
        tokio::select! {
            _ = &mut http => return leaving.and_then(|(_, reason)| reason),
            () = &mut dismissed => return None,
            () = sleep_until(due) => match leaving {
                Some((_, reason)) => return reason,
                // Something may have happened meanwhile.
                None if exchange.due(bounds.idle(), bounds.write()).0 > Instant::now() => {}
                None => {
                    shut(http.as_mut());
                    leaving = Some((Instant::now() + LEAVING, reason));
                }
            },
            () = &mut stopping, if leaving.is_none() => {
                shut(http.as_mut());
                // Requests in progress are still answered.
                leaving = Some((Instant::now() + connection.bounds().idle(), None));
            }
        }
    }
}

/// Runs the background tasks of HTTP/2 on the worker's own thread.
#[derive(Debug, Clone, Copy)]
struct Local;

impl<F: Future<Output: 'static> + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};
    use hyper::Request;
    use hyper::body::Bytes;
    use hyper::client::conn::http2::Builder;
    use hyper::header::CONTENT_TYPE;
    use tokio::runtime::LocalRuntime;
    use tokio::task::yield_now;

    use super::super::conversation::tests::service;
    use super::*;
    use crate::dns::https::MEDIA_TYPE;
    use dnsweir_os::clock::Uptime;

    /// Otherwise a stop would cut it.
    #[test]
    fn a_reply_is_owed_while_the_clients_window_holds_it_back() {
        LocalRuntime::new().unwrap().block_on(async {
            let (service, connections, _stopping) = service();
            let client = SocketAddr::from(([127, 0, 0, 1], 40_000));
            let connection = connections.open(client.ip(), Uptime::START).unwrap();
            let exchange = Exchange::new(&service, Transport::Https, client, Arc::clone(&connection));
            let exchange = Rc::new(exchange);
            let answering = Rc::clone(&exchange);
            let answer = service_fn(move |request| Rc::clone(&answering).answer(request));
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let ours = TokioIo::new(WriteThrough::new(ours, &connection));
            let http = http2::Builder::new(Local).serve_connection(ours, answer);
            let conversation = keep(http, |http| http.graceful_shutdown(), service, &exchange);
            let asking = async {
                let mut builder = Builder::new(Local);
                builder.initial_stream_window_size(10_u32);
                let (mut sender, driven) = builder.handshake(TokioIo::new(theirs)).await.unwrap();
                spawn_local(driven);
                let query = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x09localhost\0\0\x01\0\x01";
                let request = Request::post("https://localhost/dns-query").header(CONTENT_TYPE, MEDIA_TYPE);
                let request = request.body(Full::new(Bytes::from_static(query))).unwrap();
                let mut body = sender.send_request(request).await.unwrap().into_body();
                body.frame().await.unwrap().unwrap();
                tokio::select! {
                    biased;
                    () = connections.settled() => panic!("the client has only begun to take it"),
                    () = yield_now() => assert_eq!(connection.unsent(), 0),
                }
                assert!(!body.collect().await.unwrap().to_bytes().is_empty());
                connections.settled().await;
            };
            tokio::select! {
                _ = conversation => panic!("the connection ended"),
                () = asking => {}
            }
        });
    }
}
