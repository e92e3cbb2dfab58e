//! Questions whose type stands for no records of the name, or whose records are elsewhere.
//!
//! They are rare, so that one test of the type keeps them off the path of all others.

use crate::dns::edns::ExtendedError;
use crate::dns::{rcode, rtype};

use super::batch::Admission;
use super::live::Live;
use super::request::Request;
use super::response::Response;
use super::worker::Worker;
use super::zones::ZoneMatch;

/// MAILB and MAILA, for mail as it was before MX (RFC 1035 section 3.2.3).
const MAILB: u16 = 253;
const MAILA: u16 = 254;

/// Whether [`Worker::admit_unlike_others`] handles this type.
// Tested for every query.
#[inline(always)]
pub(super) fn is_unlike_others(qtype: u16) -> bool {
    matches!(
        qtype,
        0 | rtype::HINFO | rtype::DS | rtype::NXNAME | rtype::TKEY..=MAILA
    )
}

impl Worker {
    /// Returns the owner of a question of such a type, or the reply to it.
    #[cold]
    #[inline(never)]
    pub(super) fn admit_unlike_others(
        &self,
        live: &Live,
        request: &mut Request,
        message: &[u8],
        out: &mut [u8],
    ) -> Result<Option<ZoneMatch>, Admission> {
        let owner = live.answerer(request);
        let answer = match request.qtype {
            rtype::AXFR | rtype::IXFR | rtype::TKEY => {
                return Err(self.admit_transfer(live, request, message, owner, out));
            }
            rtype::HINFO if live.is_own_probe(request.name.as_bytes()) => match owner {
                Some(ZoneMatch::Pipeline { .. }) => Response::error(rcode::REFUSED, ExtendedError::Other),
                _ => return Ok(owner),
            },
            rtype::HINFO | rtype::DS => return Ok(owner),
            // RFC 1035 section 4.1.1: this kind of query is not supported. Clients do not send it, and
            // upstreams refuse it.
            MAILB | MAILA => Response::error(rcode::NOTIMP, ExtendedError::InvalidQueryType),
            // Types that occur only in messages, or nowhere: not to be forwarded (RFC 9824 section 3.5 for
            // NXNAME, RFC 6895 section 3.1 for 0, RFC 8945 section 4.2 for TSIG).
            _ => Response::error(rcode::FORMERR, ExtendedError::InvalidQueryType),
        };
        Err(self.answer_outside(live, request, &answer, out))
    }
}
