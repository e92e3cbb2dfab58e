//! What a worker samples of its queries, for [`observed`](super::observed).

use super::observed::Troubled;
use super::request::Request;
use super::response::Response;
use super::worker::{Clocks, Worker};

impl Worker {
    /// Samples the queries of a batch.
    #[inline(always)]
    pub(super) fn observe(&self, requests: &[Request]) {
        if self.sampler.reaches(requests.len()) {
            self.note_askers(requests);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_askers(&self, requests: &[Request]) {
        let Some(now) = requests.last().map(|last| last.asked.client.received) else {
            return;
        };
        let mut lists = self.shared.observed.lists();
        self.sampler.choose(requests.len(), now, |index, weight| {
            let request = &requests[index];
            if let Some(lists) = &mut lists {
                let client = request.asked.client.address.ip();
                lists.asked(request.name.as_bytes(), client, weight, now);
            }
        });
    }

    /// Records a failed or slow query, unless another was recorded just before.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_trouble(&self, request: &Request, response: &Response, took: u64, clocks: Clocks) {
        if !self.sampler.keeps(clocks.now) {
            return;
        }
        let Some(mut lists) = self.shared.observed.lists_soon() else {
            return;
        };
        lists.keep(Troubled {
            at: clocks.unix,
            client: request.asked.client.address.ip().to_canonical(),
            name: request.name.as_bytes().to_vec(),
            qtype: request.qtype,
            rcode: response.rcode,
            error: response.error,
            origin: response.origin,
            took,
        });
    }
}
