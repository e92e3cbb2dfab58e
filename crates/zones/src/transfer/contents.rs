//! What a zone has, as it is transferred.

use crate::dns::transfer::Record;
use crate::dns::u32_at;

/// A zone that does not change while somebody holds it.
pub trait Contents {
    /// Its SOA record.
    fn soa(&self) -> Record;

    /// All other records, some at a time: so many are made before anybody waits for the client.
    fn batches(&self) -> Box<dyn Iterator<Item = Vec<Record>> + '_>;
}

/// The serial of an SOA record; 0: it is none.
pub fn serial(soa: &Record) -> u32 {
    match soa.data.len().checked_sub(20) {
        Some(at) => u32_at(&soa.data, at),
        None => 0,
    }
}

/// Whether one serial comes after another one (RFC 1982 section 3.2).
pub(crate) fn is_newer(one: u32, other: u32) -> bool {
    matches!(one.wrapping_sub(other), 1..0x8000_0000)
}
