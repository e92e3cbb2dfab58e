//! NOTIFY messages, by which a primary announces that a zone has changed (RFC 1996).

use crate::dns::edns::ExtendedError;
use crate::dns::name::{Name, skip_plain};
use crate::dns::{CLASS_IN, HEADER, QUERY_MAXIMUM, QUESTION_TAIL, flag, rcode, reply, rtype, u16_at};
use crate::source::{AskedNotify, Notified};

use super::asked::Client;
use super::batch::Admission;
use super::live::Live;
use super::response::Response;
use super::worker::Worker;

/// The opcode NOTIFY, at its position in the header.
const NOTIFY: u16 = 4 << 11;

impl Worker {
    /// Answers a NOTIFY for a zone that is transferred from primaries; `None`: it is something else, or for
    /// another zone.
    #[cold]
    #[inline(never)]
    pub(super) fn admit_notify(
        &self,
        live: &Live,
        message: &[u8],
        client: Client,
        out: &mut [u8],
    ) -> Option<Admission> {
        let is_notify = u16_at(message, 2) & flag::OPCODE == NOTIFY && u16_at(message, 4) == 1;
        if !is_notify || message.len() > QUERY_MAXIMUM {
            return None;
        }
        let end = skip_plain(message, HEADER).ok()?;
        let question = message.get(HEADER..end + QUESTION_TAIL)?;
        if (u16_at(message, end), u16_at(message, end + 2)) != (rtype::SOA, CLASS_IN) {
            return None;
        }
        let name = Name::lowercased(&message[HEADER..end]);
        let asked = AskedNotify {
            name: name.as_bytes(),
            question,
            message,
            client: client.address.ip(),
        };
        let mut sources = live.generation.sources.iter();
        let notified = sources.find_map(|source| source.notified(&asked))?;
        let head = reply::Head {
            id: u16_at(message, 0),
            flags: u16_at(message, 2),
            question,
            opt: None,
            limit: client.limit.min(out.len()),
        };
        let size = match &notified {
            Notified::Heard(told) => reply::write_verbatim(out, &head, told),
            Notified::Refused => Response::error(rcode::REFUSED, ExtendedError::Prohibited).write(out, &head),
        };
        if let Notified::Refused = notified {
            // The reply has the same opcode.
            out[2] |= (NOTIFY >> 8) as u8;
        }
        let took = self.now().micros_since(client.received);
        let counters = live.enter_outside(&client, rtype::SOA);
        counters.response(u16_at(out, 2) & flag::RCODE, took);
        Some(Admission::Answered(size))
    }
}
