//! A filter that traps in the phases named in its configuration (in `queries` by default): it panics for
//! names that begin with `trap`, and for one in ten that begin with `tenth`; for `deep`, it recurses
//! endlessly. With `configure` in its configuration, it panics there already.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::hint::black_box;

use dnsweir_filter::{Event, Filter, Invalid, Manifest, Query, Response, ResponseVerdict, Setup, Verdict};

struct Trap {
    tenths: u32,
}

impl Filter for Trap {
    fn configure(setup: Setup<'_>) -> Result<(Trap, Manifest), Invalid> {
        let config = setup.config();
        assert!(
            config.nodes(&["configure"]).is_empty(),
            "told to panic while configuring"
        );
        let phases = config.nodes(&["queries", "responses", "events"]);
        let mut manifest = if phases.is_empty() {
            Manifest::new().queries()
        } else {
            Manifest::new()
        };
        for phase in phases {
            manifest = match phase.name() {
                "queries" => manifest.queries(),
                "responses" => manifest.responses(),
                _ => manifest.events(),
            };
        }
        Ok((Trap { tenths: 0 }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        self.trap_at(&query.name().to_string());
        Verdict::pass()
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        self.trap_at(&response.query().name().to_string());
        ResponseVerdict::pass()
    }

    fn event(&mut self, event: &Event<'_>) {
        self.trap_at(&event.query().name().to_string());
    }
}

impl Trap {
    fn trap_at(&mut self, name: &str) {
        assert!(!name.starts_with("trap"), "told to panic at {name}");
        if name.starts_with("deep") {
            black_box(deep(black_box(0)));
        }
        if name.starts_with("tenth") {
            self.tenths += 1;
            assert!(self.tenths < 10, "told to panic at every tenth {name}");
        }
    }
}

/// Returns only if the stack holds all numbers.
fn deep(depth: u64) -> u64 {
    if depth == u64::MAX {
        return 0;
    }
    black_box(deep(black_box(depth + 1))) + 1
}

dnsweir_filter::export!(Trap);
