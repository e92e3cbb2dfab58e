//! Queries over HTTPS (RFC 8484), upon HTTP/2.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{ACCEPT, AGE, CONTENT_TYPE, HeaderValue};
use hyper::rt::Executor;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::failure::Fault;
use super::message::{Query, Rejection, Reply};
use super::secured::Secured;
use super::tls;
use super::upstream::Upstream;
use crate::config::{Encryption, Protocol};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, records};
use crate::tls::Problem;

/// The type of what is sent and received (RFC 8484 section 6).
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/dns-message");

/// The ID of every query: the same question is the same request, for caches on the way (RFC 8484 section 4.1).
pub(super) const ID: u16 = 0;

/// Octets of replies that a server may send before they are taken: of one, and of all.
const WINDOW: u32 = 64 << 10;
const WINDOWS: u32 = 256 << 10;

/// Octets of a response's header, at most.
const HEAD_OCTETS: u32 = 16 << 10;

/// Octets that a connection holds at most, beside those of TLS: its window, headers, and what is to be sent.
pub(super) const HTTP_OCTETS: usize = WINDOWS as usize + (64 << 10);

/// A connection on which requests are sent.
pub(super) struct Session {
    sender: SendRequest<Full<Bytes>>,
    /// What is asked for.
    uri: String,
    get: bool,
}

impl Session {
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends `query` and waits for its reply.
    pub async fn ask(&self, query: &Query) -> Result<Reply, Fault> {
        let mut sender = self.sender.clone();
        let response = sender.send_request(self.request(query)?).await;
        let response = response.map_err(|_| Fault::Closed)?;
        if response.status() != StatusCode::OK {
            return Err(Fault::Http(response.status().as_u16()));
        }
        if response.headers().get(CONTENT_TYPE) != Some(&MEDIA_TYPE) {
            return Err(Fault::Malformed);
        }
        let age = response.headers().get(AGE).and_then(|age| age.to_str().ok());
        // One that is beyond all numbers is beyond all TTLs (RFC 9111 section 1.2.2).
        let age = age.map(|age| age.parse().unwrap_or(u32::MAX));
        let body = Limited::new(response.into_body(), MESSAGE_MAXIMUM)
            .collect()
            .await;
        let mut message: Vec<u8> = body.map_err(|_| Fault::Closed)?.to_bytes().into();
        // RFC 8484 section 5.1: a cache of HTTP has had it for so long.
        if let Some(age) = age.filter(|_| message.len() >= HEADER) {
            records::age(&mut message, age);
        }
        let over = Protocol::Encrypted(Encryption::Https);
        query
            .accept(ID, over, &message)
            .map_err(|rejection| match rejection {
                // Its request says whose it should be.
                Rejection::Malformed | Rejection::Stray => Fault::Malformed,
            })
    }

    /// A query as a request (RFC 8484 section 4.1).
    fn request(&self, query: &Query) -> Result<Request<Full<Bytes>>, Fault> {
        let mut message = Vec::with_capacity(query.len());
        query.write(ID, &mut message);
        let mut uri = self.uri.clone();
        let mut request = Request::new(Full::default());
        if self.get {
            uri.push_str("?dns=");
            URL_SAFE_NO_PAD.encode_string(&message, &mut uri);
        } else {
            *request.method_mut() = Method::POST;
            *request.body_mut() = Full::from(message);
            request.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
        }
        // The configuration has seen to that.
        *request.uri_mut() = Uri::try_from(uri).map_err(|_| Fault::Malformed)?;
        request.headers_mut().insert(ACCEPT, MEDIA_TYPE);
        Ok(request)
    }
}

/// Establishes a connection; the second part has to be polled for as long as it is to live. `get`: queries are sent with GET,
/// and not POST.
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
    Ok((Session { sender, uri, get }, connection))
}

/// Runs what HTTP/2 does beside on the worker's own thread.
#[derive(Debug, Clone, Copy)]
struct Local;

impl<F: Future<Output: 'static> + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
