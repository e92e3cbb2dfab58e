//! Being told that a zone has changed (RFC 1996).

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use super::stage::Secondary;
use crate::dns::tsig::{Checked, check};
use crate::dns::{flag, transfer, u16_at};

/// Octets of a header that are copied: the ID. What follows is ours.
const ID: usize = 2;

/// The opcode NOTIFY, in a response that speaks with authority.
const RESPONSE: u16 = flag::QR | 4 << 11 | flag::AA;

/// A NOTIFY message.
#[derive(Debug, Clone, Copy)]
pub struct AskedNotify<'a> {
    /// The zone, lowercased, in wire format.
    pub name: &'a [u8],
    /// The question as it came.
    pub question: &'a [u8],
    /// The whole message.
    pub message: &'a [u8],
    /// Who sent it.
    pub client: IpAddr,
}

/// What whoever tells gets.
pub enum Notified {
    /// This message.
    Heard(Vec<u8>),
    /// REFUSED.
    Refused,
}

impl Secondary {
    /// Takes a NOTIFY message for one of its zones: from primaries alone, and signed where a key is named. None: it is for none.
    pub fn notified(&self, asked: &AskedNotify<'_>) -> Option<Notified> {
        let state = self
            .states()
            .iter()
            .find(|state| state.origin.as_bytes() == asked.name)?;
        let is_primary = self
            .config()
            .primaries
            .iter()
            .any(|primary| primary.ip() == asked.client);
        let key = self.config().key.as_ref();
        let checked = is_primary.then(|| key.map(|key| check(Some(key), asked.message)));
        let refused = |notified| {
            state.counters.refused.fetch_add(1, Relaxed);
            Some(notified)
        };
        let mut signer = match checked {
            None | Some(Some(Checked::Unsigned)) => return refused(Notified::Refused),
            Some(Some(Checked::Wrong(told))) => return refused(Notified::Heard(told)),
            Some(Some(Checked::Signed(signer))) => Some(signer),
            Some(None) => None,
        };
        state.counters.heard.fetch_add(1, Relaxed);
        // However many come, there is one look after the other.
        state.wake.notify_one();
        let mut response = asked.message[..ID].to_vec();
        response.extend(RESPONSE.to_be_bytes());
        response.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        response.extend(asked.question);
        debug_assert_eq!(u16_at(&response, 4), 1);
        match &mut signer {
            None => Some(Notified::Heard(response)),
            Some(signer) => transfer::signed(&response, signer).map(Notified::Heard),
        }
    }
}
