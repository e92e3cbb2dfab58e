//! What all requests of a connection have in common where each has a stream of its own; and one request of DNS over HTTPS, and
//! its response (RFC 8484 section 4).

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::bounds::CloseReason;
use super::client_connections::ClientConnection;
use super::service::Service;
use crate::dns::padding::{REPLY_BLOCK, pad};
use crate::dns::{MESSAGE_MAXIMUM, QUERY_MAXIMUM, Transport, records};
use crate::serve::{Admission, Batch, Client, DeferredReply, Replies, Worker};

/// Where questions are asked; RFC 8484 leaves it to the server, and all use this.
const PATH: &str = "/dns-query";

/// The type of what is sent and received (RFC 8484 section 6).
const MEDIA_TYPE: &str = "application/dns-message";

/// Octets of a request's header, at most: a query in its longest form with what browsers say about themselves.
pub const HEAD_OCTETS: usize = 16 << 10;

/// Octets that a request counts as while it is under way, beside its reply.
const REQUEST_OCTETS: usize = HEAD_OCTETS;

/// Octets of a reply that are given away at a time: more would be kept for clients that do not take them.
pub const PIECE: usize = 1 << 10;

thread_local! {
    /// What a worker's requests use one after the other: none keeps anything here while it waits.
    static SCRATCH: RefCell<(Batch, Box<[u8]>)> = RefCell::new((Batch::default(), vec![0; MESSAGE_MAXIMUM].into()));
}

/// What all requests of a connection have in common.
pub struct Exchange {
    worker: Rc<Worker>,
    client: Client,
    /// Holds its room.
    pub connection: Arc<ClientConnection>,
    /// Requests that wait for an answer.
    asking: Cell<usize>,
    /// Replies that the client has not taken.
    sending: Cell<usize>,
    /// When something last happened.
    quiet: Cell<Instant>,
}

impl Exchange {
    /// Nothing is under way.
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
            asking: Cell::new(0),
            sending: Cell::new(0),
            quiet: Cell::new(Instant::now()),
        }
    }

    /// When the connection ends if nothing happens, and why then; `idle` is how long it may be silent, and `write` how long its
    /// client may take nothing of what it is sent.
    pub fn due(&self, idle: Duration, write: Duration) -> (Instant, Option<CloseReason>) {
        match (self.sending.get(), self.asking.get()) {
            (0, 0) => (self.quiet.get() + idle, Some(CloseReason::Idle)),
            // A client that waits for us is not idle.
            (0, _) => (Instant::now() + idle, None),
            _ => (self.quiet.get() + write, Some(CloseReason::Write)),
        }
    }

    /// Answers a request. Whatever is wrong with it is told by its status (RFC 8484 section 4.2.1).
    pub async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Result<Response<Reply>, Infallible> {
        let held = Held::new(&self, REQUEST_OCTETS);
        let answered = match self.message_of(request).await {
            Ok(message) => self.ask(&message).await.map_err(|unanswered| match unanswered {
                Unanswered::Malformed => StatusCode::BAD_REQUEST,
                Unanswered::Dropped => StatusCode::SERVICE_UNAVAILABLE,
            }),
            Err(status) => Err(status),
        };
        let mut response = Response::new(Reply::default());
        match answered {
            Ok(message) => {
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
                // RFC 8484 section 5.1: no cache on the way may keep it for longer than its records.
                let fresh = format!("max-age={}", records::least_ttl(&message).unwrap_or(0));
                headers.extend(HeaderValue::try_from(fresh).map(|fresh| (CACHE_CONTROL, fresh)));
                *response.body_mut() = Reply {
                    held: Some(held.becomes_reply(message.len())),
                    rest: message.into(),
                };
            }
            Err(status) => {
                if status == StatusCode::METHOD_NOT_ALLOWED {
                    let methods = HeaderValue::from_static("GET, POST");
                    response.headers_mut().insert(ALLOW, methods);
                }
                *response.status_mut() = status;
            }
        }
        Ok(response)
    }

    /// The query in a request (RFC 8484 section 4.1).
    async fn message_of(&self, request: Request<Incoming>) -> Result<Vec<u8>, StatusCode> {
        let (request, body) = request.into_parts();
        // Also where it is of no interest: some clients take a response for none that comes before they have sent it.
        let body = timeout(self.connection.bounds().read(), whole(body)).await;
        if request.uri.path() != PATH {
            return Err(StatusCode::NOT_FOUND);
        }
        match request.method {
            Method::GET => {
                let parameters = request.uri.query().unwrap_or_default().split('&');
                let query = parameters
                    .filter_map(|parameter| parameter.strip_prefix("dns="))
                    .next();
                // Some pad it nevertheless.
                let query = query.map(|query| query.trim_end_matches('='));
                let query = query.and_then(|query| URL_SAFE_NO_PAD.decode(query).ok());
                query.ok_or(StatusCode::BAD_REQUEST)
            }
            Method::POST => {
                let media_type = request.headers.get(CONTENT_TYPE);
                if media_type.is_none_or(|media_type| media_type != MEDIA_TYPE) {
                    return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
                }
                body.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
            }
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// What a query is answered with.
    pub async fn ask(&self, message: &[u8]) -> Result<Vec<u8>, Unanswered> {
        let client = Client {
            received: self.worker.now(),
            ..self.client
        };
        self.connection.note(client.received);
        let mut reply = SCRATCH.with_borrow_mut(|(batch, out)| {
            let mut one = One {
                out,
                reply: None,
                later: None,
            };
            match self.worker.admit(batch, message, client, one.out) {
                Admission::Travelling => batch.set_server_name(self.connection.server_name()),
                Admission::Answered(length) => one.reply = Some(one.out[..length].to_vec()),
                // Nor is there one where each request has one reply.
                Admission::Transfer(_) | Admission::Silence => return Err(Unanswered::Malformed),
            }
            self.worker.run(batch, &mut one);
            Ok((one.reply, one.later))
        });
        self.worker.tell_if_many();
        let mut message = match &mut reply {
            Err(unanswered) => return Err(*unanswered),
            Ok((Some(message), _)) => std::mem::take(message),
            Ok((None, None)) => return Err(Unanswered::Dropped),
            Ok((None, Some(later))) => {
                self.connection.owe(true);
                let message = later.await;
                self.connection.owe(self.asking.get() > 1);
                message.map_err(|_| Unanswered::Dropped)?
            }
        };
        let padding = pad(&mut message, REPLY_BLOCK);
        message.extend(padding);
        Ok(message)
    }

    fn happened(&self) {
        self.quiet.set(Instant::now());
    }
}

/// Why a message has no answer.
#[derive(Debug, Clone, Copy)]
pub enum Unanswered {
    /// It is no query.
    Malformed,
    /// It was dropped, by a filter or for want of room.
    Dropped,
}

/// A body that has the size of a query; more of it is taken, within reason, and forgotten.
async fn whole(mut body: Incoming) -> Result<Vec<u8>, StatusCode> {
    let (mut message, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data();
        let data = data.unwrap_or_default();
        length += data.len();
        if length > MESSAGE_MAXIMUM {
            break;
        }
        if length <= QUERY_MAXIMUM {
            message.extend_from_slice(&data);
        }
    }
    match length <= QUERY_MAXIMUM {
        true => Ok(message),
        false => Err(StatusCode::PAYLOAD_TOO_LARGE),
    }
}

/// The one reply of a batch of one.
struct One<'s> {
    out: &'s mut [u8],
    reply: Option<Vec<u8>>,
    later: Option<oneshot::Receiver<Vec<u8>>>,
}

impl Replies for One<'_> {
    fn reply(&mut self, _: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let length = write(self.out);
        self.reply = Some(self.out[..length].to_vec());
    }

    fn defer(&mut self, _: usize) -> Box<dyn DeferredReply> {
        let (sender, later) = oneshot::channel();
        self.later = Some(later);
        Box::new(Later(sender))
    }
}

/// The way back for a reply that comes later.
struct Later(oneshot::Sender<Vec<u8>>);

impl DeferredReply for Later {
    fn send(self: Box<Self>, message: &[u8]) {
        // An error means that the client has gone.
        let _ = self.0.send(message.to_vec());
    }
}

/// What a request holds while it is under way.
pub struct Held {
    exchange: Rc<Exchange>,
    octets: usize,
    /// Whether its reply is there, and waits for the client.
    replied: bool,
}

impl Held {
    /// So many octets.
    pub fn new(exchange: &Rc<Exchange>, octets: usize) -> Held {
        exchange.asking.set(exchange.asking.get() + 1);
        exchange.happened();
        exchange.connection.lend(octets);
        Held {
            exchange: Rc::clone(exchange),
            octets,
            replied: false,
        }
    }

    /// It has a reply of so many octets, which the client has to take.
    pub fn becomes_reply(mut self, octets: usize) -> Held {
        let exchange = &self.exchange;
        exchange.connection.lend(octets);
        self.octets += octets;
        exchange.asking.set(exchange.asking.get() - 1);
        exchange.sending.set(exchange.sending.get() + 1);
        exchange.happened();
        self.replied = true;
        self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let exchange = &self.exchange;
        let count = if self.replied {
            &exchange.sending
        } else {
            &exchange.asking
        };
        count.set(count.get() - 1);
        exchange.happened();
        exchange.connection.give_back(self.octets);
    }
}

/// A reply that the client takes piece by piece.
#[derive(Default)]
pub struct Reply {
    rest: Bytes,
    held: Option<Held>,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(held) = &self.held {
            held.exchange.happened();
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
