//! Decides which clients may have a zone.

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
use crate::metrics::Metrics;

/// The reply to a transfer request.
pub enum Reply {
    /// No records, with this rcode.
    Refused(u16, ExtendedError),
    /// A single message.
    Message(Vec<u8>),
    /// A stream of messages.
    Stream(Box<Transfer>),
}

/// The `transfer` rules of a source.
pub struct Outgoing {
    config: config::Transfer,
    begun: AtomicBool,
    /// Counts the outcomes of requests.
    pub counters: Arc<Counters>,
}

impl Outgoing {
    /// The rules, before any request.
    pub fn new(config: &config::Transfer) -> Arc<Outgoing> {
        Arc::new(Outgoing {
            config: config.clone(),
            begun: AtomicBool::new(false),
            counters: Arc::default(),
        })
    }

    /// One for each of `zones` zones; empty if transfers are not configured.
    pub(crate) fn of_each(config: Option<&config::Transfer>, zones: usize) -> Vec<Arc<Outgoing>> {
        let each = config
            .into_iter()
            .flat_map(|config| std::iter::repeat_n(config, zones));
        each.map(Outgoing::new).collect()
    }

    /// The configuration.
    pub fn config(&self) -> &config::Transfer {
        &self.config
    }

    /// Returns true on the first call only.
    pub fn begins(&self) -> bool {
        !self.begun.swap(true, Relaxed)
    }

    /// The reply to a transfer request for a zone.
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
        // RFC 5936 section 4.2: AXFR is not allowed over UDP.
        if asked.qtype == rtype::AXFR && !asked.stream {
            return self.refuse(Outcome::Refused, rcode::REFUSED, ExtendedError::Other);
        }
        let contents = contents();
        let soa = contents.soa();
        let known = (asked.qtype == rtype::IXFR).then(|| known_serial(asked));
        let is_new = match known {
            None => true,
            // RFC 1995 section 3: the request contains an SOA record.
            Some(None) => return self.refuse(Outcome::Refused, rcode::FORMERR, ExtendedError::Other),
            Some(Some(known)) => is_newer(serial(&soa), known),
        };
        // RFC 1995 section 2: a client with the current zone gets only its SOA record. So does one over UDP,
        // which must retry over TCP.
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

    /// Adds its metrics.
    pub fn show(&self, origin: &str, metrics: &mut Metrics) {
        self.counters.show(origin, metrics);
    }
}

/// The serial of the client's version of the zone.
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
