//! What became of queries, as far as filters choose by it which of them they hear of.

use super::bindings::dnsweir::filter::types::{Manifest, Outcome};
use crate::dns::rcode;

/// A set of outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes(u8);

impl Outcomes {
    /// None: nobody hears.
    pub const NONE: Outcomes = Outcomes(0);
    /// Every query is heard of.
    pub const ALL: Outcomes = Outcomes(!0);

    const SUCCESS: Outcomes = Outcomes::one(Outcome::Success);
    const DENIAL: Outcomes = Outcomes::one(Outcome::Denial);
    const ERROR: Outcomes = Outcomes::one(Outcome::Error);

    const fn one(outcome: Outcome) -> Outcomes {
        Outcomes(1 << outcome as u8)
    }

    /// What a filter hears of.
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

    /// What became of a query: the response code and whether there are answers; none: it was dropped.
    #[inline]
    pub fn of(response: Option<(u16, bool)>) -> Outcomes {
        match response {
            Some((rcode::NOERROR, true)) => Outcomes::SUCCESS,
            Some((rcode::NOERROR | rcode::NXDOMAIN, _)) => Outcomes::DENIAL,
            _ => Outcomes::ERROR,
        }
    }

    /// Those of either.
    #[must_use]
    pub fn and(self, others: Outcomes) -> Outcomes {
        Outcomes(self.0 | others.0)
    }

    /// Whether there is one in both.
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
            // An alias whose target does not exist.
            (Some((rcode::NXDOMAIN, true)), Outcome::Denial),
            (Some((rcode::SERVFAIL, false)), Outcome::Error),
            (Some((rcode::REFUSED, true)), Outcome::Error),
            // BADVERS, of which NOERROR is the lower part.
            (Some((16, false)), Outcome::Error),
            (None, Outcome::Error),
        ] {
            assert_eq!(Outcomes::of(response), Outcomes::one(outcome), "{response:?}");
            assert!(Outcomes::ALL.meet(Outcomes::of(response)));
            assert!(!Outcomes::NONE.meet(Outcomes::of(response)));
        }
    }
}
