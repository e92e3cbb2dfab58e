//! Builds a zone from another server's records, with the same checks as for a zone file.

use super::builder::Builder;
use super::zone::Zone;
use crate::dns::name::Name;
use crate::dns::rtype;
use crate::dns::text::type_text;
use crate::dns::transfer::Record;

/// The highest TTL; a higher one counts as 0 (RFC 2181 section 8).
const HIGHEST_TTL: u32 = i32::MAX as u32;

/// Builds the zone of this name from these records; it may take at most `most` bytes.
///
/// # Errors
/// What is wrong with the first record that cannot be in it, in words.
pub fn from_records(origin: &Name, records: Vec<Record>, most: usize) -> Result<Zone, String> {
    let mut builder = Builder::new(origin, most);
    for record in records {
        let owner = Name::lowercased(&record.owner);
        let wrong = |problem: &str| format!("{owner} {}: {problem}", type_text(record.rtype));
        // Types only for queries and messages (RFC 6895 section 3.1).
        if matches!(record.rtype, 0 | rtype::OPT | 128..=255) {
            return Err(wrong("records of this type are in no zone"));
        }
        let ttl = if record.ttl > HIGHEST_TTL { 0 } else { record.ttl };
        let pushed = builder.push(&record.owner, record.rtype, ttl, record.data.into_vec());
        pushed.map_err(|mistake| wrong(&mistake.problem))?;
    }
    builder.finish(Vec::new()).map_err(|mistake| mistake.problem)
}
