//! Logs clients' messages to dnstap.

use std::net::SocketAddr;
use std::time::Duration;

use crate::dns::Transport;
use crate::dnstap::{Exchange, Tap};

use super::live::Live;
use super::request::Request;
use super::response::Response;
use super::worker::Worker;

impl Worker {
    /// Logs a query and its reply; an empty reply means that none was sent.
    #[cold]
    #[inline(never)]
    pub(super) fn tap(&self, tap: &Tap, live: &Live, request: &Request, pod: Option<String>, reply: &[u8]) {
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
            pod,
            transport,
            query: &request.asked.message,
            took: Duration::from_micros(took),
            response: (!reply.is_empty()).then_some(reply),
        });
    }

    /// Finishes a query that enters no pipeline: no zone owns the name, or the client may not ask.
    pub(super) fn finish_outside(
        &self,
        live: &Live,
        request: &Request,
        response: Option<&Response>,
        reply: &[u8],
    ) {
        if let Some(tap) = &live.generation.tap {
            // The client has not been identified.
            self.tap(tap, live, request, None, reply);
        }
        self.finish_trace(request, response, reply.len());
    }
}
