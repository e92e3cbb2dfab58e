//! The contents of a zone, for transfers.

use crate::dns::transfer::Record;
use crate::dns::u32_at;

/// A zone that does not change while it is held.
pub trait Contents {
    /// Its SOA record.
    fn soa(&self) -> Record;

    /// All other records, in batches: a batch is created at once, without waiting for the client.
    fn batches(&self) -> Box<dyn Iterator<Item = Vec<Record>> + '_>;
}

/// The serial of an SOA record; 0 if it is not one.
pub fn serial(soa: &Record) -> u32 {
    match soa.data.len().checked_sub(20) {
        Some(at) => u32_at(&soa.data, at),
        None => 0,
    }
}

/// Whether serial `one` is newer than `other` (RFC 1982 section 3.2).
pub(crate) fn is_newer(one: u32, other: u32) -> bool {
    matches!(one.wrapping_sub(other), 1..0x8000_0000)
}
