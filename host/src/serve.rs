//! The life of a query.
//!
//! A listener takes a batch of messages from its socket and hands each one in:
//!
//! 1. [`Worker::admit`] reads the message ([`dns::query`](crate::dns::query)) and finds the zone that owns
//!    the name ([`zones`]). What may not be asked ([`gate`]), is malformed, special or nobody's is answered here.
//! 2. [`Worker::run`] sends the batch through its pipelines. [`advance`](Worker::advance) runs the filters
//!    on the way in: those that care are asked, all queries of the batch at once, unless a verdict is
//!    remembered.
//! 3. A query that comes to `cache` is looked up. A fresh entry is the response: nothing so far has
//!    allocated, waited or made a task.
//! 4. Whatever needs an upstream becomes a task of the worker ([`miss`], [`upstream`]); the batch does not wait.
//! 5. [`outward`](Worker::outward) takes responses back through the same filters, bottom to top.
//! 6. The reply is written into the listener's buffer, patched on the way
//!    ([`dns::reply`](crate::dns::reply)).
//! 7. When the answers have left, [`Worker::tell`] hands filters with an events phase what happened,
//!    many at a time.
//!
//! A [`Request`] is a query on its way in, a [`Response`] what comes back.

pub mod counters;
mod deferred;
mod events;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod generation;
mod interfaces;
mod inward;
mod miss;
mod outward;
mod rates;
mod refusals;
mod request;
mod response;
mod steps;
pub mod trace;
mod upstream;
mod zones;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::admission::Room;
use crate::cache::{Cache, Flights, Freshness, Key, KeyFlags, KeyHasher};
use crate::config;
use crate::dns::edns::ExtendedError;
use crate::dns::query::{Query, Unanswerable};
use crate::dns::reply::{self, Ttl};
use crate::dns::special;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, Origin, rcode, rtype};
use crate::filter::{self, Decision, Verdict};
use crate::source::forward::Quota;

use counters::{CounterTable, add};
use deferred::Deferred;
pub use deferred::WAITING_OCTETS;
use events::Sent;
use gate::Ledger;
use generation::{Live, Pipeline, Stage};
pub use request::Client;
use request::Request;
use response::Response;
use trace::{Direction, Trace, TraceEvent, TraceSink};
use upstream::Fetched;
use zones::ZoneMatch;

/// What all workers share.
pub struct Shared {
    /// Answers of all zones.
    pub cache: Cache,
    /// Questions that are being asked upstream.
    flights: Arc<Flights<Fetched>>,
    /// Clients' queries that wait for something.
    pub waiting: Arc<Room>,
    /// Sockets to upstreams.
    pub upstream_sockets: Arc<Quota>,
    /// Hashes questions for the cache and for remembered verdicts.
    hasher: KeyHasher,
    /// Every worker's counters.
    pub counters: CounterTable,
    /// How often clients asked lately.
    ledger: Ledger,
    /// The listeners there have ever been; a listener's index is its place here.
    servers: parking_lot::Mutex<Vec<Arc<str>>>,
    start: Instant,
    /// Who wants to be told of every query.
    trace_sink: Option<TraceSink>,
}

impl Shared {
    /// Nothing cached, nothing counted; `cache_memory` in bytes. A sink is told of every query, which
    /// costs more than answering it: there is one for the tools only.
    pub fn new(cache_memory: usize, trace_sink: Option<TraceSink>) -> Arc<Shared> {
        Arc::new(Shared {
            cache: Cache::new(cache_memory),
            flights: Flights::new(),
            waiting: Room::new(config::WAITING_QUERIES),
            upstream_sockets: Quota::new(usize::MAX),
            hasher: KeyHasher::new(),
            counters: CounterTable::default(),
            ledger: Ledger::default(),
            servers: Default::default(),
            start: Instant::now(),
            trace_sink,
        })
    }

    /// The index that stands for a listener's address in [`Client::server`].
    pub fn server(&self, address: SocketAddr) -> u16 {
        let label = address.to_string();
        let mut servers = self.servers.lock();
        let found = servers.iter().position(|known| **known == *label);
        let at = found.unwrap_or_else(|| {
            servers.push(label.into());
            servers.len() - 1
        });
        at as u16
    }
}

/// One worker: a thread's generation, instances and buffers.
pub struct Worker {
    shared: Arc<Shared>,
    live: RefCell<Rc<Live>>,
    scratch: RefCell<Scratch>,
    reply: RefCell<ReplyBuffer>,
    /// Queries that wait for an upstream.
    deferred: Deferred,
    /// Events that no filter has heard of yet.
    events_waiting: Cell<usize>,
    /// The first of them came.
    event: tokio::sync::Notify,
}

/// What a batch needs while it runs; kept for the next one.
#[derive(Default)]
struct Scratch {
    /// For each filter, which queries of the batch it is to be asked about.
    waiting: Vec<Vec<usize>>,
    queries: filter::Batch<filter::Query>,
    verdicts: Vec<filter::QueryOutcome>,
    responses: filter::Batch<filter::Response>,
    response_verdicts: Vec<filter::ResponseOutcome>,
}

/// Room for the largest reply, for those that come late.
type ReplyBuffer = Box<[u8; MESSAGE_MAXIMUM]>;

/// What time it is.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Microseconds of the worker's clock.
    now: u64,
    /// Unix time in milliseconds.
    unix_ms: u64,
}

/// Messages taken from a socket at once, on their way.
#[derive(Default)]
pub struct Batch {
    requests: Vec<Request>,
    steps: Vec<Step>,
    responses: Vec<Option<Response>>,
    /// How many of the requests are in use.
    length: usize,
}

/// What has become of a query on its way in.
#[derive(Clone)]
enum Step {
    /// It goes on from its stage.
    Passing,
    /// Its stage is no filter: the cache, a source, or the end.
    Arrived,
    /// A filter decided.
    Decided(Arc<Verdict>),
    /// A filter failed, and the configuration says what the client gets.
    Failed(u16),
    /// It has left.
    Gone,
}

/// What [`Worker::admit`] made of a message.
pub enum Admission {
    /// It travels with the batch.
    Travelling,
    /// The reply is in the buffer, this many octets.
    Answered(usize),
    /// There is no reply.
    Silence,
}

/// Where a batch's replies go. `index` counts the queries that travel, in the order they were admitted.
pub trait Replies {
    /// Has `write` fill a buffer of at least the client's `limit` octets, and sends as many as it returns.
    fn reply(&mut self, index: usize, write: impl FnOnce(&mut [u8]) -> usize);
    /// The way back for a reply that will come after the batch.
    fn defer(&mut self, index: usize) -> Box<dyn DeferredReply>;
}

/// The way back to a client whose query outlives its batch.
pub trait DeferredReply {
    /// Sends the reply. Dropped unsent: the client gets none.
    fn send(self: Box<Self>, message: &[u8]);
}

impl Worker {
    /// A worker that begins with this generation.
    pub fn new(shared: Arc<Shared>, live: Live) -> Rc<Worker> {
        Rc::new(Worker {
            shared,
            live: RefCell::new(Rc::new(live)),
            scratch: RefCell::default(),
            reply: RefCell::new(Box::new([0; MESSAGE_MAXIMUM])),
            deferred: Deferred::default(),
            events_waiting: Cell::new(0),
            event: tokio::sync::Notify::new(),
        })
    }

    /// Goes on with another generation. What is under way ends on the one it began with.
    pub fn swap(&self, live: Live) {
        let old = self.live.replace(Rc::new(live));
        self.tell_all(&old);
    }

    /// The generation that the next batch begins with.
    pub fn live(&self) -> Rc<Live> {
        Rc::clone(&self.live.borrow())
    }

    /// Microseconds since the process started.
    pub fn now(&self) -> u64 {
        self.shared.start.elapsed().as_micros() as u64
    }

    /// Both clocks, read for a whole batch.
    fn clocks(&self) -> Clocks {
        Clocks {
            now: self.now(),
            unix_ms: unix_milliseconds(),
        }
    }

    /// Takes one message into the batch, or writes the reply to `out` if that needs no pipeline.
    pub fn admit(&self, batch: &mut Batch, message: &[u8], client: Client, out: &mut [u8]) -> Admission {
        let live = self.live.borrow();
        if let Some(gate) = live.gate(client.server)
            && let Some(refusal) = gate.refusal(&self.shared.ledger, &client)
        {
            return self.turn_away(&live, batch, message, client, refusal, out);
        }
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(Unanswerable::Silence) => return Admission::Silence,
            Err(error @ Unanswerable::Error { rcode, .. }) => {
                let counters = live.counters_outside(client.server);
                counters.request(client.transport, client.address.ip(), 0);
                counters.response(rcode, self.now().saturating_sub(client.received));
                return Admission::Answered(reply::write_unanswerable(out, message, error));
            }
        };
        let request = batch.next(client);
        request.admit(&query, client);
        if self.shared.trace_sink.is_some() {
            request.trace = Some(Trace::begin());
        }
        request.hash = self
            .shared
            .hasher
            .question(request.name.as_bytes(), request.qtype, request.qclass);
        let refusal = match live.generation.zones.find(request.name.as_bytes(), query.qtype) {
            // Zone transfers are between authorities; a cache has nothing to transfer.
            _ if matches!(query.qtype, rtype::AXFR | rtype::IXFR | rtype::TKEY) => {
                Response::error(rcode::REFUSED, ExtendedError::Other)
            }
            Some(ZoneMatch::Pipeline { pipeline, .. })
                if query.qtype == rtype::HINFO && live.is_own_probe(pipeline, request.name.as_bytes()) =>
            {
                Response::error(rcode::REFUSED, ExtendedError::Other)
            }
            Some(ZoneMatch::Pipeline { pipeline, zone }) => {
                (request.pipeline, request.zone) = (pipeline, zone);
                if let Some(gate) = &live.generation.pipelines[pipeline].gate
                    && let Some(refusal) = gate.refusal(&self.shared.ledger, &client)
                {
                    return self.refuse(live.counters(request), request, refusal, out);
                }
                live.counters(request)
                    .request(client.transport, client.address.ip(), query.qtype);
                request.trace(|| {
                    let zone = &live.generation.pipelines[pipeline].zones[zone];
                    let did = format!("{zone} owns the name");
                    TraceEvent::new("zone", Direction::In, trace::question(request), did)
                });
                batch.length += 1;
                return Admission::Travelling;
            }
            Some(ZoneMatch::Special(special)) if query.qclass == CLASS_IN => {
                local_answer(special.answer(&request.question))
            }
            _ => Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative),
        };
        let counters = live.counters_outside(client.server);
        counters.request(client.transport, client.address.ip(), query.qtype);
        counters.response(refusal.rcode, self.now().saturating_sub(client.received));
        request.trace(|| {
            let did = "no zone is asked: the name is nobody's, or special".into();
            TraceEvent::new("zone", Direction::In, trace::question(request), did)
        });
        let head = request.reply_head(refusal.error);
        let size = refusal.write(out, &head);
        self.finish_trace(request, Some(&refusal), size);
        Admission::Answered(size)
    }

    /// Sends the admitted queries through their pipelines and empties the batch. Replies that need no
    /// upstream are written before this returns.
    pub fn run(self: &Rc<Self>, batch: &mut Batch, replies: &mut impl Replies) {
        let live = self.live();
        let length = std::mem::take(&mut batch.length);
        let requests = &mut batch.requests[..length];
        let steps = &mut batch.steps[..length];
        let responses = &mut batch.responses[..length];
        steps.fill(Step::Passing);
        self.advance(&live, requests, steps);

        for (index, request) in requests.iter_mut().enumerate() {
            let step = std::mem::replace(&mut steps[index], Step::Gone);
            // What is fresh when a query comes is fresh enough to answer it: no need for another look at the clock.
            let now_ms = request.client.received / 1000;
            responses[index] = match self.immediate(&live, request, &step, now_ms) {
                Immediate::Response(response) => Some(response),
                Immediate::Drop => {
                    self.hear(&live, request, None, Sent::default(), self.clocks());
                    None
                }
                Immediate::Deferred => self.defer(&live, request, step, || replies.defer(index)),
            };
        }
        self.outward(&live, requests, responses, 0);

        let clocks = self.clocks();
        for (index, (request, response)) in requests.iter().zip(responses).enumerate() {
            if let Some(response) = response.take() {
                let head = request.reply_head(response.error);
                let mut sent = Sent::default();
                replies.reply(index, |out| {
                    let size = response.write(out, &head);
                    sent = Sent::of(out, size);
                    size
                });
                self.count_response(&live, request, &response, sent, clocks);
            }
        }
    }

    /// What a query that came as far as it could gets without waiting.
    fn immediate(self: &Rc<Self>, live: &Rc<Live>, request: &Request, step: &Step, now_ms: u64) -> Immediate {
        match step {
            Step::Decided(verdict) => decided(request, verdict),
            // That a filter failed says nothing about the name: not to be kept (RFC 9520 section 2).
            Step::Failed(rcode) => Immediate::Response(Response {
                store: false,
                ..Response::error(*rcode, ExtendedError::Other)
            }),
            Step::Passing | Step::Arrived | Step::Gone => {
                let pipeline = &live.generation.pipelines[request.pipeline];
                match pipeline.stages.get(request.stage) {
                    // The class matters only now: a filter may have rewritten it.
                    Some(Stage::Cache(_) | Stage::Forward(_)) if request.qclass != CLASS_IN => {
                        Immediate::Response(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative))
                    }
                    // RFC 8482: nobody needs all that there is of a name but whoever sends it to somebody else.
                    Some(Stage::Cache(_) | Stage::Forward(_))
                        if request.qtype == rtype::ANY && !pipeline.asks_any =>
                    {
                        Immediate::Response(local_answer(special::any(&request.question)))
                    }
                    Some(Stage::Cache(cache)) => match self.look_up(live, request, cache, now_ms) {
                        Some(response) => {
                            let hit = || format!("hit: {}", trace::response(&response));
                            request.trace(|| trace::cache(request, hit()));
                            Immediate::Response(response)
                        }
                        None => {
                            request.trace(|| trace::cache(request, trace::miss(request).into()));
                            Immediate::Deferred
                        }
                    },
                    Some(_) => Immediate::Deferred,
                    None => {
                        request.trace(|| {
                            let did = "refused: no stage is left that could answer".into();
                            TraceEvent::new("end", Direction::In, trace::question(request), did)
                        });
                        Immediate::Response(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative))
                    }
                }
            }
        }
    }

    /// The response that the cache holds for a query, if it is fresh.
    // The way of every hit, and short; left to itself, the compiler makes a call of it.
    #[inline(always)]
    fn look_up(
        self: &Rc<Self>,
        live: &Rc<Live>,
        request: &Request,
        cache: &config::Cache,
        now_ms: u64,
    ) -> Option<Response> {
        if request.signed.is_some() || !request.may_store() {
            return None;
        }
        let key = self.key(&live.generation.pipelines[request.pipeline], request);
        let entry = self.shared.cache.lookup(&key, now_ms)?;
        let Freshness::Fresh { age_secs } = entry.lifetime().freshness(now_ms) else {
            return None;
        };
        let counters = live.counters(request);
        add(&counters.hits[entry.kind().index()], 1);
        if let Some(prefetch) = cache.prefetch
            && entry.prefetch_due(&prefetch, now_ms)
            && let Some(claim) = entry.claim_refresh(now_ms)
        {
            add(&counters.prefetches, 1);
            self.spawn_refresh(live, request, claim);
        }
        Some(Response {
            rcode: u16::from(entry.rcode()),
            ttl: Ttl::Aged {
                by: age_secs,
                min: 0,
                max: u32::MAX,
            },
            origin: Origin::Cache,
            authoritative: false,
            error: entry.error(),
            content: response::Content::Entry(entry),
            store: true,
            stale: true,
        })
    }

    /// What the cache knows the query by.
    fn key<'a>(&self, pipeline: &Pipeline, request: &'a Request) -> Key<'a> {
        let flags = KeyFlags::new(request.dnssec_ok(), request.checking_disabled());
        Key::new(
            request.hash,
            request.name.as_bytes(),
            request.qtype,
            request.qclass,
            flags,
            pipeline.partition,
        )
    }

    /// When a call into a filter begins, if anybody wants to know.
    #[inline]
    fn begun(&self) -> Option<Instant> {
        self.shared.trace_sink.as_ref().map(|_| Instant::now())
    }

    /// Tells the sink, if there is one, what became of a query; no response: it was dropped.
    #[inline]
    fn finish_trace(&self, request: &Request, response: Option<&Response>, size: usize) {
        if let (Some(trace_sink), Some(trace)) = (&self.shared.trace_sink, &request.trace) {
            trace::finish(trace, request, response, size, |told| trace_sink(told));
        }
    }

    /// Counts a reply that was written, and notes it for the filters that want to hear of it.
    fn count_response(
        &self,
        live: &Live,
        request: &Request,
        response: &Response,
        sent: Sent,
        clocks: Clocks,
    ) {
        let microseconds = clocks.now.saturating_sub(request.client.received);
        let counters = live.counters(request);
        counters.response(response.rcode, microseconds);
        self.hear(live, request, Some(response), sent, clocks);
    }
}

/// What a query that came as far as it could gets.
enum Immediate {
    Response(Response),
    Drop,
    /// Only an upstream, or another name's answer, can tell.
    Deferred,
}

fn decided(request: &Request, verdict: &Verdict) -> Immediate {
    let mut response = match &verdict.decision {
        Decision::Answer(records) => Response::from_filter(&request.question, records),
        Decision::Refuse(rcode) => Response {
            origin: Origin::Filter,
            ..Response::error(*rcode, ExtendedError::Blocked)
        },
        Decision::Drop => return Immediate::Drop,
        Decision::Alias(_) | Decision::Pass | Decision::Rewrite(_) => return Immediate::Deferred,
    };
    if let Some(edit) = &verdict.edit {
        response.edit(edit);
    }
    Immediate::Response(response)
}

/// The proxy's own answer in these octets.
fn local_answer(message: Vec<u8>) -> Response {
    match crate::dns::records::Answer::read(message) {
        Ok(answer) => Response::answer(Arc::new(answer), Origin::Local, false),
        Err(_) => Response::error(rcode::SERVFAIL, ExtendedError::Other),
    }
}

fn unix_milliseconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

impl Batch {
    /// The place for the next query; it counts only once `length` is raised.
    // As `look_up`.
    #[inline(always)]
    fn next(&mut self, client: Client) -> &mut Request {
        if self.requests.len() == self.length {
            self.requests.push(Request::new(client));
            self.steps.push(Step::Gone);
            self.responses.push(None);
        }
        &mut self.requests[self.length]
    }

    /// Queries admitted so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether none was admitted.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}
