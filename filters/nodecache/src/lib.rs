//! What the cache may do with a name: keep it, for how long, and past its TTL.
//!
//! Its place is below `cache`, where it runs for misses only and its edits decide what is kept. It
//! decides by the name alone, with the query, so verdicts are remembered and responses never come here.

mod policy;

use std::time::Duration;

use dnsweir_filter::{Filter, Invalid, Manifest, Query, Setup, Verdict};

use policy::Policies;

/// How long the host may go without asking again. Not forever, so that its memory of names that
/// nobody asks for any more has an end.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter.
pub struct Nodecache(Policies);

impl Filter for Nodecache {
    fn configure(setup: Setup<'_>) -> Result<(Nodecache, Manifest), Invalid> {
        let policies = Policies::read(setup)?;
        let manifest = Manifest::new().queries().at_or_below(policies.names());
        Ok((Nodecache(policies), manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let verdict = match self.0.of(query.name()).into_edit() {
            Some(edit) => Verdict::pass().edit(edit),
            None => Verdict::pass(),
        };
        verdict.remember(REMEMBER)
    }
}

dnsweir_filter::export!(Nodecache);
