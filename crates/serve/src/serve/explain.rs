//! The texts of trace events.

use std::time::Duration;

use crate::cache::Kind;
use crate::cases;
use crate::dns::name::Text;
use crate::dns::records::Section;
use crate::dns::text::{class_text, record_lines, type_text};
use crate::dns::{CLASS_IN, QUESTION_TAIL, rcode_text};
use crate::filter::{
    Lookup, LookupPath, LookupStatus, Outcome, QueryOutcome, ROUNDS, ResponseOutcome, Verdict,
};
use crate::source::Source;
use dnsweir_answer::Resolution;
use dnsweir_answer::identity::Identity;

use super::live::Live;
use super::request::Request;
use super::response::Response;
use super::trace::{Direction, Reply, Trace, TraceEvent, TraceSink, TraceView};

/// Passes on the finished trace of a query that was answered or dropped. The client has an identity if that
/// is configured.
pub(super) fn finish(
    sink: &TraceSink,
    trace: &Trace,
    identity: Option<&Identity>,
    request: &Request,
    response: Option<&Response>,
    size: usize,
) {
    let reply = response.map(|response| Reply {
        rcode: rcode_text(response.rcode),
        source: response.origin.as_str(),
        error: response.error,
        size,
        answers: record_lines(&response.message(&request.question), Section::Answer),
    });
    sink(&TraceView {
        client: request.asked.client.address,
        identity: identity.map(ToString::to_string).as_deref(),
        transport: request.asked.client.transport,
        question: question(request),
        events: &trace.events.borrow(),
        took: trace.begun.elapsed(),
        reply,
    });
}

/// Adds to the trace of a query, if there is one, what a stage did about the query.
// Inlined like `Request::trace`.
#[inline(always)]
pub(super) fn on_way_in(request: &Request, stage: &str, did: impl FnOnce() -> String) {
    if request.trace.is_some() {
        add(request, stage, Direction::In, did());
    }
}

/// Adds to the trace of a query, if there is one, what a stage did about the response.
#[inline(always)]
pub(super) fn on_way_out(request: &Request, stage: &str, did: impl FnOnce() -> String) {
    if request.trace.is_some() {
        add(request, stage, Direction::Out, did());
    }
}

#[cold]
fn add(request: &Request, stage: &str, direction: Direction, did: String) {
    request.trace(|| TraceEvent::new(stage, direction, question(request), did));
}

/// A query's current question: name and type, and the class if it is not IN.
pub(super) fn question(request: &Request) -> String {
    let name = Text(&request.question[..request.question.len() - QUESTION_TAIL]);
    match request.qclass {
        CLASS_IN => format!("{name} {}", type_text(request.qtype)),
        other => format!("{name} {} {}", class_text(other), type_text(request.qtype)),
    }
}

/// A summary of a response.
pub(super) fn response(response: &Response) -> String {
    let rcode = rcode_text(response.rcode);
    match (response.answer_count(), response.lowest_ttl()) {
        (0, 0) => format!("{rcode}, no records"),
        (0, ttl) => format!("{rcode}, no answer, TTL {ttl}"),
        (1, ttl) => format!("{rcode}, 1 answer, TTL {ttl}"),
        (count, ttl) => format!("{rcode}, {count} answers, TTL {ttl}"),
    }
}

/// What a filter did about what it saw.
fn of_filter(live: &Live, filter: usize, direction: Direction, saw: String, did: Vec<String>) -> TraceEvent {
    let stage = format!("use {}", live.generation.filters[filter].filter.name());
    TraceEvent {
        did,
        ..TraceEvent::new(&stage, direction, saw, String::new())
    }
}

fn on_error(live: &Live, filter: usize) -> String {
    let policy = format!("{:?}", live.generation.config.filters[filter].on_error).to_lowercase();
    format!("failed: on-error \"{policy}\" applies")
}

pub(super) fn unasked(live: &Live, request: &Request, filter: usize) -> TraceEvent {
    let did = match live.generation.filters[filter].filter.interest().queries {
        true => "not asked: its manifest does not cover the question",
        false => "not asked: it takes no part in queries",
    };
    of_filter(live, filter, Direction::In, question(request), vec![did.into()])
}

pub(super) fn remembered(live: &Live, request: &Request, filter: usize, verdict: &Verdict) -> TraceEvent {
    let mut did = cases::verdict_lines(verdict);
    did.push("(remembered: it was not called)".into());
    of_filter(live, filter, Direction::In, question(request), did)
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
        Outcome::Decided(verdict) => cases::verdict_lines(verdict),
        Outcome::Failed => vec![on_error(live, filter)],
    };
    TraceEvent {
        took,
        ..of_filter(live, filter, Direction::In, question(request), did)
    }
}

/// What a filter's response phase did; `seen` is the response before it.
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
        Outcome::Decided(verdict) => cases::response_verdict_lines(verdict),
        Outcome::Failed => vec![on_error(live, filter)],
    };
    let saw = format!("{}: {}", question(request), response(seen));
    TraceEvent {
        took,
        ..of_filter(live, filter, Direction::Out, saw, did)
    }
}

/// The changes that a filter decided on when it saw the query.
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
    of_filter(live, filter, Direction::Out, saw, vec![did])
}

/// The result of asking a source that had to be waited for.
pub(super) fn asked(request: &Request, did: String, took: Option<Duration>) -> TraceEvent {
    TraceEvent {
        took,
        ..TraceEvent::new("forward", Direction::In, question(request), did)
    }
}

/// A source's answer from memory.
pub(super) fn resolution(
    live: &Live,
    request: &Request,
    source: &Source,
    resolution: &Resolution,
) -> TraceEvent {
    let said = match resolution {
        Resolution::Answer { answer, .. } => {
            format!("{}, answers: {}", rcode_text(answer.rcode), answer.answer_count())
        }
        Resolution::Alias(alias) => {
            let names: Vec<String> = alias.targets.iter().map(|name| Text(name).to_string()).collect();
            format!("an alias of {}", names.join(", or else of "))
        }
        Resolution::NotMine => "leaves the question to the next stage".into(),
        Resolution::Verbatim(_) => "relayed as it is".into(),
        Resolution::Failed { .. } => "no answer".into(),
    };
    let why = source.upkeep().words(&live.question(request));
    let did = why.map_or(said.clone(), |why| format!("{said}: {why}"));
    TraceEvent::new(source.upkeep().word(), Direction::In, question(request), did)
}

/// Why the cache has no answer.
pub(super) fn miss(request: &Request) -> &'static str {
    match (request.asked.signed.is_some(), request.may_store()) {
        (true, _) => "bypassed: a signed query is relayed as it is",
        (_, false) => "bypassed: a filter decided `store=#false`",
        _ => "miss",
    }
}

pub(super) fn kept(kind: Kind, ttl: u32, stale: Duration) -> String {
    let kept = format!("kept as {} for {ttl} s", kind.as_str());
    match stale.as_secs() {
        0 => kept,
        stale => format!("{kept}, stale for another {stale} s"),
    }
}

/// A lookup that a filter makes.
pub(super) fn lookup(lookup: &Lookup, made: bool) -> String {
    let (name, qtype) = (Text(&lookup.name), type_text(lookup.qtype));
    let path = match &lookup.path {
        LookupPath::Top => "from the top".into(),
        LookupPath::Below => "below the filter".into(),
        LookupPath::Zone(zone) => format!("in zone {zone}"),
    };
    match made {
        true => format!("asks for {name} {qtype} {path}"),
        false => format!("does not ask for {name} {qtype}: a limit of lookups is reached"),
    }
}

/// The result of a lookup.
pub(super) fn looked_up(inner: &Request, status: LookupStatus, found: Option<&Response>) -> TraceEvent {
    let did = match status {
        LookupStatus::Answered => "answered",
        LookupStatus::Failed => "failed",
        LookupStatus::TimedOut => "timed out",
        LookupStatus::Limited => "given up: a limit is reached",
    };
    let saw = match found {
        Some(found) => format!("{}: {}", question(inner), response(found)),
        None => format!("{}: no response", question(inner)),
    };
    TraceEvent::new("lookup", Direction::Out, saw, did.into())
}

pub(super) fn asks_too_often(live: &Live, request: &Request, filter: usize, on: Direction) -> TraceEvent {
    let did = format!("asks again after {ROUNDS} times; {}", on_error(live, filter));
    of_filter(live, filter, on, question(request), vec![did])
}
