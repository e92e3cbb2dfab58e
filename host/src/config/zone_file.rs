//! `file`: a zone file that a zone is answered from.

use std::path::Path;
use std::sync::Arc;

use kdl::KdlNode;

use super::decode::{Mistakes, Shape, arguments, block, head, text};
use super::error::Diagnostic;
use super::forward::Place;
use super::kubernetes::fallthrough;
use super::name::zone_name;
use super::transfer;
use super::units::size;
use super::{Span, ZoneFile};
use crate::zonefile::{self, Bounds};

pub(super) const FILE: Shape = Shape {
    example: r#"file "/etc/dnsweir/zones/example.org""#,
    arguments: 1..=1,
    properties: &[],
    children: &["origin", "fallthrough", "memory", "transfer"],
    repeated: &[],
};

/// Default of what a zone may take, in octets.
const MEMORY: usize = 64 << 20;

/// Decodes `file` in a zone with these names; none, if the file is no zone.
pub(super) fn decode(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    zones: &[String],
    node: &KdlNode,
) -> Option<ZoneFile> {
    mistakes.check(node, &FILE);
    let nodes = block(node);
    let origin = mistakes.scalar(nodes, r#"origin "example.org""#, zone_name);
    let memory = mistakes.scalar(nodes, r#"memory "64MiB""#, size(1 << 10..=1 << 36));
    let fallthrough = fallthrough(mistakes, nodes);
    let transfer = transfer::decode(mistakes, place.keys, nodes);
    let path = place.folder.join(mistakes.argument(node, text)?);
    place.files.note(&path);
    let span = arguments(node)
        .next()
        .map_or(head(node), |entry| entry.span().into());
    let origins = origin.as_ref().map_or(zones, std::slice::from_ref);
    let bounds = Bounds {
        octets: memory.unwrap_or(MEMORY),
    };
    let mut read = Vec::new();
    for origin in origins {
        read.push(zone(mistakes, place, &path, origin, bounds, span)?);
    }
    Some(ZoneFile {
        path,
        zones: read,
        fallthrough,
        memory: bounds.octets,
        transfer,
    })
}

/// Reads a zone, and reports what is wrong with its files.
fn zone(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    path: &Path,
    origin: &str,
    bounds: Bounds,
    span: Span,
) -> Option<Arc<zonefile::Zone>> {
    match zonefile::read(path, origin, bounds) {
        Ok(zone) => {
            zone.files.iter().for_each(|(file, _)| place.files.note(file));
            Some(zone)
        }
        Err(found) => {
            for mistake in found {
                mistakes.push(Diagnostic::new(span, mistake.to_string()).help(mistake.help));
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{in_zone, parse_in, problems};
    use super::super::{SourceConfig, Stage};
    use super::*;

    fn file(stages: &[Stage]) -> &ZoneFile {
        match &stages[0] {
            Stage::Source(SourceConfig::File(file)) => file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_name_of_a_zone_is_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("zone"),
            "@ 60 SOA ns admin 1 2 3 4 5\n$INCLUDE more\n",
        )
        .unwrap();
        fs::write(folder.path().join("more"), "a A 192.0.2.1\n").unwrap();
        let text = "listen \"127.0.0.1\"\nzone \"a.test\" \"b.test\" { file \"zone\" }\n\
                    zone \"c.test\" { file \"zone\" { origin \"x.c.test\"; memory \"1MiB\"; fallthrough }; forward \"192.0.2.1\" }";
        let config = parse_in(folder.path(), text).unwrap();
        let (both, other) = (file(&config.zones[0].stages), file(&config.zones[1].stages));
        let origins = |file: &ZoneFile| {
            file.zones
                .iter()
                .map(|zone| zone.origin.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(origins(both), ["a.test.", "b.test."]);
        assert_eq!(
            (origins(other), other.memory),
            (vec!["x.c.test.".to_owned()], 1 << 20)
        );
        assert_eq!(
            (both.memory, other.fallthrough.as_slice()),
            (64 << 20, &[".".to_owned()][..])
        );
        for name in ["zone", "more"] {
            assert!(config.files.contains(&folder.path().join(name)), "{name}");
        }
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("file", "`file` needs a value"),
            (
                "file \"a\" { origin \"..\" }",
                "`origin`: \"..\" is not a domain name",
            ),
            ("file \"a\" { nonsense }", "`nonsense` is not allowed in `file`"),
            (
                "file \"/none\"; forward \"192.0.2.1\"",
                "no query reaches this `forward`",
            ),
        ] {
            let found = problems(&in_zone(text));
            assert!(
                found.iter().any(|problem| problem.starts_with(expected)),
                "{found:?}"
            );
        }
        let named =
            "listen \"127.0.0.1\"\nzone \".\" { forward \"192.0.2.1\" }\nsource \"a\" { file \"/none\" }";
        assert_eq!(
            problems(named),
            ["`file` answers for the names of a zone, and a named source has none"]
        );
    }
}
