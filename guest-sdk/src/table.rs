//! Tables that all instances of a filter share.

use std::time::Duration;

/// A table of the filter's own: what one worker of the proxy writes, all others see, and a reload or another module does not
/// lose it, as long as the name of the filter and the name and size of the table stay the same. [`Setup::table`] declares
/// one.
///
/// Each function is one call into the host, some tenths of a microsecond, and does one thing at once: nobody comes between
/// the two halves of an [`add`](Table::add). Where the table is full, what was written longest ago gives way, about: it is for
/// what can be found out again, or forgotten.
///
/// A value is octets, a number or a bucket of tokens. A number is its 8 octets, little-endian.
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
    /// In the manifest.
    index: u32,
}

impl Table {
    /// What an entry counts as beside the octets of its key and value.
    pub const OVERHEAD: usize = 192;

    pub(crate) fn new(index: u32) -> Table {
        Table { index }
    }

    /// The value under a key; none of a bucket.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        host::get(self.index, key.as_ref())
    }

    /// The number under a key.
    pub fn number(&self, key: impl AsRef<[u8]>) -> Option<i64> {
        let octets = self.get(key)?;
        octets.try_into().ok().map(i64::from_le_bytes)
    }

    /// Puts a value in the place of what is there, for a time if there is one. False if the table refused it: keys have at
    /// most 1024 octets, and entries at most 64 KiB, and no more than the table.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Option<Duration>) -> bool {
        host::put(self.index, key.as_ref(), value.as_ref(), milliseconds(ttl))
    }

    /// Removes what is under a key. Whether there was anything.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        host::remove(self.index, key.as_ref())
    }

    /// Adds to a number, and gives the sum. Where there is none it begins with 0, for a time if there is one; later
    /// additions do not prolong it.
    pub fn add(&self, key: impl AsRef<[u8]>, by: i64, ttl: Option<Duration>) -> i64 {
        host::add(self.index, key.as_ref(), by, milliseconds(ttl))
    }

    /// Puts `new`, or removes what is there if that is none, if the value is still as expected. Whether it did.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        ttl: Option<Duration>,
    ) -> bool {
        host::compare_and_swap(self.index, key.as_ref(), expected, new, milliseconds(ttl))
    }

    /// Takes so many tokens out of a bucket, which fills by `rate` a second up to `burst` and starts full. Whether they were
    /// there: if not, none is taken.
    pub fn take(&self, key: impl AsRef<[u8]>, tokens: u32, rate: f64, burst: u32) -> bool {
        host::take(self.index, key.as_ref(), tokens, rate, burst)
    }
}

/// As the host has it: 0 is without end, so the shortest time is 1.
fn milliseconds(ttl: Option<Duration>) -> u64 {
    ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1))
}

#[cfg(all(target_family = "wasm", not(doc)))]
use crate::bindings::dnsweir::filter::tables as host;
#[cfg(any(doc, not(target_family = "wasm")))]
use crate::test::tables as host;
