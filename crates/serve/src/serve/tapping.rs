//! Clients' messages, told to whoever reads dnstap.

use std::net::SocketAddr;
use std::time::Duration;

use crate::dns::Transport;
use crate::dnstap::{Exchange, Tap};

use super::live::Live;
use super::request::Request;
use super::response::Response;
use super::worker::Worker;

impl Worker {
    /// Tells of a query and what its client was sent; of no octets: nothing was.
    #[cold]
    #[inline(never)]
    pub(super) fn tap(&self, tap: &Tap, live: &Live, request: &Request, pod: Option<String>, reply: &[u8]) {
        let transport = request.asked.client.transport;
        if !tap.wants_clients() || transport == Transport::Internal {
            return;
        }
        let took = self.now().saturating_sub(request.asked.client.received);
        let listener = live.server(request.asked.client.server);
        let listener = listener
            .rsplit_once("://")
            .map_or(listener, |(_, address)| address);
        let listener: Option<SocketAddr> = listener.parse().ok();
        tap.tell_client(&Exchange {
            client: Some(request.asked.client.address),
            // Where every address is listened on, which one it was is not known here.
            server: listener.filter(|address| !address.ip().is_unspecified()),
            pod,
            transport,
            query: &request.asked.message,
            took: Duration::from_micros(took),
            response: (!reply.is_empty()).then_some(reply),
        });
    }

    /// Tells of a query that goes nowhere: no zone is asked, or who asks may not.
    pub(super) fn finish_outside(
        &self,
        live: &Live,
        request: &Request,
        response: Option<&Response>,
        reply: &[u8],
    ) {
        if let Some(tap) = &live.generation.tap {
            // Nobody has looked who that is.
            self.tap(tap, live, request, None, reply);
        }
        self.finish_trace(request, response, reply.len());
    }
}
