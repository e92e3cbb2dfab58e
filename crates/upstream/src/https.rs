//! Queries over HTTPS (RFC 8484), on HTTP/2.

use std::convert::Infallible;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{ACCEPT, AGE, CONTENT_TYPE, HeaderValue};
use hyper::rt::Executor;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::failure::Fault;
use super::message::{Query, Rejection, Reply};
use super::secured::Secured;
use super::tls;
use super::upstream::Upstream;
use crate::config::{Encryption, Protocol};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, https, records};
use dnsweir_config::tls::Problem;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static(https::MEDIA_TYPE);

/// How often a query is sent if the server refuses its stream.
const REFUSALS: usize = 4;

/// The ID of every query, so that HTTP caches see equal requests for equal questions (RFC 8484 section 4.1).
pub(super) const ID: u16 = 0;

/// Receive windows: unread reply bytes per stream, and per connection.
const WINDOW: u32 = 64 << 10;
const WINDOWS: u32 = 256 << 10;

/// Most bytes of a response's header.
const HEAD_OCTETS: u32 = 16 << 10;

/// Most bytes that a connection holds besides those of TLS: its window, headers and unsent requests.
pub(super) const HTTP_OCTETS: usize = WINDOWS as usize + (64 << 10);

/// A connection that sends requests.
pub(super) struct Session {
    sender: SendRequest<Posted>,
    /// Held from when a request's header is sent until its body is.
    turn: Arc<Mutex<()>>,
    /// The URI of the server's DNS resource.
    uri: String,
    get: bool,
}

impl Session {
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends `query` and waits for its reply.
    pub async fn ask(&self, query: &Query) -> Result<Reply, Fault> {
        let response = self.response(query).await?;
        if response.status() != StatusCode::OK {
            return Err(Fault::Http(response.status().as_u16()));
        }
        let media_type = response.headers().get(CONTENT_TYPE);
        if !media_type.is_some_and(|media_type| https::is_message(media_type.as_bytes())) {
            return Err(Fault::Malformed);
        }
        let age = response.headers().get(AGE).and_then(|age| age.to_str().ok());
        // A number that is too large exceeds all TTLs (RFC 9111 section 1.2.2).
        let age = age.map(|age| age.parse().unwrap_or(u32::MAX));
        let body = Limited::new(response.into_body(), MESSAGE_MAXIMUM)
            .collect()
            .await;
        let mut message: Vec<u8> = body.map_err(|_| Fault::Closed)?.to_bytes().into();
        // RFC 8484 section 5.1: an HTTP cache has held the reply for that long.
        if let Some(age) = age.filter(|_| message.len() >= HEADER) {
            records::age(&mut message, age);
        }
        let over = Protocol::Encrypted(Encryption::Https);
        query
            .accept(ID, over, &message)
            .map_err(|rejection| match rejection {
                // The request identifies the query.
                Rejection::Malformed | Rejection::Stray => Fault::Malformed,
            })
    }

    /// The response to a query, which is sent again if its stream was refused: it was not processed then (RFC
    /// 9113 section 8.7).
    async fn response(&self, query: &Query) -> Result<Response<Incoming>, Fault> {
        for _ in 0..REFUSALS {
            let request = self.request(query).await?;
            match self.sender.clone().send_request(request).await {
                Ok(response) => return Ok(response),
                Err(error) if is_refusal(&error) => {}
                Err(_) => break,
            }
        }
        Err(Fault::Closed)
    }

    /// The query as a request (RFC 8484 section 4.1).
    async fn request(&self, query: &Query) -> Result<Request<Posted>, Fault> {
        let mut message = Vec::with_capacity(query.len());
        query.write(ID, &mut message);
        let mut uri = self.uri.clone();
        let mut request = Request::new(Posted::default());
        if self.get {
            uri.push_str("?dns=");
            URL_SAFE_NO_PAD.encode_string(&message, &mut uri);
        } else {
            *request.method_mut() = Method::POST;
            *request.body_mut() = Posted {
                message: message.into(),
                turn: Some(Arc::clone(&self.turn).lock_owned().await),
            };
            request.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
        }
        // Never fails: the configuration has checked the URI.
        *request.uri_mut() = Uri::try_from(uri).map_err(|_| Fault::Malformed)?;
        request.headers_mut().insert(ACCEPT, MEDIA_TYPE);
        Ok(request)
    }
}

/// Whether the server reset a stream without processing it.
fn is_refusal(error: &hyper::Error) -> bool {
    let reset = error.source().and_then(|error| error.downcast_ref::<h2::Error>());
    reset.and_then(h2::Error::reason) == Some(h2::Reason::REFUSED_STREAM)
}

/// A request's body. The next request's header is not sent before it: some servers refuse a stream that
/// begins before the previous one has ended.
#[derive(Default)]
struct Posted {
    message: Bytes,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Body for Posted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.turn = None;
        let message = std::mem::take(&mut self.message);
        Poll::Ready((!message.is_empty()).then(|| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.len() as u64)
    }
}

/// Establishes a connection; the returned future must be polled for as long as it is to live. With `get`,
/// queries are sent with GET instead of POST.
pub(super) async fn connect(upstream: Arc<Upstream>, get: bool) -> Result<(Session, impl Future), Fault> {
    let uri = upstream.secured.as_ref().map(Secured::uri).unwrap_or_default();
    let stream = tls::connect(upstream).await?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(Fault::Tls(Problem::Protocol));
    }
    let mut http = Builder::new(Local);
    http.timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOWS)
        .max_header_list_size(HEAD_OCTETS);
    let shaken = http.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|_| Fault::Closed)?;
    let session = Session {
        sender,
        turn: Arc::default(),
        uri,
        get,
    };
    Ok((session, connection))
}

/// Runs the background tasks of HTTP/2 on the worker's own thread.
#[derive(Debug, Clone, Copy)]
struct Local;

impl<F: Future<Output: 'static> + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
