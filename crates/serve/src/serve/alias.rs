//! Aliases: their targets' answers, after the CNAME records that lead there.

use std::rc::Rc;
use std::sync::Arc;

use crate::dns::Origin;
use crate::dns::edns::ExtendedError;
use crate::dns::records::Answer;
use crate::dns::{CLASS_IN, QUESTION_TAIL, build, rcode, rtype};
use crate::filter::Decision;

use super::explain;
use super::live::Live;
use super::lookups::DEPTH;
use super::queue::Query;
use super::request::Request;
use super::request_pass::edited;
use super::response::{Response, Store};
use super::state::{Lead, State};
use super::worker::Worker;

/// The TTL of an alias whose target has no records.
const ALIAS_TTL: u32 = 30;

impl Worker {
    /// Follows an alias; returns where its query continues.
    pub(super) async fn follow(self: &Rc<Self>, live: &Rc<Live>, query: &Query, lead: &Lead) -> State {
        let targets: &[Box<[u8]>] = match lead {
            Lead::Source(alias) => &alias.targets,
            Lead::Filter(verdict) => match &verdict.decision {
                Decision::Alias(targets) => targets,
                _ => &[],
            },
        };
        let Some(response) = self.alias(live, query, targets, lead).await else {
            return State::Dropped;
        };
        State::Response(match lead {
            Lead::Filter(verdict) => edited(live, &query.request, verdict, response),
            Lead::Source(_) => Response {
                // AA is about the queried name (RFC 1035 section 4.1.1).
                authoritative: response.answer_count() > 0,
                origin: match response.origin {
                    Origin::Filter => Origin::Local,
                    origin => origin,
                },
                ..response
            },
        })
    }

    /// The answer through the first of `targets` that exists, or else through the last.
    async fn alias(
        self: &Rc<Self>,
        live: &Rc<Live>,
        query: &Query,
        targets: &[Box<[u8]>],
        lead: &Lead,
    ) -> Option<Response> {
        let request = &query.request;
        let comes_back = query.waiting.comes_back(request);
        // Nested lists would multiply the cost of a query, so only the first alias may have several targets.
        if comes_back.is_some() || request.depth >= DEPTH || request.depth > 0 && targets.len() > 1 {
            tracing::warn!(name = %request.name, "aliases form a loop");
            let store = match comes_back {
                // It is one for every client that asks for a name of it, except for the CNAME itself.
                Some(true) if request.qtype != rtype::CNAME => Store::Always,
                Some(_) => Store::Never,
                // That says nothing about this name, only about the one from which so many aliases lead here.
                None => Store::First,
            };
            return Some(Response {
                store,
                ..Response::error(rcode::SERVFAIL, ExtendedError::Other)
            });
        }
        let mut targets = targets.iter();
        let (target, inner, found) = loop {
            let target = targets.next()?;
            let inner = request.internal(live.hasher(), target, request.qtype, request.qclass);
            let did = || format!("asks for {} from the top", explain::question(&inner));
            explain::on_way_in(request, "alias", did);
            let (inner, found) = self.ask_target(live, query, inner).await?;
            if found.rcode != rcode::NXDOMAIN || targets.len() == 0 {
                break (target, inner, found);
            }
        };
        let store = match found.store {
            // A stale answer would be stored as a fresh one.
            _ if found.origin == Origin::Stale => Store::Never,
            // The target was resolved for this client; a cache here answers all of them.
            _ if !live.answers_alike(&inner) => Store::Never,
            Store::First if request.depth == 0 => Store::Always,
            store => store,
        };
        if inner.name == request.name {
            return Some(Response { store, ..found });
        }
        let so_far = match lead {
            Lead::Source(alias) => alias.so_far.as_ref().map(|so_far| so_far.message.clone()),
            Lead::Filter(_) => None,
        };
        let so_far = so_far.unwrap_or_else(|| cname(request, target, lead, &found));
        // If no zone here owns the target, or it failed and the client desires no recursion, the client has
        // to ask for it (RFC 1034 section 4.3.2, step 3a). A filter's alias to a target that no zone owns is
        // the filter's mistake.
        let nobodys = found.rcode == rcode::REFUSED || found.failed() && !request.recursion_desired();
        let whole = match (request.qtype, lead) {
            // The query is for the CNAME itself.
            (rtype::CNAME, _) => Some(so_far),
            (_, Lead::Source(_)) if nobodys => Some(so_far),
            _ => {
                let message = found.message(&inner.question);
                build::continued(&so_far, &message)
            }
        };
        Some(Response {
            store,
            ..led_to(found, whole)
        })
    }

    /// The response for an alias's target, with its query; `None` if it was dropped.
    async fn ask_target(
        self: &Rc<Self>,
        live: &Rc<Live>,
        query: &Query,
        inner: Request,
    ) -> Option<(Request, Response)> {
        if live.turns_away(&inner, &self.shared.ledger) {
            let refused = Response::unstored(rcode::REFUSED, ExtendedError::Prohibited);
            return Some((inner, refused));
        }
        let waiting = query.waiting.of_target(live, &query.request);
        let inner = self.ask_from_the_top(live, inner, waiting).await.ok()?;
        match inner.state {
            State::Response(found) => Some((inner.request, found)),
            _ => None,
        }
    }
}

/// The response that leads to `found`, with this message.
fn led_to(found: Response, whole: Option<Vec<u8>>) -> Response {
    let Some(answer) = whole.and_then(|message| Answer::read(message).ok()) else {
        return Response::error(rcode::SERVFAIL, ExtendedError::Other);
    };
    let answer = Response::answer(Arc::new(answer), Origin::Filter, false);
    let failed = found.failed() || found.rcode == rcode::SERVFAIL && found.origin == Origin::Cache;
    Response {
        error: found.error.filter(|_| answer.rcode == found.rcode),
        // No filter decided that the target could not be resolved.
        origin: if answer.rcode == found.rcode && failed {
            found.origin
        } else {
            Origin::Filter
        },
        ..answer
    }
}

/// A message with only a CNAME record to a target, which resolved to `found`.
fn cname(request: &Request, target: &[u8], lead: &Lead, found: &Response) -> Vec<u8> {
    let told = match lead {
        Lead::Filter(_) => None,
        Lead::Source(alias) => alias.ttl,
    };
    let ttl = told.unwrap_or_else(|| match found.answer_count() {
        0 => ALIAS_TTL,
        _ => found.lowest_ttl(),
    });
    let mut message = build::empty(&request.question, rcode::NOERROR);
    let owner = &request.question[..request.question.len() - QUESTION_TAIL];
    build::push_record(&mut message, 6, owner, rtype::CNAME, CLASS_IN, ttl, target);
    message
}
