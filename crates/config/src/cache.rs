//! `cache`: how long answers are kept.

use std::time::Duration;

use kdl::KdlNode;

use super::decode::{Decoder, boolean, property, whole};
use super::error::Span;
use super::units::{duration, s, spell_duration, ttl};
use super::words::words;

words! {
    /// `cache { … }`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Cache in CACHE(0..=0): r#"cache { success max="1h"; denial max="30m"; prefetch; serve-stale "1h" }"#;

    /// How positive answers are kept.
    table "success" success: Keeping = defaults in SUCCESS;
    /// How negative answers (NXDOMAIN and NODATA, RFC 2308) are kept.
    table "denial" denial: Keeping = defaults in DENIAL;
    /// How long a failure is cached (RFC 9520 section 3.2). If the next attempt also fails, twice as long, then three
    /// times, but at most five minutes; less if a failed upstream recovers.
    one "failure" failure: Duration = "5s" in duration(s(1)..=s(300));
    /// Refresh an answer that was asked for at least `hits` times, in the last `percent` of its lifetime.
    table "prefetch" prefetch: Option<Prefetch> = off in PREFETCH;
    /// How long after its TTL an expired answer may be served when there is no fresh one (RFC 8767).
    table "serve-stale" serve_stale: Option<ServeStale> = off in SERVE_STALE;
}

words! {
    /// How long answers of one kind are kept. TTLs are whole seconds; `min` is not above `max`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Keeping in SUCCESS(0..=0): r#"success min="0s" max="1h""#, then look_at_bounds;

    /// Lower TTLs are raised to this.
    property "min" min: Duration = "0s" in ttl(s(0)..=LONGEST);
    /// Higher TTLs are lowered to this.
    property "max" max: Duration = "1h" in ttl(s(0)..=LONGEST);
    /// `#false`: such answers are not cached, but their TTLs stay within the bounds.
    property "store" store: bool = true in boolean;
}

words! {
    Keeping in DENIAL(0..=0): r#"denial min="0s" max="30m""#, then look_at_bounds;

    /// Lower TTLs are raised to this.
    property "min" min: Duration = "0s" in ttl(s(0)..=LONGEST);
    /// Higher TTLs are lowered to this.
    property "max" max: Duration = "30m" in ttl(s(0)..=LONGEST);
    /// `#false`: such answers are not cached, but their TTLs stay within the bounds.
    property "store" store: bool = true in boolean;
}

words! {
    /// Refetches an entry requested at least `hits` times when `percent` of its lifetime is left.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Prefetch in PREFETCH(0..=0): "prefetch hits=2 percent=10";

    /// How many times the answer must have been asked for.
    property "hits" hits: u32 = 2 in whole(1..=1_000_000);
    /// How much of its lifetime may be left, in percent.
    property "percent" percent: u8 = 10 in whole(1..=90);
}

words! {
    /// Serves expired answers when no fresh one is available (RFC 8767).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct ServeStale in SERVE_STALE(0..=1): r#"serve-stale "1h" ttl="30s" after="1800ms""#;

    /// How long past its TTL an entry may be served.
    value "TIME" window: Duration = "1h" in duration(s(1)..=LONGEST);
    /// TTL of a stale answer; RFC 8767 section 4 recommends 30 seconds.
    property "ttl" ttl: Duration = "30s" in ttl(s(1)..=s(3600));
    /// How long a client first waits for a fresh answer (RFC 8767 section 5).
    property "after" after: Duration = "1800ms" in duration(s(0)..=s(10));
}

/// One week: the cap on TTLs that RFC 8767 section 4 suggests.
const LONGEST: Duration = s(7 * 86_400);

/// Reports an empty node, and a `min` above `max`.
fn look_at_bounds(decoder: &mut Decoder, node: &KdlNode, keeping: &mut Keeping) {
    let name = node.name().value();
    if node.entries().is_empty() {
        let table = if name == "denial" { &DENIAL } else { &SUCCESS };
        decoder.report(node, format!("`{name}` is empty"), table.shape.help());
    }
    // Do not report a bound twice if it did not parse.
    let is_read = |name| property(node, name).is_none_or(|entry| ttl(s(0)..=LONGEST)(entry.value()).is_ok());
    if keeping.min > keeping.max && is_read("min") && is_read("max") {
        let problem = format!(
            "`min` ({}) is greater than `max` ({})",
            spell_duration(keeping.min),
            spell_duration(keeping.max)
        );
        let place = property(node, "min").map_or(Span::from(node), Span::from);
        decoder.report(place, problem, "lower `min` or raise `max`");
    }
}
