//! Reports events to filters, in batches and after the replies were sent.

use std::rc::Rc;
use std::time::Duration;

use super::live::Live;
use super::records::event_record;
use super::request::Request;
use super::response::Response;
use super::worker::{Clocks, Worker};
use crate::filter::Outcomes;

/// Number of events that makes a call of an events phase worthwhile.
const TELL_BATCH: usize = 256;

/// Bytes of a message, or of labels and annotations, that count as one more event.
const OCTETS_OF_EVENT: usize = 4096;

/// The longest time that events wait for others.
const TELL_AFTER: Duration = Duration::from_millis(20);

/// The outcome of a query, as its client sees it.
#[inline]
pub(super) fn became(response: Option<&Response>, reply: &[u8]) -> Outcomes {
    let response = response.filter(|_| !reply.is_empty());
    Outcomes::of(response.map(|response| (response.rcode, response.answer_count() > 0)))
}

impl Worker {
    /// Records the outcome of a query for filters with an events phase; no response: it was dropped.
    pub(super) fn tell_of(
        &self,
        live: &Live,
        request: &Request,
        response: Option<&Response>,
        reply: &[u8],
        clocks: Clocks,
    ) {
        let filters = &live.generation.pipelines[request.pipeline].event_filters;
        if filters.is_empty() {
            return;
        }
        let became = became(response, reply);
        let mut event = event_record(request, response, reply, clocks);
        for heard in filters {
            let interest = live.generation.filters[heard.filter].filter.interest();
            if interest.events.meet(became) && interest.covers(event.query.qtype, request.name.as_bytes()) {
                event.query.zone = heard.zone(request.zone);
                let message = if interest.messages { reply } else { &[] };
                let octets = live.events[heard.filter].borrow_mut().push_event(
                    event,
                    live.asked(request, heard.filter),
                    message,
                );
                let waiting = self.events_waiting.get();
                if waiting == 0 {
                    self.event.notify_one();
                }
                self.events_waiting.set(waiting + 1 + octets / OCTETS_OF_EVENT);
            }
        }
    }

    /// Passes events to filters with an events phase, a while after the first one, for as long as the worker
    /// lives.
    pub async fn tell_when_due(self: Rc<Self>) {
        loop {
            self.event.notified().await;
            tokio::time::sleep(TELL_AFTER).await;
            self.tell();
        }
    }

    /// Passes on events if there are enough for a call. Called after replies were sent.
    pub fn tell_if_many(&self) {
        if self.events_waiting.get() >= TELL_BATCH {
            self.tell();
        }
    }

    /// Passes the events since the last call to filters with an events phase.
    pub fn tell(&self) {
        if self.events_waiting.replace(0) > 0 {
            self.tell_all(&self.live());
        }
    }

    pub(super) fn tell_all(&self, live: &Live) {
        for (events, instance) in live.events.iter().zip(&live.instances) {
            let mut events = events.borrow_mut();
            if !events.is_empty() {
                instance.borrow_mut().events(&events);
                events.clear();
            }
        }
    }
}
