//! The outcome of changing the network.

use std::net::IpAddr;

use super::error::Error;

/// What was done to the network, and what failed.
#[derive(Debug, Default)]
#[must_use = "errors must reach someone"]
pub struct Outcome {
    /// Log lines, in order.
    pub done: Vec<String>,
    /// Everything that failed.
    pub errors: Vec<Error>,
    /// Why heartbeats are not supported, where wanted: rules then hold as long as a socket exists.
    pub shortfall: Option<String>,
    /// Why there is no self-test, where wanted.
    pub untested: Option<String>,
    /// Packets matched by the rules that bring us queries, if checked.
    pub(super) packets: Option<u64>,
    /// Packets that bypassed us for lack of heartbeats, if checked.
    pub(super) unheard: Option<u64>,
    /// Addresses left alone, with their rules, because another process is bound to them.
    pub spared: Vec<IpAddr>,
}

impl Outcome {
    pub(super) fn add(&mut self, outcome: Result<Vec<String>, Error>) {
        match outcome {
            Ok(done) => self.done.extend(done),
            Err(error) => self.errors.push(error),
        }
    }

    /// Adds the outcome of another change.
    pub fn extend(&mut self, other: Outcome) {
        self.done.extend(other.done);
        self.errors.extend(other.errors);
        self.shortfall = other.shortfall.or(self.shortfall.take());
        self.untested = other.untested.or(self.untested.take());
        self.packets = other.packets.or(self.packets);
        self.unheard = other.unheard.or(self.unheard);
        self.spare(other.spared);
    }

    pub(super) fn spare(&mut self, ips: Vec<IpAddr>) {
        let new = ips.into_iter().filter(|ip| !self.spared.contains(ip));
        let new: Vec<IpAddr> = new.collect();
        self.spared.extend(new);
    }
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        Outcome {
            errors: vec![error],
            ..Outcome::default()
        }
    }
}
