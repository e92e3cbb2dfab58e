//! Replies to queries that a gate rejects, with as little work as possible.

use crate::dns::edns::ExtendedError;
use crate::dns::query::{Query, Unanswerable};
use crate::dns::{rcode, reply};

use super::asked::Client;
use super::batch::{Admission, Batch};
use super::counters::ZoneCounters;
use super::explain;
use super::gate::{Refusal, Reply};
use super::live::Live;
use super::request::Request;
use super::response::Response;
use super::worker::Worker;

impl Worker {
    /// Answers a message that is not a servable query, or stays silent.
    #[cold]
    #[inline(never)]
    pub(super) fn admit_unanswerable(
        &self,
        live: &Live,
        message: &[u8],
        client: Client,
        error: Unanswerable,
        out: &mut [u8],
    ) -> Admission {
        let Unanswerable::Error { rcode, .. } = error else {
            return Admission::Silence;
        };
        if rcode == rcode::NOTIMP
            && let Some(told) = self.admit_notify(live, message, client, out)
        {
            return told;
        }
        let counters = live.enter_outside(&client, 0);
        counters.response(rcode, self.now().micros_since(client.received));
        Admission::Answered(reply::write_unanswerable(out, message, error))
    }

    /// Answers a query that the listener's gate rejects, or stays silent. Malformed messages get no reply; if
    /// no client gets one, messages are not even parsed.
    #[cold]
    pub(super) fn turn_away(
        &self,
        live: &Live,
        batch: &mut Batch,
        message: &[u8],
        client: Client,
        refusal: Refusal,
        out: &mut [u8],
    ) -> Admission {
        let heard = refusal.reply != Reply::Silence || self.shared.trace_sink.is_some();
        if let Some(query) = heard.then(|| Query::parse(message).ok()).flatten() {
            let request = self.begin(live, batch, &query, client);
            let counters = live.counters_outside(client.server);
            return self.refuse(live, counters, request, refusal, out);
        }
        live.enter_outside(&client, 0).refuse(refusal.reason);
        Admission::Silence
    }

    /// Answers a query that a gate rejects.
    #[cold]
    pub(super) fn refuse(
        &self,
        live: &Live,
        counters: &ZoneCounters,
        request: &Request,
        refusal: Refusal,
        out: &mut [u8],
    ) -> Admission {
        counters.request(&request.asked.client, request.qtype);
        counters.refuse(refusal.reason);
        explain::on_way_in(request, "clients", || refusal.reason.text().into());
        let rcode = match refusal.reply {
            Reply::Refused => rcode::REFUSED,
            Reply::Truncated => rcode::NOERROR,
            Reply::Silence => {
                self.report_outside(live, request, None, &[]);
                return Admission::Silence;
            }
        };
        let response = Response::error(rcode, ExtendedError::Prohibited);
        let head = request.reply_head(response.error);
        let size = match refusal.reply {
            Reply::Truncated => reply::write_truncated(out, &head),
            _ => response.write(out, &head),
        };
        self.finish_outside(live, counters, request, &response, &out[..size])
    }
}
