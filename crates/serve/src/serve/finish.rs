//! The end of every client's query: here it is counted and reported, and nowhere else. Its trace goes to the
//! tools, a failed or slow query to the status page, the messages to dnstap, and the outcome to filters with
//! an events phase.

use std::net::SocketAddr;
use std::time::Duration;

use crate::dns::{Transport, rcode};
use crate::dnstap::{Exchange, Tap};
use crate::filter::Outcomes;
use dnsweir_answer::identity::Identity;

use super::batch::Admission;
use super::counters::ZoneCounters;
use super::events::became;
use super::explain;
use super::live::Live;
use super::observed::SLOW;
use super::request::Request;
use super::response::Response;
use super::trace::Trace;
use super::worker::{Clocks, Worker};

impl Worker {
    /// Counts and reports a query that has left its pipeline; no response: it was dropped. `reply` is what
    /// its client is sent; empty: nothing.
    pub(super) fn finish(
        &self,
        live: &Live,
        request: &Request,
        response: Option<&Response>,
        reply: &[u8],
        clocks: Clocks,
    ) {
        if let Some(response) = response {
            let took = clocks.now.micros_since(request.asked.client.received);
            live.counters(request).response(response.rcode, took);
            if response.rcode == rcode::SERVFAIL || took >= SLOW {
                self.keep_trouble(request, response, took, clocks);
            }
        }
        if let Some(trace) = &request.trace {
            self.finish_trace(trace, identity(live, request), request, response, reply.len());
        }
        let told = live.generation.pipelines[request.pipeline].tells;
        if told != Outcomes::NONE && told.meet(became(response, reply)) {
            self.report(live, request, response, reply, clocks);
        }
    }

    /// Counts and reports a query that enters no pipeline, and the reply to it: no zone owns the name, or the
    /// client may not ask.
    pub(super) fn finish_outside(
        &self,
        live: &Live,
        counters: &ZoneCounters,
        request: &Request,
        response: &Response,
        reply: &[u8],
    ) -> Admission {
        let took = self.now().micros_since(request.asked.client.received);
        counters.response(response.rcode, took);
        self.report_outside(live, request, Some(response), reply);
        Admission::Answered(reply.len())
    }

    /// Reports such a query, whether it is answered or not.
    pub(super) fn report_outside(
        &self,
        live: &Live,
        request: &Request,
        response: Option<&Response>,
        reply: &[u8],
    ) {
        if let Some(tap) = &live.generation.tap {
            // The client has not been identified.
            self.tap(tap, live, None, request, reply);
        }
        if let Some(trace) = &request.trace {
            self.finish_trace(trace, None, request, response, reply.len());
        }
    }

    /// Passes the trace of a query to the sink.
    #[cold]
    fn finish_trace(
        &self,
        trace: &Trace,
        identity: Option<&Identity>,
        request: &Request,
        response: Option<&Response>,
        size: usize,
    ) {
        if let Some(sink) = &self.shared.trace_sink {
            explain::finish(sink, trace, identity, request, response, size);
        }
    }

    /// Passes a query and its outcome to dnstap and to filters.
    // Not inlined: for most queries there are none.
    #[inline(never)]
    fn report(
        &self,
        live: &Live,
        request: &Request,
        response: Option<&Response>,
        reply: &[u8],
        clocks: Clocks,
    ) {
        if let Some(tap) = &live.generation.tap {
            self.tap(tap, live, identity(live, request), request, reply);
        }
        self.tell_of(live, request, response, reply, clocks);
    }

    /// Logs a query and its reply to dnstap; an empty reply means that none was sent.
    #[cold]
    #[inline(never)]
    fn tap(&self, tap: &Tap, live: &Live, identity: Option<&Identity>, request: &Request, reply: &[u8]) {
        let transport = request.asked.client.transport;
        if !tap.wants_clients() || transport == Transport::Internal {
            return;
        }
        let took = self.now().micros_since(request.asked.client.received);
        let listener = live.server(request.asked.client.server);
        let listener = listener
            .rsplit_once("://")
            .map_or(listener, |(_, address)| address);
        let listener: Option<SocketAddr> = listener.parse().ok();
        tap.tell_client(&Exchange {
            client: Some(request.asked.client.address),
            // On a wildcard listener, the destination address is not known here.
            server: listener.filter(|address| !address.ip().is_unspecified()),
            pod: identity.map(ToString::to_string),
            transport,
            query: &request.asked.message,
            took: Duration::from_micros(took),
            response: (!reply.is_empty()).then_some(reply),
        });
    }
}

/// The client's identity, if the configuration asks for it.
fn identity<'a>(live: &Live, request: &'a Request) -> Option<&'a Identity> {
    live.generation.pods.as_ref().map(|_| &request.asked.identity)
}
