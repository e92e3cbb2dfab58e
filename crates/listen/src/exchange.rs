//! Requests with a stream of their own: what those of a connection share, and one DNS over HTTPS request with
//! its response (RFC 8484 section 4).

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Buf, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::bounds::CloseReason;
use super::client_connections::ClientConnection;
use super::outbox::UNSENT;
use super::service::Service;
use crate::dns::https::{MEDIA_TYPE, is_message, percent_decoded};
use crate::dns::padding::{REPLY_BLOCK, padded};
use crate::dns::{MESSAGE_MAXIMUM, QUERY_MAXIMUM, Transport, records};
use crate::serve::{Admission, Batch, Client, DeferredReply, Replies, Worker};

/// The path of queries. RFC 8484 leaves it to the server; everyone uses this one.
const PATH: &str = "/dns-query";

/// The maximum size of a request header in bytes: the longest query, and what browsers send about themselves.
pub const HEAD_OCTETS: usize = 16 << 10;

/// Bytes of a reply handed to the HTTP or QUIC stack at a time. From then on they are no longer counted, and
/// may be kept for a client that does not read them.
pub const PIECE: usize = 1 << 10;

thread_local! {
    /// Buffers that a worker's requests use in turn: nothing stays here across an await.
    static SCRATCH: RefCell<(Batch, Box<[u8]>)> = RefCell::new((Batch::default(), vec![0; MESSAGE_MAXIMUM].into()));
}

/// What all requests of a connection share.
pub struct Exchange {
    worker: Rc<Worker>,
    client: Client,
    /// Its slot among all connections, and the memory of its requests.
    pub connection: Arc<ClientConnection>,
    /// Number of requests so far.
    asked: Cell<u64>,
    /// Number of requests without a reply.
    asking: Cell<usize>,
    /// Number of replies that the client has not fully taken.
    sending: Cell<usize>,
    /// When something last happened.
    quiet: Cell<Instant>,
    /// Wakes a task that waits for the client to take replies.
    taken: Notify,
    /// Whether the connection has ended.
    over: Cell<bool>,
}

impl Exchange {
    /// Creates it without requests.
    pub fn new(
        service: &Service,
        transport: Transport,
        client: SocketAddr,
        connection: Arc<ClientConnection>,
    ) -> Exchange {
        let worker = Rc::clone(&service.worker);
        Exchange {
            client: Client {
                address: client,
                server: service.server,
                transport,
                received: worker.now(),
                limit: MESSAGE_MAXIMUM,
                keepalive: None,
            },
            worker,
            connection,
            asked: Cell::new(0),
            asking: Cell::new(0),
            sending: Cell::new(0),
            quiet: Cell::new(Instant::now()),
            taken: Notify::new(),
            over: Cell::new(false),
        }
    }

    /// Returns when the connection ends if nothing happens, and why. `idle` bounds silence; `write` bounds
    /// how long the client may take none of its replies.
    pub fn due(&self, idle: Duration, write: Duration) -> (Instant, Option<CloseReason>) {
        match (self.sending.get(), self.asking.get()) {
            (0, 0) => (self.quiet.get() + idle, Some(CloseReason::Idle)),
            // A client that waits for a reply is not idle.
            (0, _) => (Instant::now() + idle, None),
            _ => (self.quiet.get() + write, Some(CloseReason::Write)),
        }
    }

    /// Answers a request. Errors are reported by status code (RFC 8484 section 4.2.1).
    ///
    /// Nothing of its header is kept: clients may send many requests before the first is processed.
    pub fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Reply>, Infallible>> {
        let asked = Asked::new(&self);
        let (head, body) = request.into_parts();
        let form = asked.form(&head);
        let is_head = head.method == Method::HEAD;
        drop(head);
        async move {
            let mut response = Response::new(Reply::default());
            match asked.respond(form, body).await {
                Ok(answer) => {
                    let headers = response.headers_mut();
                    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
                    // RFC 8484 section 5.1: HTTP caches must not keep it longer than its records' TTL.
                    let fresh = format!("max-age={}", answer.fresh);
                    headers.extend(HeaderValue::try_from(fresh).map(|fresh| (CACHE_CONTROL, fresh)));
                    if is_head {
                        // HEAD: the header of the GET response, without its body (RFC 9110 section 9.3.2).
                        headers.insert(CONTENT_LENGTH, HeaderValue::from(answer.octets));
                    } else {
                        *response.body_mut() = Reply {
                            left: answer.octets,
                            asked: Some(asked.replied()),
                        };
                    }
                }
                Err(status) => {
                    if status == StatusCode::METHOD_NOT_ALLOWED {
                        let methods = HeaderValue::from_static("GET, HEAD, POST");
                        response.headers_mut().insert(ALLOW, methods);
                    }
                    *response.status_mut() = status;
                }
            }
            Ok(response)
        }
    }

    fn happened(&self) {
        self.quiet.set(Instant::now());
    }
}

/// Marks a connection as over when dropped, which releases requests that wait for its client to take replies.
pub struct Over<'e>(pub &'e Exchange);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.set(true);
        self.0.taken.notify_waiters();
    }
}

/// Where the query of a request is.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// In the header.
    Get,
    /// In the body.
    Post,
}

/// A reply, which its connection holds.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// Its size in bytes.
    pub octets: usize,
    /// The least TTL of its records, in seconds.
    fresh: u32,
}

/// A request in progress. Its connection holds the bytes of its query, and later its reply, so that any
/// thread can free them.
pub struct Asked {
    exchange: Rc<Exchange>,
    /// Its key in the connection.
    stream: u64,
    /// Whether its reply is complete and waits for the client.
    replied: bool,
}

impl Asked {
    /// Registers a new request.
    pub fn new(exchange: &Rc<Exchange>) -> Asked {
        exchange.asking.set(exchange.asking.get() + 1);
        // New queries do not show that the client takes earlier replies.
        if exchange.sending.get() == 0 {
            exchange.happened();
        }
        Asked {
            exchange: Rc::clone(exchange),
            stream: exchange.asked.replace(exchange.asked.get() + 1),
            replied: false,
        }
    }

    /// Returns the connection it came on.
    pub fn connection(&self) -> &ClientConnection {
        &self.exchange.connection
    }

    /// Stores received bytes of its query; false if the connection was dismissed.
    pub fn receive(&self, octets: &[u8]) -> bool {
        self.connection().receive(self.stream, octets)
    }

    /// Returns the next bytes of its reply, at most `most`.
    pub fn piece(&self, most: usize) -> Option<Vec<u8>> {
        let piece = self.connection().piece(self.stream, most);
        if piece.is_some() {
            self.exchange.happened();
            self.exchange.taken.notify_one();
        }
        piece
    }

    /// Records that its reply is complete and waits for the client.
    pub(crate) fn replied(mut self) -> Asked {
        let exchange = &self.exchange;
        exchange.asking.set(exchange.asking.get() - 1);
        // One more reply does not show that the client takes earlier ones.
        if exchange.sending.replace(exchange.sending.get() + 1) == 0 {
            exchange.happened();
            exchange.connection.set_sending(true);
        }
        self.replied = true;
        self
    }

    /// Returns where the query is (RFC 8484 section 4.1); stores one that is in the header.
    fn form(&self, head: &Parts) -> Result<Form, StatusCode> {
        // RFC 9112 section 3.2: an HTTP/1.1 request has exactly one Host header.
        if head.version == Version::HTTP_11 && head.headers.get_all(HOST).iter().count() != 1 {
            return Err(StatusCode::BAD_REQUEST);
        }
        if percent_decoded(head.uri.path()).as_deref() != Some(PATH.as_bytes()) {
            return Err(StatusCode::NOT_FOUND);
        }
        match head.method {
            Method::GET | Method::HEAD => {
                let parameters = head.uri.query().unwrap_or_default().split('&');
                let query = parameters
                    .filter_map(|parameter| parameter.strip_prefix("dns="))
                    .next();
                let mut query = query.and_then(percent_decoded).unwrap_or_default();
                // Some clients pad it nevertheless.
                while query.pop_if(|octet| *octet == b'=').is_some() {}
                let query = Some(query).filter(|query| !query.is_empty());
                let query = query.and_then(|query| URL_SAFE_NO_PAD.decode(query).ok());
                self.receive(&query.ok_or(StatusCode::BAD_REQUEST)?);
                Ok(Form::Get)
            }
            Method::POST => match head.headers.get(CONTENT_TYPE) {
                Some(media_type) if is_message(media_type.as_bytes()) => Ok(Form::Post),
                _ => Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            },
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn respond(&self, form: Result<Form, StatusCode>, body: Incoming) -> Result<Answer, StatusCode> {
        // Read the body even if it is not needed: some clients miss a response that arrives before they have
        // sent it.
        let is_query = matches!(form, Ok(Form::Post));
        let came = timeout(self.connection().bounds().read(), self.take_in(body, is_query)).await;
        if let Form::Post = form? {
            came.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))?;
        }
        self.ask(|_| true).await.map_err(|unanswered| match unanswered {
            Unanswered::Malformed => StatusCode::BAD_REQUEST,
            Unanswered::Dropped => StatusCode::SERVICE_UNAVAILABLE,
        })
    }

    /// Stores a body up to the size of a query; reads a bounded excess, and discards it.
    async fn take_in(&self, mut body: Incoming, is_query: bool) -> Result<(), StatusCode> {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data();
            let data = data.unwrap_or_default();
            length += data.len();
            if length > MESSAGE_MAXIMUM {
                break;
            }
            if is_query && length <= QUERY_MAXIMUM && !self.receive(&data) {
                return Err(StatusCode::SERVICE_UNAVAILABLE);
            }
        }
        match length <= QUERY_MAXIMUM {
            true => Ok(()),
            false => Err(StatusCode::PAYLOAD_TOO_LARGE),
        }
    }

    /// Waits until the client has taken enough replies; false if the connection is over.
    async fn has_room(&self) -> bool {
        let exchange = &self.exchange;
        let mut waited = false;
        while !exchange.over.get() && !self.connection().is_closed() {
            if !self.connection().is_crowded(UNSENT) {
                if waited {
                    // There may be room for one more.
                    exchange.taken.notify_one();
                }
                return true;
            }
            waited = true;
            exchange.taken.notified().await;
        }
        false
    }

    /// Sends the received query to the worker, unless `is_query` rejects it.
    pub async fn ask(&self, is_query: impl FnOnce(&mut Vec<u8>) -> bool) -> Result<Answer, Unanswered> {
        if !self.has_room().await {
            return Err(Unanswered::Dropped);
        }
        let exchange = &self.exchange;
        let client = Client {
            received: exchange.worker.now(),
            ..exchange.client
        };
        self.connection().note(client.received);
        let mut message = self.connection().forget(self.stream);
        if !is_query(&mut message) {
            return Err(Unanswered::Malformed);
        }
        let (answer, later) = SCRATCH.with_borrow_mut(|(batch, out)| {
            let mut one = One {
                asked: self,
                out,
                answer: None,
                later: None,
            };
            match exchange.worker.admit(batch, &message, client, one.out) {
                Admission::Travelling => batch.set_server_name(self.connection().server_name()),
                Admission::Answered(length) => one.take(length),
                // No transfers here: each request has one reply.
                Admission::Transfer(_) | Admission::Silence => return Err(Unanswered::Malformed),
            }
            exchange.worker.run(batch, &mut one);
            Ok((one.answer, one.later))
        })?;
        drop(message);
        exchange.worker.tell_if_many();
        let Some(later) = later else {
            return answer.ok_or(Unanswered::Dropped);
        };
        self.connection().owe(true);
        let answer = later.await;
        self.connection().owe(exchange.asking.get() > 1);
        answer.map_err(|_| Unanswered::Dropped)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let exchange = &self.exchange;
        exchange.connection.forget(self.stream);
        if self.replied {
            exchange.sending.set(exchange.sending.get() - 1);
            exchange.connection.set_sending(exchange.sending.get() > 0);
            exchange.taken.notify_one();
        } else {
            exchange.asking.set(exchange.asking.get() - 1);
            exchange.connection.owe(exchange.asking.get() > 0);
        }
        // A request without a reply of ours does not show that the client takes earlier ones.
        if self.replied || exchange.sending.get() == 0 {
            exchange.happened();
        }
    }
}

/// Stores a reply with the connection until the client takes it; `None` if the connection was dismissed.
fn keep(connection: &ClientConnection, stream: u64, message: &[u8]) -> Option<Answer> {
    let fresh = records::least_ttl(message).unwrap_or(0);
    let message = padded(message, REPLY_BLOCK);
    let octets = message.len();
    let kept = !connection.is_closed() && connection.reply(stream, message);
    kept.then_some(Answer { octets, fresh })
}

/// Why a message has no reply.
#[derive(Debug, Clone, Copy)]
pub enum Unanswered {
    /// It is not a query.
    Malformed,
    /// It was dropped, by a filter or for lack of room.
    Dropped,
}

/// Receives the only reply of a batch of one.
struct One<'s> {
    asked: &'s Asked,
    out: &'s mut [u8],
    answer: Option<Answer>,
    later: Option<oneshot::Receiver<Answer>>,
}

impl One<'_> {
    /// Stores the reply that was written to `out`.
    fn take(&mut self, length: usize) {
        self.answer = keep(self.asked.connection(), self.asked.stream, &self.out[..length]);
    }
}

impl Replies for One<'_> {
    fn buffer(&mut self, _: usize) -> &mut [u8] {
        self.out
    }

    fn reply(&mut self, _: usize, length: usize) {
        self.take(length);
    }

    fn defer(&mut self, _: usize) -> Box<dyn DeferredReply> {
        let (sender, later) = oneshot::channel();
        self.later = Some(later);
        Box::new(Later {
            connection: Arc::clone(&self.asked.exchange.connection),
            stream: self.asked.stream,
            sender,
        })
    }
}

/// Sends a reply that comes after its batch.
struct Later {
    connection: Arc<ClientConnection>,
    stream: u64,
    sender: oneshot::Sender<Answer>,
}

impl DeferredReply for Later {
    fn send(self: Box<Self>, message: &[u8]) {
        // The request is gone, so nothing would take the stored reply.
        if self.sender.is_closed() {
            return;
        }
        if let Some(answer) = keep(&self.connection, self.stream, message) {
            let _ = self.sender.send(answer);
        }
    }
}

/// A reply that is sent piece by piece.
#[derive(Default)]
pub struct Reply {
    /// Bytes still to send.
    left: usize,
    asked: Option<Asked>,
}

/// A piece of a reply. It is dropped once written, for which HTTP/2 may have to wait for the client.
pub struct Piece {
    octets: Bytes,
    /// With the last piece: until it is dropped, the client has not fully taken the reply.
    _asked: Option<Asked>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.octets.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.octets.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.octets.advance(count);
    }
}

impl Body for Reply {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Piece>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = self.asked.as_ref().and_then(|asked| asked.piece(PIECE));
        let Some(octets) = piece else {
            // The connection was dismissed, and no longer holds the reply.
            self.left = 0;
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        };
        self.left -= octets.len();
        let asked = match self.left {
            0 => self.asked.take(),
            _ => None,
        };
        Poll::Ready(Some(Ok(Frame::data(Piece {
            octets: octets.into(),
            _asked: asked,
        }))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
