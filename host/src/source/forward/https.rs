//! Queries over HTTPS (RFC 8484): those of a worker to an upstream share a connection of HTTP/2.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper::header::{ACCEPT, AGE, CONTENT_TYPE, HeaderValue};
use hyper::rt::Executor;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_rustls::client::TlsStream;

use super::failure::Fault;
use super::message::{Query, Rejection, Reply};
use super::quota::{Permit, Quotas};
use super::tls;
use super::upstream::Upstream;
use crate::config::{Encryption, Protocol};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, records};
use crate::tls::Problem;

/// The type of what is sent and received (RFC 8484 section 6).
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/dns-message");

/// The ID of every query: the same question is the same request, for caches on the way (RFC 8484 section 4.1).
const ID: u16 = 0;

/// Queries in a row without a reply after which a connection is taken for dead.
const MOST_SILENT: u32 = 2;

/// Octets of replies that a server may send before they are taken: of one, and of all.
const WINDOW: u32 = 64 << 10;
const WINDOWS: u32 = 256 << 10;

/// Octets of a response's header, at most.
const HEAD_OCTETS: u32 = 16 << 10;

/// Octets that a connection holds at most, beside those of TLS: its window, headers, and what is to be sent.
pub(super) const HTTP_OCTETS: usize = WINDOWS as usize + (64 << 10);

/// One worker's connection to one upstream.
pub(super) struct Https {
    upstream: Arc<Upstream>,
    quotas: Quotas,
    idle: Duration,
    dial: Duration,
    get: bool,
    open: RefCell<Rc<Open>>,
}

/// A connection that is there, or yet to be established.
#[derive(Default)]
struct Open {
    sender: OnceCell<SendRequest<Full<Bytes>>>,
    /// Whether it has carried a reply.
    proven: Cell<bool>,
    /// Queries without a reply.
    pending: Cell<usize>,
    quiet: Cell<Option<Instant>>,
    /// Queries in a row that got no reply in time.
    silent: Cell<u32>,
}

impl Https {
    /// Nothing is opened yet. `get`: queries are sent with GET, and not POST.
    pub fn new(upstream: Arc<Upstream>, quotas: Quotas, idle: Duration, dial: Duration, get: bool) -> Https {
        Https {
            upstream,
            quotas,
            idle,
            dial,
            get,
            open: RefCell::default(),
        }
    }

    /// Sends `query` and waits for its reply, at most `limit`. Dropping the future forgets the query.
    pub async fn exchange(&self, query: &Rc<Query>, limit: Duration) -> Result<Reply, Fault> {
        let until = Instant::now() + limit;
        let open = self.open();
        match self.ask(&open, query, until).await {
            // As over TCP, a server may close a connection just when we have used it again.
            Err(Fault::Closed) if open.proven.get() => self.ask(&self.open(), query, until).await,
            outcome => outcome,
        }
    }

    /// The connection, or a new one in place of one that is closed.
    fn open(&self) -> Rc<Open> {
        let mut open = self.open.borrow_mut();
        if open.sender.get().is_some_and(SendRequest::is_closed) || open.silent.get() >= MOST_SILENT {
            *open = Rc::default();
        }
        Rc::clone(&open)
    }

    async fn ask(&self, open: &Rc<Open>, query: &Query, until: Instant) -> Result<Reply, Fault> {
        let _pending = Pending::new(open);
        let asked = async {
            let sender = open.sender.get_or_try_init(|| self.connect(open)).await?;
            let mut sender = sender.clone();
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
        };
        let outcome = timeout_at(until, asked).await.unwrap_or(Err(Fault::Timeout));
        match &outcome {
            Err(Fault::Timeout) => open.silent.set(open.silent.get() + 1),
            _ => open.silent.set(0),
        }
        open.proven.set(open.proven.get() || outcome.is_ok());
        outcome
    }

    /// A query as a request (RFC 8484 section 4.1).
    fn request(&self, query: &Query) -> Result<Request<Full<Bytes>>, Fault> {
        let mut message = vec![0; query.len()];
        query.write(ID, &mut message);
        let secured = self
            .upstream
            .secured
            .as_ref()
            .ok_or(Fault::Tls(Problem::Protocol))?;
        let mut uri = secured.uri();
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

    /// Establishes the connection, which then lives as a task of its own.
    async fn connect(&self, open: &Rc<Open>) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let permit = self.quotas.take()?;
        let dialled = async {
            let stream = tls::connect(Arc::clone(&self.upstream)).await?;
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return Err(Fault::Tls(Problem::Protocol));
            }
            let mut http = Builder::new(Local);
            http.timer(TokioTimer::new())
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOWS)
                .max_header_list_size(HEAD_OCTETS);
            http.handshake(TokioIo::new(stream))
                .await
                .map_err(|_| Fault::Closed)
        };
        let dialled = timeout(self.dial, dialled).await.unwrap_or(Err(Fault::Timeout));
        let (sender, connection) = dialled?;
        tokio::task::spawn_local(keep(connection, Rc::downgrade(open), self.idle, permit));
        Ok(sender)
    }
}

/// How often it is looked whether a connection is idle, at most: that of a probe is so at once.
const LEAST_LOOK: Duration = Duration::from_millis(100);

/// A connection of HTTP/2 upon TLS.
type Http = Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>, Local>;

/// Keeps a connection until it ends, or nothing was asked for some time; holds its permit.
async fn keep(connection: Http, open: std::rc::Weak<Open>, idle: Duration, _permit: Permit) {
    let mut connection = std::pin::pin!(connection);
    loop {
        let now = Instant::now();
        let due = match open.upgrade() {
            // Its worker has another one, or has ended.
            None => return,
            Some(open) if open.pending.get() > 0 => now + idle.max(LEAST_LOOK),
            Some(open) => match open.quiet.get().unwrap_or(now) + idle {
                due if due > now => due,
                _ => return,
            },
        };
        tokio::select! {
            _ = &mut connection => return,
            () = sleep_until(due) => {}
        }
    }
}

/// A query under way.
struct Pending(Rc<Open>);

impl Pending {
    fn new(open: &Rc<Open>) -> Pending {
        open.pending.set(open.pending.get() + 1);
        Pending(Rc::clone(open))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.pending.set(self.0.pending.get() - 1);
        self.0.quiet.set(Some(Instant::now()));
    }
}

/// Runs what HTTP/2 does beside on the worker's own thread.
#[derive(Debug, Clone, Copy)]
struct Local;

impl<F: Future<Output: 'static> + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
