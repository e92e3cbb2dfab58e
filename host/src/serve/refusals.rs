//! What becomes of a query that a gate turns away: as little as can be.

use crate::dns::edns::ExtendedError;
use crate::dns::query::Query;
use crate::dns::{rcode, reply};

use super::counters::ZoneCounters;
use super::gate::{Refusal, Reply};
use super::generation::Live;
use super::response::Response;
use super::story::{self, Moment, Story, Way};
use super::transit::{Arrival, Transit};
use super::{Admission, Batch, Worker};

impl Worker {
    /// Answers a query that the listener's gate turns away, or does not: what is malformed gets nothing, and is not even
    /// read where nobody gets anything.
    #[cold]
    pub(super) fn turn_away(
        &self,
        live: &Live,
        batch: &mut Batch,
        message: &[u8],
        arrival: Arrival,
        refusal: Refusal,
        out: &mut [u8],
    ) -> Admission {
        let counters = live.counters_outside(arrival.server);
        let heard = refusal.reply != Reply::Silence || self.shared.audience.is_some();
        if let Some(query) = heard.then(|| Query::parse(message).ok()).flatten() {
            let transit = batch.next(arrival);
            transit.admit(&query, arrival);
            if self.shared.audience.is_some() {
                transit.story = Some(Story::begin());
            }
            return self.refuse(counters, transit, refusal, out);
        }
        counters.request(arrival.transport, arrival.client.ip(), 0);
        counters.refuse(refusal.reason);
        Admission::Silence
    }

    /// Answers a query that a gate turns away.
    #[cold]
    pub(super) fn refuse(
        &self,
        counters: &ZoneCounters,
        transit: &Transit,
        refusal: Refusal,
        out: &mut [u8],
    ) -> Admission {
        let arrival = transit.arrival;
        counters.request(arrival.transport, arrival.client.ip(), transit.qtype);
        counters.refuse(refusal.reason);
        let why = || refusal.reason.text().into();
        transit.tell(|| Moment::new("clients", Way::In, story::question(transit), why()));
        let rcode = match refusal.reply {
            Reply::Refused => rcode::REFUSED,
            Reply::Truncated => rcode::NOERROR,
            Reply::Silence => {
                self.tell_story(transit, None, 0);
                return Admission::Silence;
            }
        };
        let response = Response::error(rcode, ExtendedError::Prohibited);
        let client = transit.client(response.error);
        let size = match refusal.reply {
            Reply::Truncated => reply::write_truncated(out, &client),
            _ => response.write(out, &client),
        };
        counters.response(rcode, self.now().saturating_sub(arrival.received));
        self.tell_story(transit, Some(&response), size);
        Admission::Answered(size)
    }
}
