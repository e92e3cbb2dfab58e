//! Receives notifications that a zone has changed (RFC 1996).

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use super::stage::Secondary;
use crate::dns::tsig::{Checked, check};
use crate::dns::{flag, transfer, u16_at};

/// Bytes copied from the header: the ID. The rest is ours.
const ID: usize = 2;

/// QR, the opcode NOTIFY and AA, for responses.
const RESPONSE: u16 = flag::QR | 4 << 11 | flag::AA;

/// A NOTIFY message.
#[derive(Debug, Clone, Copy)]
pub struct AskedNotify<'a> {
    /// The zone's name, lowercased, in wire format.
    pub name: &'a [u8],
    /// The question as received.
    pub question: &'a [u8],
    /// The whole message.
    pub message: &'a [u8],
    /// The sender's address.
    pub client: IpAddr,
}

/// The reply to a NOTIFY message.
pub enum Notified {
    /// This message.
    Heard(Vec<u8>),
    /// REFUSED.
    Refused,
}

impl Secondary {
    /// Handles a NOTIFY message for one of its zones: only from primaries, and signed if a key is configured.
    /// None if no zone has that name.
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
        // NOTIFY messages are coalesced: one check runs at a time.
        state.heard(asked.client);
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
