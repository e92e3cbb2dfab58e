//! `cache`: how long answers are kept.

use std::time::Duration;

use kdl::KdlNode;

use super::decode::{Mistakes, Shape, block, boolean, child, head, property, whole};
use super::error::{Diagnostic, Span};
use super::units::{duration, ms, s, spell_duration, ttl};
use super::{Cache, Keeping, Prefetch, ServeStale};

pub(super) const CACHE: Shape = Shape {
    example: r#"cache { success max="1h"; denial max="30m"; prefetch; serve-stale "1h" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &["success", "denial", "failure", "prefetch", "serve-stale"],
    repeated: &[],
};

pub(super) const SUCCESS: Shape = Shape {
    example: r#"success min="0s" max="1h""#,
    ..KEEPING
};
pub(super) const DENIAL: Shape = Shape {
    example: r#"denial min="0s" max="30m""#,
    ..KEEPING
};
pub(super) const KEEPING: Shape = Shape {
    example: "",
    arguments: 0..=0,
    properties: &["min", "max", "store"],
    children: &[],
    repeated: &[],
};

pub(super) const PREFETCH: Shape = Shape {
    example: "prefetch hits=2 percent=10",
    arguments: 0..=0,
    properties: &["hits", "percent"],
    children: &[],
    repeated: &[],
};

pub(super) const SERVE_STALE: Shape = Shape {
    example: r#"serve-stale "1h" ttl="30s" after="1800ms""#,
    arguments: 0..=1,
    properties: &["ttl", "after"],
    children: &[],
    repeated: &[],
};

/// A week: what RFC 8767 section 4 suggests as the cap of a TTL.
const LONGEST: Duration = s(7 * 86_400);

/// Decodes `cache`.
pub(super) fn decode(mistakes: &mut Mistakes, node: &KdlNode) -> Cache {
    mistakes.check(node, &CACHE);
    let nodes = block(node);
    Cache {
        success: keeping(mistakes, child(nodes, "success"), &SUCCESS, s(3600)),
        denial: keeping(mistakes, child(nodes, "denial"), &DENIAL, s(1800)),
        // RFC 9520 section 3.2: failures are kept for at least 1 second and at most 5 minutes.
        failure: mistakes
            .scalar(nodes, r#"failure "5s""#, duration(s(1)..=s(300)))
            .unwrap_or(s(5)),
        prefetch: child(nodes, "prefetch").map(|node| prefetch(mistakes, node)),
        serve_stale: child(nodes, "serve-stale").map(|node| serve_stale(mistakes, node)),
    }
}

fn keeping(mistakes: &mut Mistakes, node: Option<&KdlNode>, shape: &Shape, max: Duration) -> Keeping {
    let mut bounds = Keeping {
        min: s(0),
        max,
        store: true,
    };
    let Some(node) = node else { return bounds };
    mistakes.check(node, shape);
    if node.entries().is_empty() {
        let empty = Diagnostic::new(head(node), format!("`{}` is empty", node.name().value()));
        mistakes.push(empty.help(format!("write: {}", shape.example)));
    }
    let min = mistakes.property(node, "min", ttl(s(0)..=LONGEST));
    let max = mistakes.property(node, "max", ttl(s(0)..=LONGEST));
    // A bound that did not parse must not look wrong a second time.
    let readable =
        min.is_some() == property(node, "min").is_some() && max.is_some() == property(node, "max").is_some();
    bounds.store = mistakes.property(node, "store", boolean).unwrap_or(true);
    bounds.min = min.unwrap_or(bounds.min);
    bounds.max = max.unwrap_or(bounds.max);
    if readable && bounds.min > bounds.max {
        let problem = format!(
            "`min` ({}) is greater than `max` ({})",
            spell_duration(bounds.min),
            spell_duration(bounds.max)
        );
        let place = property(node, "min")
            .map(|entry| Span::from(entry.span()))
            .unwrap_or(head(node));
        mistakes.push(Diagnostic::new(place, problem).help("lower `min` or raise `max`"));
    }
    bounds
}

fn prefetch(mistakes: &mut Mistakes, node: &KdlNode) -> Prefetch {
    mistakes.check(node, &PREFETCH);
    Prefetch {
        hits: mistakes.property(node, "hits", whole(1..=1_000_000)).unwrap_or(2),
        percent: mistakes.property(node, "percent", whole(1..=90)).unwrap_or(10),
    }
}

fn serve_stale(mistakes: &mut Mistakes, node: &KdlNode) -> ServeStale {
    mistakes.check(node, &SERVE_STALE);
    ServeStale {
        window: mistakes
            .argument(node, duration(s(1)..=LONGEST))
            .unwrap_or(s(3600)),
        // RFC 8767 section 4: greater than 0; 30 seconds are recommended.
        ttl: mistakes
            .property(node, "ttl", ttl(s(1)..=s(3600)))
            .unwrap_or(s(30)),
        after: mistakes
            .property(node, "after", duration(s(0)..=s(10)))
            .unwrap_or(ms(1800)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{in_zone, problems, zone};
    use super::super::{Stage, Zone};
    use super::*;

    fn cache(text: &str) -> Cache {
        let Zone { stages, .. } = zone(&format!("{text}\nforward \"192.0.2.1\""));
        match stages.into_iter().next() {
            Some(Stage::Cache(cache)) => cache,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_has_a_default() {
        let expected = Cache {
            success: Keeping {
                min: s(0),
                max: s(3600),
                store: true,
            },
            denial: Keeping {
                min: s(0),
                max: s(1800),
                store: true,
            },
            failure: s(5),
            prefetch: None,
            serve_stale: None,
        };
        assert_eq!(cache("cache"), expected);
        assert_eq!(cache("cache {}"), expected);
        let both = cache("cache { prefetch; serve-stale }");
        assert_eq!(both.prefetch, Some(Prefetch { hits: 2, percent: 10 }));
        assert_eq!(
            both.serve_stale,
            Some(ServeStale {
                window: s(3600),
                ttl: s(30),
                after: ms(1800)
            })
        );
    }

    #[test]
    fn every_word_is_read() {
        let cache = cache(
            r#"cache {
                success min="5s" max="30s"
                denial max="5s" store=#false
                failure "1m"
                prefetch hits=10 percent=25
                serve-stale "1d" ttl="1s" after="0s"
            }"#,
        );
        assert_eq!(
            cache.success,
            Keeping {
                min: s(5),
                max: s(30),
                store: true,
            }
        );
        let unkept = Keeping {
            min: s(0),
            max: s(5),
            store: false,
        };
        assert_eq!(cache.denial, unkept);
        assert_eq!(cache.failure, s(60));
        assert_eq!(
            cache.prefetch,
            Some(Prefetch {
                hits: 10,
                percent: 25
            })
        );
        assert_eq!(
            cache.serve_stale,
            Some(ServeStale {
                window: s(86_400),
                ttl: s(1),
                after: s(0)
            })
        );
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("cache 30", "`cache` takes no values"),
            (
                "cache { sucess max=\"1s\" }",
                "`sucess` is not allowed in `cache`",
            ),
            ("cache { success }", "`success` is empty"),
            ("cache { success \"30s\" }", "`success` takes no values"),
            ("cache { success max=30 }", "`max`: 30 is not a duration"),
            (
                "cache { success max=\"1500ms\" }",
                "`max`: \"1500ms\" is not a TTL",
            ),
            ("cache { success max=\"8d\" }", "`max`: \"8d\" is out of range"),
            (
                "cache { success min=\"2h\" }",
                "`min` (2h) is greater than `max` (1h)",
            ),
            (
                "cache { denial min=\"5s\" max=\"4s\" }",
                "`min` (5s) is greater than `max` (4s)",
            ),
            ("cache { denial min=\"5s\" max=4 }", "`max`: 4 is not a duration"),
            (
                "cache { failure \"999ms\" }",
                "`failure`: \"999ms\" is out of range",
            ),
            (
                "cache { failure \"301s\" }",
                "`failure`: \"301s\" is out of range",
            ),
            ("cache { prefetch hits=0 }", "`hits`: 0 is out of range"),
            ("cache { prefetch percent=91 }", "`percent`: 91 is out of range"),
            ("cache { prefetch percent=0 }", "`percent`: 0 is out of range"),
            (
                "cache { prefetch percent=\"10%\" }",
                "`percent`: \"10%\" is not a whole number",
            ),
            (
                "cache { serve-stale ttl=\"0s\" }",
                "`ttl`: \"0s\" is out of range",
            ),
            (
                "cache { serve-stale after=\"11s\" }",
                "`after`: \"11s\" is out of range",
            ),
            (
                "cache { serve-stale \"0s\" }",
                "`serve-stale`: \"0s\" is out of range",
            ),
        ] {
            assert_eq!(
                problems(&in_zone(&format!("{text}\nforward \"192.0.2.1\""))),
                [expected],
                "{text}"
            );
        }
    }
}
