//! A filter that never returns for names that begin with `spin`, and takes milliseconds for those with
//! `busy`.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use dnsweir_filter::{Filter, Invalid, Manifest, Query, Setup, Verdict};

struct Spin;

impl Filter for Spin {
    fn configure(_: Setup<'_>) -> Result<(Spin, Manifest), Invalid> {
        Ok((Spin, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let name = query.name().to_string();
        if name.starts_with("spin") {
            loop {
                std::hint::spin_loop();
            }
        }
        if name.starts_with("busy") {
            // Counted, so that the work is the same on every machine.
            for step in 0..30_000_000_u32 {
                std::hint::black_box(step);
            }
        }
        Verdict::pass()
    }
}

dnsweir_filter::export!(Spin);
