//! Authoritative answers to signed queries (RFC 8945): secondaries sign even those for the SOA record.

use std::sync::Arc;

use super::outgoing::Outgoing;
use crate::dns::edns::Opt;
use crate::dns::query::Query;
use crate::dns::records::Answer;
use crate::dns::reply::{self, Body, Head, Ttl};
use crate::dns::tsig::{Checked, Key, check};
use crate::dns::{MESSAGE_MAXIMUM, transfer};
use dnsweir_answer::{Question, Resolution};

/// A source's answer; signed with the key of its transfers, if it has one and the query is signed.
#[inline]
pub fn say_signed(
    outgoing: Option<&Arc<Outgoing>>,
    question: &Question<'_>,
    say: impl FnOnce() -> Resolution,
) -> Resolution {
    let key = || outgoing?.config().key.as_ref();
    match question.signed.and_then(|query| Some((query, key()?))) {
        Some((query, key)) => signed(key, query, say),
        None => say(),
    }
}

/// The reply to a signed query: the answer signed with the same key, or the error of the signature. The
/// answer stays unsigned if the query's signature is not TSIG.
fn signed(key: &Key, query: &[u8], answer: impl FnOnce() -> Resolution) -> Resolution {
    let mut signer = match check(Some(key), query) {
        Checked::Unsigned => return answer(),
        Checked::Wrong(told) => return Resolution::Verbatim(told.into()),
        Checked::Signed(signer) => signer,
    };
    match answer() {
        Resolution::Answer {
            answer,
            authoritative,
        } => {
            let message = whole(query, &answer, authoritative);
            let signed = message.and_then(|message| transfer::signed(&message, &mut signer));
            signed.map_or(Resolution::BOUNDED, |signed| Resolution::Verbatim(signed.into()))
        }
        other => other,
    }
}

/// The message that the client would get unsigned.
fn whole(query: &[u8], answer: &Answer, authoritative: bool) -> Option<Vec<u8>> {
    let query = Query::parse(query).ok()?;
    let head = Head {
        id: query.id,
        flags: query.flags,
        question: query.question(),
        opt: query.edns.map(|edns| Opt {
            dnssec_ok: edns.dnssec_ok(),
            ..Opt::default()
        }),
        limit: MESSAGE_MAXIMUM,
    };
    let body = Body {
        message: &answer.message,
        ttl_offsets: answer.ttl_offsets.iter().map(|&at| usize::from(at)),
        ttl: Ttl::AS_IS,
        rcode: answer.rcode,
        authoritative,
        error_text: "",
    };
    let mut out = vec![0; MESSAGE_MAXIMUM];
    let length = reply::write(&mut out, &head, body);
    out.truncate(length);
    Some(out)
}
