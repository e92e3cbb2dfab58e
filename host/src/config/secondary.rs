//! `secondary`: a zone that is had from other servers.

use kdl::KdlNode;

use super::address::{DNS_PORT, address};
use super::decode::{Mistakes, Shape, arguments, block};
use super::forward::Place;
use super::kubernetes::fallthrough;
use super::units::{duration, ms, s, size};
use super::{Secondary, transfer};

pub(super) const SECONDARY: Shape = Shape {
    example: r#"secondary "192.0.2.1" "192.0.2.2" { key "transfers.example.org" }"#,
    arguments: 1..=16,
    properties: &[],
    children: &["key", "fallthrough", "memory", "time", "wait", "transfer"],
    repeated: &[],
};

/// Decodes `secondary` in a zone with these names.
pub(super) fn decode(
    mistakes: &mut Mistakes,
    place: &Place<'_>,
    zones: &[String],
    node: &KdlNode,
) -> Secondary {
    mistakes.check(node, &SECONDARY);
    let nodes = block(node);
    let primaries = arguments(node).filter_map(|entry| mistakes.value("secondary", entry, address(DNS_PORT)));
    let primaries = primaries.collect();
    Secondary {
        primaries,
        origins: zones.to_vec(),
        key: transfer::key(mistakes, place.keys, nodes),
        fallthrough: fallthrough(mistakes, nodes),
        memory: mistakes
            .scalar(nodes, r#"memory "64MiB""#, size(1 << 10..=1 << 36))
            .unwrap_or(64 << 20),
        time: mistakes
            .scalar(nodes, r#"time "10m""#, duration(s(1)..=s(86_400)))
            .unwrap_or(s(600)),
        wait: mistakes
            .scalar(nodes, r#"wait "1m""#, duration(ms(0)..=s(3600)))
            .unwrap_or(s(60)),
        transfer: transfer::decode(mistakes, place.keys, nodes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, zone};
    use super::super::{SourceConfig, Stage};
    use super::*;

    #[test]
    fn every_word_is_read() {
        let zone = zone(
            r#"secondary "192.0.2.1" "192.0.2.2:5353" {
                fallthrough; memory "1MiB"; time "1m"; wait "2s"; transfer { to "192.0.2.7" }
            }
            forward "192.0.2.3""#,
        );
        let Stage::Source(SourceConfig::Secondary(secondary)) = &zone.stages[0] else {
            panic!("{zone:?}");
        };
        let primaries: Vec<String> = secondary.primaries.iter().map(ToString::to_string).collect();
        assert_eq!(primaries, ["192.0.2.1:53", "192.0.2.2:5353"]);
        assert_eq!(
            (secondary.memory, secondary.time, secondary.wait),
            (1 << 20, s(60), s(2))
        );
        assert!(secondary.key.is_none() && secondary.transfer.is_some());
        assert_eq!(
            (&*secondary.origins, &*secondary.fallthrough),
            (&[".".to_owned()][..], &[".".to_owned()][..])
        );
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("secondary", "`secondary` needs a value"),
            ("secondary \"a\"", "`secondary`: \"a\" is not an IP address"),
            (
                "secondary \"192.0.2.1\" { key \"other\" }",
                "there is no key other.",
            ),
            (
                "secondary \"192.0.2.1\" { time \"0s\" }",
                "`time`: \"0s\" is out of range",
            ),
            (
                "secondary \"192.0.2.1\"; forward \"192.0.2.1\"",
                "no query reaches this `forward`",
            ),
        ] {
            let found = problems(&super::super::tests::in_zone(text));
            assert_eq!(found[0], expected, "{text}");
        }
    }
}
