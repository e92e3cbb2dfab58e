//! Where a query is: the one account of it, for a batch and for a query that waits.

use std::sync::Arc;

use crate::dns::Origin;
use crate::dns::edns::ExtendedError;
use crate::filter::Verdict;
use dnsweir_answer::{Alias, Resolution};

use super::request::Request;
use super::response::{AskingResponse, Response};

/// Where a query is. `serve`'s README has a picture.
pub(super) enum State {
    /// It goes in, and stands before its stage.
    Inward,
    /// It cannot go on at once.
    Waits(Wait),
    /// Its response goes out, and stands behind its stage. At the request's floor, that is what it came to.
    Outward(Response),
    /// Nobody gets a response.
    Dropped,
    /// There is no query here: it went on elsewhere.
    Gone,
}

/// What a query waits for.
pub(super) enum Wait {
    /// The cache that it stands at has nothing fresh.
    Cache,
    /// The source that it stands at takes its time.
    Source,
    /// Another name's answer.
    Alias(Lead),
    /// Lookups, for the filter that it stands at.
    Lookups(Asking),
    /// The same, about its response.
    ResponseLookups(Box<AskingResponse>),
    /// It has its response, which filters want held back.
    Delay(Box<Response>),
}

/// Who says that a name stands for another one.
pub(super) enum Lead {
    /// A filter decided on an alias.
    Filter(Arc<Verdict>),
    /// A source has one.
    Source(Arc<Alias>),
}

/// A filter asks before it decides about a query.
pub(super) struct Asking {
    /// Its verdict so far: what it asks.
    pub verdict: Arc<Verdict>,
    /// How many times it has asked before.
    pub rounds: usize,
}

impl State {
    /// A response in a few octets.
    pub(super) fn error(rcode: u16, error: ExtendedError) -> State {
        State::Outward(Response::error(rcode, error))
    }

    /// A filter failed. That says nothing about the name: not to be kept (RFC 9520 section 2).
    pub(super) fn failed(rcode: u16) -> State {
        State::Outward(Response {
            store: false,
            ..Response::error(rcode, ExtendedError::Other)
        })
    }

    /// What a query waits for, if it does; then it is gone until it is put somewhere.
    pub(super) fn take_wait(&mut self) -> Option<Wait> {
        match std::mem::replace(self, State::Gone) {
            State::Waits(wait) => Some(wait),
            state => {
                *self = state;
                None
            }
        }
    }

    /// What a query comes to by what its source says at once; none: the source takes its time.
    pub(super) fn of_immediate(request: &mut Request, resolution: Option<Resolution>) -> State {
        match resolution {
            // What is relayed as it is has to be waited for.
            Some(Resolution::Verbatim(_)) | None => State::Waits(Wait::Source),
            Some(Resolution::Answer {
                answer,
                authoritative,
            }) => State::Outward(Response::answer(answer, Origin::Local, authoritative)),
            Some(resolution) => State::of_resolution(request, resolution),
        }
    }

    /// What a query comes to by what its source says.
    pub(super) fn of_resolution(request: &mut Request, resolution: Resolution) -> State {
        match resolution {
            Resolution::NotMine => {
                request.stage += 1;
                State::Inward
            }
            Resolution::Alias(alias) => State::Waits(Wait::Alias(Lead::Source(alias))),
            resolution => State::Outward(Response::of_source(resolution)),
        }
    }
}
