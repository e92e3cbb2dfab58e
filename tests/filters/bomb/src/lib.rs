//! A filter that allocates endlessly: until it dies for queries whose name begins with `bomb`, and for every
//! other query a little that it never frees.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use dnsweir_filter::{Filter, Invalid, Manifest, Query, Setup, Verdict};

struct Bomb(Vec<Vec<u8>>);

impl Filter for Bomb {
    fn configure(_: Setup<'_>) -> Result<(Bomb, Manifest), Invalid> {
        Ok((Bomb(Vec::new()), Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let name = query.name().to_string();
        self.0.push(vec![1; 1024]);
        while name.starts_with("bomb") {
            self.0.push(vec![1; 1 << 16]);
        }
        Verdict::pass()
    }
}

dnsweir_filter::export!(Bomb);
