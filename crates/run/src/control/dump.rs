//! Formats cached answers as text.

use std::io::{self, Write};

use dnsweir_os::clock::Uptime;

use crate::cache::{Entry, Freshness, Kind};
use crate::dns::name::Name;
use crate::dns::records::Section;
use crate::dns::text::{aged_record_lines, type_text};

/// Writes an answer: a comment about it, then its records as zone file lines with their remaining TTLs.
pub(crate) fn write_entry(out: &mut impl Write, entry: &Entry, now: Uptime) -> io::Result<()> {
    let lifetime = entry.lifetime();
    let (state, age) = match lifetime.freshness(now) {
        Freshness::Fresh { age_secs } => (format!("{} s left", lifetime.ttl_secs - age_secs), age_secs),
        // Failures are not served stale.
        Freshness::Stale { overdue_secs } if entry.kind() != Kind::Failure => {
            (format!("stale for {overdue_secs} s"), lifetime.ttl_secs)
        }
        Freshness::Stale { .. } | Freshness::Gone => return Ok(()),
    };
    let name = Name::lowercased(entry.name());
    let qtype = type_text(entry.qtype());
    let kind = entry.kind().as_str();
    let hits = entry.hits();
    writeln!(
        out,
        "; {name} {qtype}: {kind}, {state}, used {hits} times{}",
        entry.flags()
    )?;
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        for line in aged_record_lines(entry.wire(), section, age) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
