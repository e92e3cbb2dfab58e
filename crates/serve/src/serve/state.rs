//! The state of a query, the same for a batch and for a query that waits.

use std::sync::Arc;

use crate::config::OnError;
use crate::dns::Origin;
use crate::dns::edns::ExtendedError;
use crate::dns::rcode;
use crate::filter::{Ask, Verdict};
use dnsweir_answer::{Alias, Resolution};

use super::live::Live;
use super::request::Request;
use super::response::Response;

/// The state of a query. `serve`'s README has a picture.
pub(super) enum State {
    /// It is on its way in, before its stage.
    Request,
    /// It has to wait.
    Waits(Wait),
    /// Its response is on its way out, behind its stage. At the request's floor, this is the final response.
    Response(Response),
    /// No response is sent.
    Dropped,
    /// There is no query here: it continues elsewhere.
    Gone,
}

/// What a query waits for.
pub(super) enum Wait {
    /// The cache at its stage has nothing fresh.
    Cache,
    /// The source at its stage cannot answer from memory.
    Source,
    /// The answer of an alias's target.
    Alias(Lead),
    /// Lookups, for the filter at its stage.
    Lookups(Box<Asking>),
    /// It has its response, which filters delay.
    Delay(Box<Response>),
}

impl Wait {
    /// Waits for the first lookups that the filter at its stage asks for.
    pub(super) fn for_filter(about: About) -> Wait {
        Wait::Lookups(Box::new(Asking { about, rounds: 0 }))
    }
}

/// The origin of an alias.
pub(super) enum Lead {
    /// A filter decided on an alias.
    Filter(Arc<Verdict>),
    /// A source has one.
    Source(Arc<Alias>),
}

/// A filter that looks names up before it decides.
pub(super) struct Asking {
    /// What it decides about, and the lookups.
    pub about: About,
    /// How many rounds of lookups came before.
    pub rounds: usize,
}

/// What a filter decides about after its lookups.
pub(super) enum About {
    /// The query. The lookups are its verdict so far.
    Query(Arc<Verdict>),
    /// This response to it.
    Response(Response, Ask),
}

impl State {
    /// An empty response.
    pub(super) fn error(rcode: u16, error: ExtendedError) -> State {
        State::Response(Response::error(rcode, error))
    }

    /// A failure of a filter, or for lack of room. That says nothing about the name, so it is not cached
    /// (RFC 9520 section 2).
    pub(super) fn failed(rcode: u16) -> State {
        State::Response(Response::unstored(rcode, ExtendedError::Other))
    }

    /// The next state after a filter failed; `None`: its `on-error` is to continue without it.
    pub(super) fn after_failure(live: &Live, filter: usize) -> Option<State> {
        match live.generation.config.filters[filter].on_error {
            OnError::Bypass => None,
            OnError::Servfail => Some(State::failed(rcode::SERVFAIL)),
            OnError::Refuse => Some(State::failed(rcode::REFUSED)),
        }
    }

    /// Makes a response wait.
    #[cold]
    pub(super) fn hold(&mut self, wait: impl FnOnce(Response) -> Wait) {
        if let State::Response(response) = std::mem::replace(self, State::Gone) {
            *self = State::Waits(wait(response));
        }
    }

    /// Takes what a query waits for, if it waits; the query is then gone until its state is set again.
    pub(super) fn take_wait(&mut self) -> Option<Wait> {
        match std::mem::replace(self, State::Gone) {
            State::Waits(wait) => Some(wait),
            state => {
                *self = state;
                None
            }
        }
    }

    /// The next state after a source's answer, which came from there.
    pub(super) fn of_resolution(request: &mut Request, resolution: Resolution, origin: Origin) -> State {
        match resolution {
            Resolution::NotMine => {
                request.stage += 1;
                State::Request
            }
            Resolution::Alias(alias) => State::Waits(Wait::Alias(Lead::Source(alias))),
            resolution => State::Response(Response::of_source(resolution, origin)),
        }
    }
}
