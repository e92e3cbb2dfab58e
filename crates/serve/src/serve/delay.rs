//! Responses that filters delay.
//!
//! The delays of all filters for a query add up, and are waited for once: when the response is ready, among
//! the waiting queries. So no other query is delayed, neither one in the same batch or connection nor one
//! with the same question. A query that has to give way gets its response immediately.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::dns::Transport;

use super::counters::add;
use super::explain;
use super::live::Live;
use super::queue::Query;
use super::request::Request;
use super::response::Response;
use super::sources::wait;
use super::worker::Worker;

/// Maximum delay of one response in milliseconds, over all filters.
const LONGEST: u16 = 10_000;

impl Live {
    /// Records that a filter delays a response by this many milliseconds.
    pub(super) fn delay(&self, request: &mut Request, filter: usize, delay: u16) {
        // Other queries wait for the proxy's internal ones.
        if delay == 0 || request.asked.client.transport == Transport::Internal {
            return;
        }
        let counters = self.generation.filters[filter].filter.counters();
        counters.delays.fetch_add(1, Ordering::Relaxed);
        request.delay = sum(request.delay, delay);
    }
}

/// The sum of two delays, up to `LONGEST`.
fn sum(before: u16, delay: u16) -> u16 {
    before.saturating_add(delay).min(LONGEST)
}

impl Worker {
    /// Delays a response for as long as filters decided, if there is room for it.
    pub(super) async fn hold_back(&self, live: &Live, query: &mut Query, response: &Response) {
        let Query { request, waiting, .. } = query;
        let delay = Duration::from_millis(std::mem::take(&mut request.delay).into());
        let Some(_held) = self.shared.lookup_octets.hold(response.octets()) else {
            return self.not_held_back(live, request);
        };
        explain::on_way_out(request, "delay", || {
            format!("held back for {} ms", delay.as_millis())
        });
        if let Err(why) = wait(request, waiting, pin!(sleep(delay))).await {
            // It has its response already.
            self.gave_up(live, request, why);
        }
    }

    /// Counts a response that is not delayed, for lack of room.
    pub(super) fn not_held_back(&self, live: &Live, request: &Request) {
        add(&live.counters(request).waiting_rejects, 1);
        explain::on_way_out(request, "delay", || "not held back: too many queries wait".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_add_up_to_ten_seconds() {
        assert_eq!(sum(2_000, 500), 2_500);
        let all = (0..1_000).fold(0, |before, _| sum(before, 2_000));
        assert_eq!(all, LONGEST);
    }
}
