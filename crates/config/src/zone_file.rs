//! `file`: answers a zone from a zone file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kdl::KdlNode;

use super::decode::{Decoder, arguments, block, child, text, value_span};
use super::error::Span;
use super::kubernetes::FALLTHROUGH;
use super::name::{is_within, zone_name};
use super::transfer::{self, Transfer};
use super::units::size;
use super::words::{Table, words};
use crate::zonefile::{self, Bounds};

words! {
    /// `file "PATH" { … }`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct ZoneFile in FILE(1..=1): r#"file "/etc/dnsweir/zones/example.org""#, then read_zones;

    /// The zone file.
    values "PATH" path: PathBuf = ("required"), "a path";
    /// Missing names at or below these names (without a value, all) are left to the next stage.
    table "fallthrough" fallthrough: Vec<String> = ("off") in FALLTHROUGH, "names";
    /// Memory for the zone, and largest size of its files. A reload needs three times as much.
    one "memory" memory: usize = "64MiB" in size(1 << 10..=1 << 36);
    /// [Who may transfer the zone](#transfer).
    table "transfer" transfer: Option<Transfer> = none in transfer::TRANSFER, "a block";
    by hand {
        /// The name of the zone in the file; other names are left to the next stage.
        hand "origin" = ("each name of the zone") in ORIGIN, "a name";
    }
    besides {
        /// The contents: one zone per name of the `zone` block, or only the one in `origin "NAME"`.
        zones: Vec<Arc<zonefile::Zone>>;
    }
}

const ORIGIN: Table<()> = Table::plain(1..=1, r#"origin "example.org""#);

/// Reads the file, once for each zone.
fn read_zones(decoder: &mut Decoder, node: &KdlNode, file: &mut ZoneFile) {
    let origin = decoder.scalar(block(node), ORIGIN.shape.example, zone_name);
    let Some(written) = decoder.argument(node, text) else {
        return;
    };
    file.path = decoder.files.at(written);
    decoder.files.note(&file.path);
    let origins = origin.map_or_else(|| decoder.around.zones.clone(), |origin| vec![origin]);
    let bounds = Bounds { octets: file.memory };
    // The mistakes in it are the same for each.
    let zones = origins
        .iter()
        .map_while(|origin| zone(decoder, &file.path, origin, bounds, value_span(node)));
    file.zones = zones.collect();
}

/// Whether the file has only part of the names of a zone; others are left to the next stage.
pub(super) fn is_part(node: &KdlNode, names: &[String]) -> bool {
    let Some(origin) = child(block(node), "origin").and_then(|origin| arguments(origin).next()) else {
        return false;
    };
    // What is no name is reported; it is unknown which was meant.
    let Ok(origin) = zone_name(origin.value()) else {
        return true;
    };
    names.is_empty() || !names.iter().all(|name| is_within(name, &origin))
}

/// Reads a zone file, and reports the mistakes in it and its includes.
fn zone(
    decoder: &mut Decoder,
    path: &Path,
    origin: &str,
    bounds: Bounds,
    span: Span,
) -> Option<Arc<zonefile::Zone>> {
    match zonefile::read(path, origin, bounds) {
        Ok(zone) => {
            zone.files.iter().for_each(|(file, _)| decoder.files.note(file));
            Some(zone)
        }
        Err(invalid) => {
            invalid.files.iter().for_each(|file| decoder.files.note(file));
            for mistake in invalid.mistakes {
                decoder.report(span, mistake.to_string(), mistake.help);
            }
            None
        }
    }
}
