//! What happens to a query, told while it happens: for `dnsweir explain` and `dnsweir dev`.
//!
//! The way of a query is told by the code that takes it along, at the places where it decides something; there
//! is no second account of it. Without an audience no story is begun, and each of those places costs one
//! look at an absent pointer.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::cache::Kind;
use crate::dns::name::Text;
use crate::dns::records::Section;
use crate::dns::text::{class_text, record_lines, type_text};
use crate::dns::{CLASS_IN, QUESTION_TAIL, flag, rcode_text, u16_at};
use crate::filter::{self, Outcome, QueryOutcome, ResponseOutcome, Source, Transport, Verdict};
use crate::forward::Failure;

use super::generation::Live;
use super::response::Response;
use super::transit::Transit;

/// Who is told of every query, on the thread that answered it.
pub type Audience = Box<dyn Fn(&Told<'_>) + Send + Sync>;

/// A query's story so far.
#[derive(Debug)]
pub struct Story {
    begun: Instant,
    moments: RefCell<Vec<Moment>>,
}

/// Whether the query was on its way in or its response on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The query, top to bottom.
    In,
    /// The response, bottom to top.
    Out,
}

/// One thing that happened on a query's way.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Which stage: `zone`, `use NAME`, `cache`, `forward`, `alias`, `end`.
    pub stage: String,
    /// On which way.
    pub way: Way,
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

/// A whole story.
#[derive(Debug)]
pub struct Told<'a> {
    /// Who asked.
    pub client: SocketAddr,
    /// How.
    pub transport: Transport,
    /// What: name, class and type.
    pub question: String,
    /// In order.
    pub moments: &'a [Moment],
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

impl Story {
    /// Begins now.
    pub(super) fn begin() -> Rc<Story> {
        Rc::new(Story {
            begun: Instant::now(),
            moments: RefCell::default(),
        })
    }

    pub(super) fn add(&self, depth: u8, moment: Moment) {
        let at = self.begun.elapsed();
        self.moments.borrow_mut().push(Moment { at, depth, ..moment });
    }
}

impl Moment {
    pub(super) fn new(stage: &str, way: Way, saw: String, did: String) -> Moment {
        let (stage, did) = (stage.to_owned(), vec![did]);
        Moment {
            stage,
            way,
            saw,
            did,
            took: None,
            at: Duration::ZERO,
            depth: 0,
        }
    }
}

/// The story of a query that has been answered or dropped.
pub(super) fn told(
    story: &Story,
    transit: &Transit,
    response: Option<&Response>,
    size: usize,
    hear: impl FnOnce(&Told<'_>),
) {
    let reply = response.map(|response| Reply {
        rcode: rcode_text(response.rcode),
        source: source(response.source),
        error: response.error,
        size,
        answers: record_lines(&response.message(&transit.question), Section::Answer),
    });
    hear(&Told {
        client: transit.arrival.client,
        transport: transit.arrival.transport,
        question: question(transit),
        moments: &story.moments.borrow(),
        took: story.begun.elapsed(),
        reply,
    });
}

/// A query's question as it stands: name and type, and the class if it is not the usual one.
pub(super) fn question(transit: &Transit) -> String {
    let name = Text(&transit.question[..transit.question.len() - QUESTION_TAIL]);
    match transit.qclass {
        CLASS_IN => format!("{name} {}", type_text(transit.qtype)),
        other => format!("{name} {} {}", class_text(other), type_text(transit.qtype)),
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

fn source(source: Source) -> &'static str {
    match source {
        Source::Upstream => "upstream",
        Source::Cache => "cache",
        Source::Stale => "stale",
        Source::Filter => "filter",
        Source::Local => "local",
    }
}

fn stage(live: &Live, filter: usize) -> String {
    format!("use {}", live.generation.filters[filter].name())
}

fn on_error(live: &Live, filter: usize) -> String {
    let policy = format!("{:?}", live.generation.config.filters[filter].on_error).to_lowercase();
    format!("failed: on-error \"{policy}\" applies")
}

pub(super) fn unasked(live: &Live, transit: &Transit, filter: usize) -> Moment {
    let did = match live.generation.filters[filter].interest().queries {
        true => "not asked: its manifest does not cover the question",
        false => "not asked: it takes no part in queries",
    };
    Moment::new(&stage(live, filter), Way::In, question(transit), did.into())
}

pub(super) fn remembered(live: &Live, transit: &Transit, filter: usize, verdict: &Verdict) -> Moment {
    let mut did = filter::verdict_lines(verdict);
    did.push("(remembered: it was not called)".into());
    Moment {
        did,
        ..Moment::new(&stage(live, filter), Way::In, question(transit), String::new())
    }
}

pub(super) fn decided(
    live: &Live,
    transit: &Transit,
    filter: usize,
    outcome: &QueryOutcome,
    took: Option<Duration>,
) -> Moment {
    let did = match outcome {
        Outcome::Passed => vec!["pass".into()],
        Outcome::Decided(verdict) => filter::verdict_lines(verdict),
        Outcome::Failed => vec![on_error(live, filter)],
    };
    Moment {
        did,
        took,
        ..Moment::new(&stage(live, filter), Way::In, question(transit), String::new())
    }
}

/// What a filter's response phase did; `seen` is the response as it saw it.
pub(super) fn changed(
    live: &Live,
    transit: &Transit,
    filter: usize,
    seen: &Response,
    outcome: &ResponseOutcome,
    took: Option<Duration>,
) -> Moment {
    let did = match outcome {
        Outcome::Passed => vec!["pass".into()],
        Outcome::Decided(verdict) => filter::response_verdict_lines(verdict),
        Outcome::Failed => vec![on_error(live, filter)],
    };
    let saw = format!("{}: {}", question(transit), response(seen));
    Moment {
        did,
        took,
        ..Moment::new(&stage(live, filter), Way::Out, saw, String::new())
    }
}

/// What a filter had decided about the response when it saw the query.
pub(super) fn undone(live: &Live, transit: &Transit, filter: usize, saw: String, now: &Response) -> Moment {
    let did = format!(
        "as decided on the way in, now {}: {}",
        question(transit),
        response(now)
    );
    Moment::new(&stage(live, filter), Way::Out, saw, did)
}

pub(super) fn cache(transit: &Transit, did: String) -> Moment {
    Moment::new("cache", Way::In, question(transit), did)
}

pub(super) fn forward(transit: &Transit, did: String) -> Moment {
    Moment::new("forward", Way::In, question(transit), did)
}

/// Why the cache has nothing.
pub(super) fn miss(transit: &Transit) -> &'static str {
    match (transit.signed.is_some(), transit.may_store()) {
        (true, _) => "passed by: a signed query is relayed as it is",
        (_, false) => "passed by: a filter said `store=#false`",
        _ => "miss",
    }
}

pub(super) fn kept(transit: &Transit, kind: Kind, ttl: Duration, stale: Duration) -> Moment {
    let kind = match kind {
        Kind::Success => "success",
        Kind::Denial => "denial",
        Kind::Failure => "failure",
    };
    let mut did = format!("kept as {kind} for {} s", ttl.as_secs());
    if !stale.is_zero() {
        did.push_str(&format!(", stale for another {} s", stale.as_secs()));
    }
    Moment::new("cache", Way::Out, question(transit), did)
}

pub(super) fn forwarded(
    transit: &Transit,
    from: SocketAddr,
    message: &[u8],
    took: Option<Duration>,
) -> Moment {
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
    Moment {
        took,
        ..Moment::new("forward", Way::In, question(transit), did)
    }
}

pub(super) fn unanswered(transit: &Transit, failure: &Failure, took: Option<Duration>) -> Moment {
    Moment {
        took,
        ..Moment::new(
            "forward",
            Way::In,
            question(transit),
            format!("no answer: {failure}"),
        )
    }
}

pub(super) fn alias(transit: &Transit, target: &Transit) -> Moment {
    Moment::new(
        "alias",
        Way::In,
        question(transit),
        format!("asks for {} from the top", question(target)),
    )
}
