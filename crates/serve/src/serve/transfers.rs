//! Zone transfers (RFC 5936): between a zone's servers, so filters and the cache take no part.

use crate::dns::edns::ExtendedError;
use crate::dns::{CLASS_IN, Origin, Transport, rcode};
use crate::source::{AskedTransfer, TransferReply};
use dnsweir_answer::Resolution;

use super::batch::Admission;
use super::explain;
use super::generation::Stage;
use super::live::Live;
use super::request::Request;
use super::response::Response;
use super::worker::Worker;
use super::zones::ZoneMatch;

impl Worker {
    /// Answers a transfer request. Clients that the zone's `clients` rejects are rejected here, too.
    #[cold]
    #[inline(never)]
    pub(super) fn admit_transfer(
        &self,
        live: &Live,
        request: &mut Request,
        message: &[u8],
        owner: Option<ZoneMatch>,
        out: &mut [u8],
    ) -> Admission {
        let client = request.asked.client;
        if let Some(ZoneMatch::Pipeline { pipeline, zone }) = owner {
            (request.pipeline, request.zone) = (pipeline, zone);
            if let Some(refusal) = live.refusal(request, pipeline, &self.shared.ledger) {
                return self.refuse(live, live.counters(request), request, refusal, out);
            }
        }
        let counters = live.enter_outside(&client, request.qtype);
        let reply = transfer_of(live, request, message, owner);
        let did = match &reply {
            TransferReply::Stream(_) => "all of the zone is sent",
            TransferReply::Message(_) => "its SOA record is sent, or what is wrong with the signature",
            TransferReply::Refused(..) => "no zone that is transferred to this client",
        };
        explain::on_way_in(request, "transfer", || did.into());
        let response = match reply {
            TransferReply::Stream(transfer) => {
                counters.response(rcode::NOERROR, self.now().micros_since(client.received));
                self.report_outside(live, request, None, &[]);
                return Admission::Transfer(transfer);
            }
            TransferReply::Refused(rcode, error) => Response::error(rcode, error),
            TransferReply::Message(message) => {
                Response::of_source(Resolution::Verbatim(message.into()), Origin::Local)
            }
        };
        let size = response.write(out, &request.reply_head(response.error));
        self.finish_outside(live, counters, request, &response, &out[..size])
    }
}

/// Asks the sources of the zone.
fn transfer_of(live: &Live, request: &Request, message: &[u8], owner: Option<ZoneMatch>) -> TransferReply {
    let asked = AskedTransfer {
        name: request.name.as_bytes(),
        qtype: request.qtype,
        question: &request.question,
        message,
        client: request.asked.client.address.ip(),
        // HTTPS and QUIC would need separate streams (RFC 9250 section 4.2), and are not used for transfers.
        stream: matches!(request.asked.client.transport, Transport::Tcp | Transport::Tls),
    };
    let refused = TransferReply::Refused(rcode::REFUSED, ExtendedError::Other);
    let Some(ZoneMatch::Pipeline { pipeline, .. }) = owner.filter(|_| request.qclass == CLASS_IN) else {
        return refused;
    };
    let mut sources = live.generation.pipelines[pipeline]
        .stages
        .iter()
        .filter_map(|stage| match stage {
            Stage::Source(index) => Some(&live.generation.sources[*index]),
            Stage::Filter(_) | Stage::Cache(_) => None,
        });
    sources
        .find_map(|source| source.transfer(&asked))
        .unwrap_or(refused)
}
