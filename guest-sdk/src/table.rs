//! Tables shared by all instances of a filter.

use std::time::Duration;

/// A table shared by all instances of a filter: what one worker of the proxy writes, all others see. It
/// survives reloads and module swaps, as long as the names of filter and table, and the table's size, stay
/// the same. Declared with [`Setup::table`].
///
/// Each method is one atomic call into the host, which takes some tenths of a microsecond: no other worker
/// can come between the two halves of an [`add`](Table::add). A full table evicts, roughly, the entries
/// written longest ago, so store only what can be found out again, or forgotten.
///
/// A value is bytes, a number or a token bucket. A number is stored as 8 bytes, little-endian.
///
/// ```
/// use std::time::Duration;
/// use dnsweir_filter::{Filter, Invalid, Manifest, Query, Rcode, Setup, Table, Type, Verdict, test};
///
/// /// Refuses the clients that ask more than ten times a second.
/// struct Limit(Table);
///
/// impl Filter for Limit {
///     fn configure(setup: Setup<'_>) -> Result<(Limit, Manifest), Invalid> {
///         Ok((Limit(setup.table("clients", 1 << 20)), Manifest::new().queries()))
///     }
///
///     fn query(&mut self, query: &Query<'_>) -> Verdict {
///         match self.0.take(query.client().to_string(), 1, 10.0, 10) {
///             true => Verdict::pass(),
///             false => Verdict::refuse(Rcode::REFUSED),
///         }
///     }
/// }
///
/// let mut filter = test::start::<Limit>([]).unwrap();
/// let query = test::query("www.example.org", Type::A);
/// assert!((0..10).all(|_| filter.query(&query) == Verdict::pass()));
/// assert_eq!(filter.query(&query), Verdict::refuse(Rcode::REFUSED));
/// // Another worker knows of it.
/// let mut other = test::start_beside::<Limit, _>(&filter, []).unwrap();
/// assert_eq!(other.query(&query), Verdict::refuse(Rcode::REFUSED));
/// assert_eq!(other.query(&query.time(Duration::from_secs(1))), Verdict::pass());
/// ```
///
/// [`Setup::table`]: crate::Setup::table
#[derive(Debug)]
pub struct Table {
    /// The table's index in the manifest.
    index: u32,
}

impl Table {
    /// The size in bytes that an entry counts in addition to its key and value.
    pub const OVERHEAD: usize = 192;

    pub(crate) fn new(index: u32) -> Table {
        Table { index }
    }

    /// The value of a key; none for a bucket.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        host::get(self.index, key.as_ref())
    }

    /// The number stored under a key.
    pub fn number(&self, key: impl AsRef<[u8]>) -> Option<i64> {
        let octets = self.get(key)?;
        octets.try_into().ok().map(i64::from_le_bytes)
    }

    /// Stores a value, replacing the old one; with a `ttl`, it expires. Returns false if the table refuses
    /// it: keys have at most 1024 bytes, and entries at most 64 KiB and no more than the table.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Option<Duration>) -> bool {
        host::put(self.index, key.as_ref(), value.as_ref(), milliseconds(ttl))
    }

    /// Removes an entry. Returns whether there was one.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        host::remove(self.index, key.as_ref())
    }

    /// Adds to a number, and returns the sum. A missing number counts as 0; its `ttl`, if any, starts then,
    /// and later additions do not extend it.
    pub fn add(&self, key: impl AsRef<[u8]>, by: i64, ttl: Option<Duration>) -> i64 {
        host::add(self.index, key.as_ref(), by, milliseconds(ttl))
    }

    /// Stores `new`, or removes the entry if `new` is none, if the value is still `expected`. Returns whether
    /// it was.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        ttl: Option<Duration>,
    ) -> bool {
        host::compare_and_swap(self.index, key.as_ref(), expected, new, milliseconds(ttl))
    }

    /// Takes tokens out of a bucket, which starts full and refills by `rate` per second up to `burst`.
    /// Returns false, and takes none, if there are too few.
    pub fn take(&self, key: impl AsRef<[u8]>, tokens: u32, rate: f64, burst: u32) -> bool {
        host::take(self.index, key.as_ref(), tokens, rate, burst)
    }
}

/// The host's form of a TTL: 0 means unlimited, so the shortest TTL is 1.
fn milliseconds(ttl: Option<Duration>) -> u64 {
    ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1))
}

#[cfg(all(target_family = "wasm", not(doc)))]
use crate::bindings::dnsweir::filter::tables as host;
#[cfg(any(doc, not(target_family = "wasm")))]
use crate::test::tables as host;
