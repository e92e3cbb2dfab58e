//! A filter that panics: at every name that begins with `trap`, in the phases its configuration names (in
//! `queries` if it names none), and before that if it says `configure`.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use dnsweir_filter::{Event, Filter, Invalid, Manifest, Query, Response, ResponseVerdict, Setup, Verdict};

struct Trap;

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
        Ok((Trap, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        panic_at(&query.name().to_string());
        Verdict::pass()
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        panic_at(&response.query().name().to_string());
        ResponseVerdict::pass()
    }

    fn event(&mut self, event: &Event<'_>) {
        panic_at(&event.query().name().to_string());
    }
}

fn panic_at(name: &str) {
    assert!(!name.starts_with("trap"), "told to panic at {name}");
}

dnsweir_filter::export!(Trap);
