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
//! A [`Transit`] is a query on its way in, a [`Response`] what comes back.

pub mod counters;
mod events;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod generation;
mod interfaces;
mod inward;
mod late;
mod miss;
mod outward;
mod rates;
mod refusals;
mod response;
mod steps;
pub mod story;
mod transit;
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
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, rcode, rtype};
use crate::filter::{self, Decision, Verdict};

use counters::{CounterTable, add};
use events::Sent;
use gate::Ledger;
use generation::{Live, Pipeline, Stage};
use late::Late;
pub use late::WAITING_OCTETS;
use response::Response;
use story::{Audience, Moment, Story, Way};
pub use transit::Arrival;
use transit::Transit;
use upstream::Fetched;
use zones::Owner;

/// What all workers share.
pub struct Shared {
    /// Answers of all zones.
    pub cache: Cache,
    /// Questions that are being asked upstream.
    flights: Arc<Flights<Fetched>>,
    /// Clients' queries that wait for something.
    pub waiting: Arc<Room>,
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
    audience: Option<Audience>,
}

impl Shared {
    /// Nothing cached, nothing counted; `cache_memory` in bytes. An audience is told of every query, which
    /// costs more than answering it: there is one for the tools only.
    pub fn new(cache_memory: usize, audience: Option<Audience>) -> Arc<Shared> {
        Arc::new(Shared {
            cache: Cache::new(cache_memory),
            flights: Flights::new(),
            waiting: Room::new(config::WAITING_QUERIES),
            hasher: KeyHasher::new(),
            counters: CounterTable::default(),
            ledger: Ledger::default(),
            servers: Default::default(),
            start: Instant::now(),
            audience,
        })
    }

    /// The index that stands for a listener's address in [`Arrival::server`].
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
    late: Late,
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
    transits: Vec<Transit>,
    steps: Vec<Step>,
    responses: Vec<Option<Response>>,
    /// How many of the transits are in use.
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
    /// Has `write` fill a buffer of at least the arrival's `limit` octets, and sends as many as it returns.
    fn reply(&mut self, index: usize, write: impl FnOnce(&mut [u8]) -> usize);
    /// The way back for a reply that will come after the batch.
    fn later(&mut self, index: usize) -> Box<dyn LateReply>;
}

/// The way back to a client whose query outlives its batch.
pub trait LateReply {
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
            late: Late::default(),
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
    pub fn admit(&self, batch: &mut Batch, message: &[u8], arrival: Arrival, out: &mut [u8]) -> Admission {
        let live = self.live.borrow();
        if let Some(gate) = live.gate(arrival.server)
            && let Some(refusal) = gate.refusal(&self.shared.ledger, &arrival)
        {
            return self.turn_away(&live, batch, message, arrival, refusal, out);
        }
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(Unanswerable::Silence) => return Admission::Silence,
            Err(error @ Unanswerable::Error { rcode, .. }) => {
                let counters = live.counters_outside(arrival.server);
                counters.request(arrival.transport, arrival.client.ip(), 0);
                counters.response(rcode, self.now().saturating_sub(arrival.received));
                return Admission::Answered(reply::write_unanswerable(out, message, error));
            }
        };
        let transit = batch.next(arrival);
        transit.admit(&query, arrival);
        if self.shared.audience.is_some() {
            transit.story = Some(Story::begin());
        }
        transit.hash = self
            .shared
            .hasher
            .question(transit.name.as_bytes(), transit.qtype, transit.qclass);
        let refusal = match live.generation.zones.find(transit.name.as_bytes(), query.qtype) {
            // Zone transfers are between authorities; a cache has nothing to transfer.
            _ if matches!(query.qtype, rtype::AXFR | rtype::IXFR | rtype::TKEY) => {
                Response::error(rcode::REFUSED, ExtendedError::Other)
            }
            Some(Owner::Pipeline { pipeline, .. })
                if query.qtype == rtype::HINFO && live.is_own_probe(pipeline, transit.name.as_bytes()) =>
            {
                Response::error(rcode::REFUSED, ExtendedError::Other)
            }
            Some(Owner::Pipeline { pipeline, zone }) => {
                (transit.pipeline, transit.zone) = (pipeline, zone);
                if let Some(gate) = &live.generation.pipelines[pipeline].gate
                    && let Some(refusal) = gate.refusal(&self.shared.ledger, &arrival)
                {
                    return self.refuse(live.counters(transit), transit, refusal, out);
                }
                live.counters(transit)
                    .request(arrival.transport, arrival.client.ip(), query.qtype);
                transit.tell(|| {
                    let zone = &live.generation.pipelines[pipeline].zones[zone];
                    let did = format!("{zone} owns the name");
                    Moment::new("zone", Way::In, story::question(transit), did)
                });
                batch.length += 1;
                return Admission::Travelling;
            }
            Some(Owner::Special(special)) if query.qclass == CLASS_IN => {
                local_answer(special.answer(&transit.question))
            }
            _ => Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative),
        };
        let counters = live.counters_outside(arrival.server);
        counters.request(arrival.transport, arrival.client.ip(), query.qtype);
        counters.response(refusal.rcode, self.now().saturating_sub(arrival.received));
        transit.tell(|| {
            let did = "no zone is asked: the name is nobody's, or special".into();
            Moment::new("zone", Way::In, story::question(transit), did)
        });
        let client = transit.client(refusal.error);
        let size = refusal.write(out, &client);
        self.tell_story(transit, Some(&refusal), size);
        Admission::Answered(size)
    }

    /// Sends the admitted queries through their pipelines and empties the batch. Replies that need no
    /// upstream are written before this returns.
    pub fn run(self: &Rc<Self>, batch: &mut Batch, replies: &mut impl Replies) {
        let live = self.live();
        let length = std::mem::take(&mut batch.length);
        let transits = &mut batch.transits[..length];
        let steps = &mut batch.steps[..length];
        let responses = &mut batch.responses[..length];
        steps.fill(Step::Passing);
        self.advance(&live, transits, steps);

        for (index, transit) in transits.iter_mut().enumerate() {
            let step = std::mem::replace(&mut steps[index], Step::Gone);
            // What is fresh when a query comes is fresh enough to answer it: no need for another look at the clock.
            let now_ms = transit.arrival.received / 1000;
            responses[index] = match self.at_once(&live, transit, &step, now_ms) {
                AtOnce::Response(response) => Some(response),
                AtOnce::Drop => {
                    self.hear(&live, transit, None, Sent::default(), self.clocks());
                    None
                }
                AtOnce::Later => self.spawn_late(&live, transit, step, || replies.later(index)),
            };
        }
        self.outward(&live, transits, responses, 0);

        let clocks = self.clocks();
        for (index, (transit, response)) in transits.iter().zip(responses).enumerate() {
            if let Some(response) = response.take() {
                let client = transit.client(response.error);
                let mut sent = Sent::default();
                replies.reply(index, |out| {
                    let size = response.write(out, &client);
                    sent = Sent::of(out, size);
                    size
                });
                self.count_response(&live, transit, &response, sent, clocks);
            }
        }
    }

    /// What a query that came as far as it could gets without waiting.
    fn at_once(self: &Rc<Self>, live: &Rc<Live>, transit: &Transit, step: &Step, now_ms: u64) -> AtOnce {
        match step {
            Step::Decided(verdict) => decided(transit, verdict),
            // That a filter failed says nothing about the name: not to be kept (RFC 9520 section 2).
            Step::Failed(rcode) => AtOnce::Response(Response {
                store: false,
                ..Response::error(*rcode, ExtendedError::Other)
            }),
            Step::Passing | Step::Arrived | Step::Gone => {
                let pipeline = &live.generation.pipelines[transit.pipeline];
                match pipeline.stages.get(transit.stage) {
                    // The class matters only now: a filter may have rewritten it.
                    Some(Stage::Cache(_) | Stage::Forward(_)) if transit.qclass != CLASS_IN => {
                        AtOnce::Response(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative))
                    }
                    // RFC 8482: nobody needs all that there is of a name but whoever sends it to somebody else.
                    Some(Stage::Cache(_) | Stage::Forward(_))
                        if transit.qtype == rtype::ANY && !pipeline.asks_any =>
                    {
                        AtOnce::Response(local_answer(special::any(&transit.question)))
                    }
                    Some(Stage::Cache(cache)) => match self.look_up(live, transit, cache, now_ms) {
                        Some(response) => {
                            let hit = || format!("hit: {}", story::response(&response));
                            transit.tell(|| story::cache(transit, hit()));
                            AtOnce::Response(response)
                        }
                        None => {
                            transit.tell(|| story::cache(transit, story::miss(transit).into()));
                            AtOnce::Later
                        }
                    },
                    Some(_) => AtOnce::Later,
                    None => {
                        transit.tell(|| {
                            let did = "refused: no stage is left that could answer".into();
                            Moment::new("end", Way::In, story::question(transit), did)
                        });
                        AtOnce::Response(Response::error(rcode::REFUSED, ExtendedError::NotAuthoritative))
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
        transit: &Transit,
        cache: &config::Cache,
        now_ms: u64,
    ) -> Option<Response> {
        if transit.signed.is_some() || !transit.may_store() {
            return None;
        }
        let key = self.key(&live.generation.pipelines[transit.pipeline], transit);
        let entry = self.shared.cache.lookup(&key, now_ms)?;
        let Freshness::Fresh { age_secs } = entry.lifetime().freshness(now_ms) else {
            return None;
        };
        let counters = live.counters(transit);
        add(&counters.hits[entry.kind().index()], 1);
        if let Some(prefetch) = cache.prefetch
            && entry.prefetch_due(&prefetch, now_ms)
            && let Some(claim) = entry.claim_refresh(now_ms)
        {
            add(&counters.prefetches, 1);
            self.spawn_refresh(live, transit, claim);
        }
        Some(Response {
            rcode: u16::from(entry.rcode()),
            ttl: Ttl::Aged {
                by: age_secs,
                min: 0,
                max: u32::MAX,
            },
            source: filter::Source::Cache,
            authoritative: false,
            error: entry.error(),
            content: response::Content::Entry(entry),
            store: true,
            stale: true,
        })
    }

    /// What the cache knows the query by.
    fn key<'a>(&self, pipeline: &Pipeline, transit: &'a Transit) -> Key<'a> {
        let flags = KeyFlags::new(transit.dnssec_ok(), transit.checking_disabled());
        Key::new(
            transit.hash,
            transit.name.as_bytes(),
            transit.qtype,
            transit.qclass,
            flags,
            pipeline.view,
        )
    }

    /// When a call into a filter begins, if anybody wants to know.
    #[inline]
    fn begun(&self) -> Option<Instant> {
        self.shared.audience.as_ref().map(|_| Instant::now())
    }

    /// Tells the audience, if there is one, what became of a query; no response: it was dropped.
    #[inline]
    fn tell_story(&self, transit: &Transit, response: Option<&Response>, size: usize) {
        if let (Some(audience), Some(story)) = (&self.shared.audience, &transit.story) {
            story::told(story, transit, response, size, |told| audience(told));
        }
    }

    /// Counts a reply that was written, and notes it for the filters that want to hear of it.
    fn count_response(
        &self,
        live: &Live,
        transit: &Transit,
        response: &Response,
        sent: Sent,
        clocks: Clocks,
    ) {
        let microseconds = clocks.now.saturating_sub(transit.arrival.received);
        let counters = live.counters(transit);
        counters.response(response.rcode, microseconds);
        self.hear(live, transit, Some(response), sent, clocks);
    }
}

/// What a query that came as far as it could gets.
enum AtOnce {
    Response(Response),
    Drop,
    /// Only an upstream, or another name's answer, can tell.
    Later,
}

fn decided(transit: &Transit, verdict: &Verdict) -> AtOnce {
    let mut response = match &verdict.decision {
        Decision::Answer(records) => Response::from_filter(&transit.question, records),
        Decision::Refuse(rcode) => Response {
            source: filter::Source::Filter,
            ..Response::error(*rcode, ExtendedError::Blocked)
        },
        Decision::Drop => return AtOnce::Drop,
        Decision::Alias(_) | Decision::Pass | Decision::Rewrite(_) => return AtOnce::Later,
    };
    if let Some(edit) = &verdict.edit {
        response.edit(edit);
    }
    AtOnce::Response(response)
}

/// The proxy's own answer in these octets.
fn local_answer(message: Vec<u8>) -> Response {
    match crate::dns::records::Answer::read(message) {
        Ok(answer) => Response::answer(Arc::new(answer), filter::Source::Local, false),
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
    fn next(&mut self, arrival: Arrival) -> &mut Transit {
        if self.transits.len() == self.length {
            self.transits.push(Transit::new(arrival));
            self.steps.push(Step::Gone);
            self.responses.push(None);
        }
        &mut self.transits[self.length]
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
