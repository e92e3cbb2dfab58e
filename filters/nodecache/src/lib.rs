//! Cache policies by name: whether the cache may store an answer, for how long, and beyond its TTL.
//!
//! It belongs below `cache`, where it runs only on misses and its edits decide what is stored. It decides in
//! the query phase by the name alone, so verdicts are remembered and it sees no responses.

mod policy;

use std::time::Duration;

use dnsweir_filter::{Filter, Invalid, Manifest, Query, Setup, Verdict};

use policy::Policies;

/// How long the host may remember a verdict. Bounded, so that it forgets names that are no longer asked for.
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
