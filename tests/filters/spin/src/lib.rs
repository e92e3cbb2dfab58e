//! A filter that never returns: from any query whose name begins with `spin`.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use dnsweir_filter::{Filter, Invalid, Manifest, Query, Setup, Verdict};

struct Spin;

impl Filter for Spin {
    fn configure(_: Setup<'_>) -> Result<(Spin, Manifest), Invalid> {
        Ok((Spin, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        if query.name().to_string().starts_with("spin") {
            loop {
                std::hint::spin_loop();
            }
        }
        Verdict::pass()
    }
}

dnsweir_filter::export!(Spin);
