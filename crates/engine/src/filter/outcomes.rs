//! Outcomes of queries, by which filters choose the events they receive.

use super::bindings::dnsweir::filter::types::{Manifest, Outcome};
use crate::dns::rcode;

/// A set of outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes(u8);

impl Outcomes {
    /// No outcome: the filter receives no events.
    pub const NONE: Outcomes = Outcomes(0);
    /// Every outcome.
    pub const ALL: Outcomes = Outcomes(!0);

    const SUCCESS: Outcomes = Outcomes::one(Outcome::Success);
    const DENIAL: Outcomes = Outcomes::one(Outcome::Denial);
    const ERROR: Outcomes = Outcomes::one(Outcome::Error);

    const fn one(outcome: Outcome) -> Outcomes {
        Outcomes(1 << outcome as u8)
    }

    /// The outcomes for which a filter receives events.
    pub(super) fn heard(manifest: &Manifest) -> Outcomes {
        if !manifest.events {
            return Outcomes::NONE;
        }
        if manifest.outcomes.is_empty() {
            return Outcomes::ALL;
        }
        let each = manifest.outcomes.iter().map(|outcome| Outcomes::one(*outcome));
        each.fold(Outcomes::NONE, Outcomes::and)
    }

    /// The outcome of a query, from its rcode and whether it has answers; none: it was dropped.
    #[inline]
    pub fn of(response: Option<(u16, bool)>) -> Outcomes {
        match response {
            Some((rcode::NOERROR, true)) => Outcomes::SUCCESS,
            Some((rcode::NOERROR | rcode::NXDOMAIN, _)) => Outcomes::DENIAL,
            _ => Outcomes::ERROR,
        }
    }

    /// The union of both sets.
    #[must_use]
    pub fn and(self, others: Outcomes) -> Outcomes {
        Outcomes(self.0 | others.0)
    }

    /// Whether the sets intersect.
    #[inline]
    pub fn meet(self, others: Outcomes) -> bool {
        self.0 & others.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_response_has_one() {
        for (response, outcome) in [
            (Some((rcode::NOERROR, true)), Outcome::Success),
            (Some((rcode::NOERROR, false)), Outcome::Denial),
            (Some((rcode::NXDOMAIN, false)), Outcome::Denial),
            // A CNAME whose target does not exist.
            (Some((rcode::NXDOMAIN, true)), Outcome::Denial),
            (Some((rcode::SERVFAIL, false)), Outcome::Error),
            (Some((rcode::REFUSED, true)), Outcome::Error),
            // BADVERS, whose lower four bits are NOERROR.
            (Some((16, false)), Outcome::Error),
            (None, Outcome::Error),
        ] {
            assert_eq!(Outcomes::of(response), Outcomes::one(outcome), "{response:?}");
            assert!(Outcomes::ALL.meet(Outcomes::of(response)));
            assert!(!Outcomes::NONE.meet(Outcomes::of(response)));
        }
    }
}
