//! Who gets a zone.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::asked::Asked;
use super::contents::{Contents, is_newer, serial};
use super::counters::{Counters, Outcome};
use super::place::Place;
use super::stream::Transfer;
use crate::config;
use crate::dns::edns::ExtendedError;
use crate::dns::records::{Section, Walk, counts};
use crate::dns::transfer::Response;
use crate::dns::tsig::{Checked, Signer, check};
use crate::dns::{HEADER, rcode, rtype, u16_at, u32_at};
use crate::figures::Figures;

/// What whoever asks for a transfer gets.
pub enum Reply {
    /// No records, with this rcode.
    Refused(u16, ExtendedError),
    /// This message.
    Message(Vec<u8>),
    /// One message after the other.
    Stream(Box<Transfer>),
}

/// What `transfer` says of a source.
pub struct Outgoing {
    config: config::Transfer,
    begun: AtomicBool,
    /// What became of those who asked.
    pub counters: Arc<Counters>,
}

impl Outgoing {
    /// Nobody has asked yet.
    pub fn new(config: &config::Transfer) -> Arc<Outgoing> {
        Arc::new(Outgoing {
            config: config.clone(),
            begun: AtomicBool::new(false),
            counters: Arc::default(),
        })
    }

    /// One for each of so many zones, or none if nobody may have them.
    pub(crate) fn of_each(config: Option<&config::Transfer>, zones: usize) -> Vec<Arc<Outgoing>> {
        let each = config
            .into_iter()
            .flat_map(|config| std::iter::repeat_n(config, zones));
        each.map(Outgoing::new).collect()
    }

    /// What is written about it.
    pub fn config(&self) -> &config::Transfer {
        &self.config
    }

    /// Whether this is the first time that it is asked.
    pub fn begins(&self) -> bool {
        !self.begun.swap(true, Relaxed)
    }

    /// What somebody gets who asks for a zone.
    pub fn answer(&self, contents: impl FnOnce() -> Arc<dyn Contents>, asked: &Asked<'_>) -> Reply {
        if !self
            .config
            .to
            .iter()
            .any(|network| network.contains(asked.client))
        {
            return self.refuse(Outcome::Refused, rcode::REFUSED, ExtendedError::Prohibited);
        }
        let mut signer = match check(self.config.key.as_ref(), asked.message) {
            Checked::Signed(signer) => Some(signer),
            Checked::Unsigned if self.config.key.is_none() => None,
            Checked::Unsigned => {
                return self.refuse(Outcome::Refused, rcode::REFUSED, ExtendedError::Prohibited);
            }
            Checked::Wrong(told) => {
                self.counters.count(Outcome::Refused);
                return Reply::Message(told);
            }
        };
        // RFC 5936 section 4.2: there is no AXFR over UDP.
        if asked.qtype == rtype::AXFR && !asked.stream {
            return self.refuse(Outcome::Refused, rcode::REFUSED, ExtendedError::Other);
        }
        let contents = contents();
        let soa = contents.soa();
        let known = (asked.qtype == rtype::IXFR).then(|| known_serial(asked));
        let is_new = match known {
            None => true,
            // RFC 1995 section 3: there is a SOA record in the request.
            Some(None) => return self.refuse(Outcome::Refused, rcode::FORMERR, ExtendedError::Other),
            Some(Some(known)) => is_newer(serial(&soa), known),
        };
        // RFC 1995 section 2: who has the zone as it is gets its SOA record alone, and so does, to ask over TCP, whoever
        // would get more than a datagram holds.
        if !is_new || !asked.stream {
            self.counters.count(Outcome::SoaOnly);
            let soa_only = alone(asked, &soa, signer.as_deref_mut());
            return soa_only.map_or(
                Reply::Refused(rcode::SERVFAIL, ExtendedError::Other),
                Reply::Message,
            );
        }
        match Place::enter(&self.counters) {
            Some(place) => Reply::Stream(Box::new(Transfer::new(place, contents, asked, signer))),
            None => self.refuse(Outcome::Full, rcode::SERVFAIL, ExtendedError::Other),
        }
    }

    fn refuse(&self, outcome: Outcome, rcode: u16, error: ExtendedError) -> Reply {
        self.counters.count(outcome);
        Reply::Refused(rcode, error)
    }

    /// Adds what `/metrics` shows of it.
    pub fn show(&self, origin: &str, figures: &mut Figures) {
        self.counters.show(origin, figures);
    }
}

/// The serial of the zone that whoever asks has.
fn known_serial(asked: &Asked<'_>) -> Option<u32> {
    let mut walk = Walk::new(
        asked.message,
        HEADER + asked.question.len(),
        counts(asked.message),
    );
    let soa = walk.find_map(|record| {
        let record = record.ok()?;
        (record.section == Section::Authority && record.rtype == rtype::SOA).then_some(record.data)
    })?;
    let at = soa.end.checked_sub(20).filter(|at| *at >= soa.start)?;
    Some(u32_at(asked.message, at))
}

fn alone(
    asked: &Asked<'_>,
    soa: &crate::dns::transfer::Record,
    signer: Option<&mut Signer>,
) -> Option<Vec<u8>> {
    let mut response = Response::new(u16_at(asked.message, 0), Some(asked.question))?;
    response.push(soa).then(|| response.finish(signer))?
}
