//! What happens to a query, told while it happens: for `dnsweir explain` and `dnsweir dev`.
//!
//! The way of a query is told by the code that takes it along, at the places where it decides something; there
//! is no second account of it. Without a sink no trace is begun, and each of those places costs one
//! look at an absent pointer.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::cache::Kind;
use crate::dns::Transport;
use crate::dns::name::Text;
use crate::dns::records::Section;
use crate::dns::text::{class_text, record_lines, type_text};
use crate::dns::{CLASS_IN, QUESTION_TAIL, flag, rcode_text, u16_at};
use crate::filter::{self, Outcome, QueryOutcome, ResponseOutcome, Verdict};
use crate::source::forward::Failure;

use super::generation::Live;
use super::request::Request;
use super::response::Response;

/// Who is told of every query, on the thread that answered it.
pub type TraceSink = Box<dyn Fn(&TraceView<'_>) + Send + Sync>;

/// A query's trace so far.
#[derive(Debug)]
pub struct Trace {
    begun: Instant,
    events: RefCell<Vec<TraceEvent>>,
}

/// Whether the query was on its way in or its response on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The query, top to bottom.
    In,
    /// The response, bottom to top.
    Out,
}

/// One thing that happened on a query's way.
#[derive(Debug, Clone)]
pub struct TraceEvent {
    /// Which stage: `zone`, `use NAME`, `cache`, `forward`, `alias`, `end`.
    pub stage: String,
    /// On which way.
    pub direction: Direction,
    /// What it saw.
    pub saw: String,
    /// What it did about it, a line each.
    pub did: Vec<String>,
    /// How long that took, where it was measured: of a filter, the call for the whole batch.
    pub took: Option<Duration>,
    /// When it was done, from the query's arrival.
    pub at: Duration,
    /// How many aliases deep.
    pub depth: u8,
}

/// A whole trace.
#[derive(Debug)]
pub struct TraceView<'a> {
    /// Who asked.
    pub client: SocketAddr,
    /// How.
    pub transport: Transport,
    /// What: name, class and type.
    pub question: String,
    /// In order.
    pub events: &'a [TraceEvent],
    /// From arrival to response.
    pub took: Duration,
    /// What the client got; none: nothing.
    pub reply: Option<Reply>,
}

/// What a client got.
#[derive(Debug)]
pub struct Reply {
    /// The rcode.
    pub rcode: String,
    /// Where it came from.
    pub source: &'static str,
    /// The INFO-CODE of an extended error (RFC 8914).
    pub error: Option<u16>,
    /// Octets; 0: nothing was sent, since it would not fit.
    pub size: usize,
    /// The answer section, a record each.
    pub answers: Vec<String>,
}

impl Trace {
    /// Begins now.
    pub(super) fn begin() -> Rc<Trace> {
        Rc::new(Trace {
            begun: Instant::now(),
            events: RefCell::default(),
        })
    }

    pub(super) fn add(&self, depth: u8, event: TraceEvent) {
        let at = self.begun.elapsed();
        self.events.borrow_mut().push(TraceEvent { at, depth, ..event });
    }
}

impl TraceEvent {
    pub(super) fn new(stage: &str, direction: Direction, saw: String, did: String) -> TraceEvent {
        let (stage, did) = (stage.to_owned(), vec![did]);
        TraceEvent {
            stage,
            direction,
            saw,
            did,
            took: None,
            at: Duration::ZERO,
            depth: 0,
        }
    }
}

/// The trace of a query that has been answered or dropped.
pub(super) fn finish(
    trace: &Trace,
    request: &Request,
    response: Option<&Response>,
    size: usize,
    hear: impl FnOnce(&TraceView<'_>),
) {
    let reply = response.map(|response| Reply {
        rcode: rcode_text(response.rcode),
        source: response.origin.as_str(),
        error: response.error,
        size,
        answers: record_lines(&response.message(&request.question), Section::Answer),
    });
    hear(&TraceView {
        client: request.client.address,
        transport: request.client.transport,
        question: question(request),
        events: &trace.events.borrow(),
        took: trace.begun.elapsed(),
        reply,
    });
}

/// A query's question as it stands: name and type, and the class if it is not the usual one.
pub(super) fn question(request: &Request) -> String {
    let name = Text(&request.question[..request.question.len() - QUESTION_TAIL]);
    match request.qclass {
        CLASS_IN => format!("{name} {}", type_text(request.qtype)),
        other => format!("{name} {} {}", class_text(other), type_text(request.qtype)),
    }
}

/// A response in short.
pub(super) fn response(response: &Response) -> String {
    let rcode = rcode_text(response.rcode);
    match (response.answer_count(), response.lowest_ttl()) {
        (0, 0) => format!("{rcode}, no records"),
        (0, ttl) => format!("{rcode}, no answer, TTL {ttl}"),
        (1, ttl) => format!("{rcode}, 1 answer, TTL {ttl}"),
        (count, ttl) => format!("{rcode}, {count} answers, TTL {ttl}"),
    }
}

fn stage(live: &Live, filter: usize) -> String {
    format!("use {}", live.generation.filters[filter].name())
}

fn on_error(live: &Live, filter: usize) -> String {
    let policy = format!("{:?}", live.generation.config.filters[filter].on_error).to_lowercase();
    format!("failed: on-error \"{policy}\" applies")
}

pub(super) fn unasked(live: &Live, request: &Request, filter: usize) -> TraceEvent {
    let did = match live.generation.filters[filter].interest().queries {
        true => "not asked: its manifest does not cover the question",
        false => "not asked: it takes no part in queries",
    };
    TraceEvent::new(&stage(live, filter), Direction::In, question(request), did.into())
}

pub(super) fn remembered(live: &Live, request: &Request, filter: usize, verdict: &Verdict) -> TraceEvent {
    let mut did = filter::verdict_lines(verdict);
    did.push("(remembered: it was not called)".into());
    TraceEvent {
        did,
        ..TraceEvent::new(
            &stage(live, filter),
            Direction::In,
            question(request),
            String::new(),
        )
    }
}

pub(super) fn decided(
    live: &Live,
    request: &Request,
    filter: usize,
    outcome: &QueryOutcome,
    took: Option<Duration>,
) -> TraceEvent {
    let did = match outcome {
        Outcome::Passed => vec!["pass".into()],
        Outcome::Decided(verdict) => filter::verdict_lines(verdict),
        Outcome::Failed => vec![on_error(live, filter)],
    };
    TraceEvent {
        did,
        took,
        ..TraceEvent::new(
            &stage(live, filter),
            Direction::In,
            question(request),
            String::new(),
        )
    }
}

/// What a filter's response phase did; `seen` is the response as it saw it.
pub(super) fn changed(
    live: &Live,
    request: &Request,
    filter: usize,
    seen: &Response,
    outcome: &ResponseOutcome,
    took: Option<Duration>,
) -> TraceEvent {
    let did = match outcome {
        Outcome::Passed => vec!["pass".into()],
        Outcome::Decided(verdict) => filter::response_verdict_lines(verdict),
        Outcome::Failed => vec![on_error(live, filter)],
    };
    let saw = format!("{}: {}", question(request), response(seen));
    TraceEvent {
        did,
        took,
        ..TraceEvent::new(&stage(live, filter), Direction::Out, saw, String::new())
    }
}

/// What a filter had decided about the response when it saw the query.
pub(super) fn undone(
    live: &Live,
    request: &Request,
    filter: usize,
    saw: String,
    now: &Response,
) -> TraceEvent {
    let did = format!(
        "as decided on the way in, now {}: {}",
        question(request),
        response(now)
    );
    TraceEvent::new(&stage(live, filter), Direction::Out, saw, did)
}

pub(super) fn cache(request: &Request, did: String) -> TraceEvent {
    TraceEvent::new("cache", Direction::In, question(request), did)
}

pub(super) fn forward(request: &Request, did: String) -> TraceEvent {
    TraceEvent::new("forward", Direction::In, question(request), did)
}

/// Why the cache has nothing.
pub(super) fn miss(request: &Request) -> &'static str {
    match (request.signed.is_some(), request.may_store()) {
        (true, _) => "passed by: a signed query is relayed as it is",
        (_, false) => "passed by: a filter said `store=#false`",
        _ => "miss",
    }
}

pub(super) fn kept(request: &Request, kind: Kind, ttl: Duration, stale: Duration) -> TraceEvent {
    let kind = match kind {
        Kind::Success => "success",
        Kind::Denial => "denial",
        Kind::Failure => "failure",
    };
    let mut did = format!("kept as {kind} for {} s", ttl.as_secs());
    if !stale.is_zero() {
        did.push_str(&format!(", stale for another {} s", stale.as_secs()));
    }
    TraceEvent::new("cache", Direction::Out, question(request), did)
}

pub(super) fn forwarded(
    request: &Request,
    from: SocketAddr,
    message: &[u8],
    took: Option<Duration>,
) -> TraceEvent {
    let did = match message.len() {
        0..4 => format!("{from} sent something that is no message"),
        _ => {
            let flags = u16_at(message, 2);
            let answers = record_lines(message, Section::Answer).len();
            format!(
                "{from} said {}, answers: {answers}",
                rcode_text(flags & flag::RCODE)
            )
        }
    };
    TraceEvent {
        took,
        ..TraceEvent::new("forward", Direction::In, question(request), did)
    }
}

pub(super) fn unanswered(request: &Request, failure: &Failure, took: Option<Duration>) -> TraceEvent {
    TraceEvent {
        took,
        ..TraceEvent::new(
            "forward",
            Direction::In,
            question(request),
            format!("no answer: {failure}"),
        )
    }
}

pub(super) fn alias(request: &Request, target: &Request) -> TraceEvent {
    TraceEvent::new(
        "alias",
        Direction::In,
        question(request),
        format!("asks for {} from the top", question(target)),
    )
}
