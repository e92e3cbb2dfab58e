//! One cached answer.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use dnsweir_os::clock::Uptime;
use smallvec::SmallVec;
use triomphe::{HeaderWithLength, ThinArc};

use super::freshness::{Lifetime, REFRESH_RECHECK};
use super::key::{Key, KeyFlags};
use crate::config::Prefetch;
use crate::dns::HEADER;
use crate::dns::edns::{ExtendedError, ExtendedErrorCode};

/// Length of a TTL field in bytes (RFC 1035 §4.1.3).
const TTL_LEN: usize = 4;

/// Stands for "no INFO-CODE": the last code for private use (RFC 8914 section 5.2).
const NO_ERROR: ExtendedErrorCode = u16::MAX;

/// The kind of answer that an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records were found.
    Success,
    /// The name does not exist, or has no record of that type (RFC 2308).
    Denial,
    /// The question could not be answered (RFC 9520). Never served stale.
    Failure,
}

impl Kind {
    /// Every kind, in the order that [`Kind::index`] numbers them.
    pub const ALL: [Self; 3] = [Self::Success, Self::Denial, Self::Failure];

    /// The label of this kind in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Denial => "denial",
            Self::Failure => "failure",
        }
    }

    /// This kind's index into an array with one element per kind.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A finished answer to cache.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The whole message without OPT, which is not cached (RFC 6891 §6.2.1); at most 65,535 bytes.
    pub wire: &'a [u8],
    /// Offsets of the records' TTL fields in `wire`.
    pub ttl_offsets: &'a [u16],
    /// The kind of answer.
    pub kind: Kind,
    /// The extended error (RFC 8914), if any. A failure without one gets Cached Error.
    pub error: Option<ExtendedErrorCode>,
    /// How long it is fresh, in seconds. It is not stored if this is 0.
    pub ttl_secs: u32,
    /// How long it may be served after that, in seconds. Ignored for failures, which are never served stale.
    pub stale_secs: u32,
    /// Now.
    pub now: Uptime,
}

/// A cached answer: immutable, except for its usage marks. A clone is the same entry.
///
/// It is a single allocation, so that a lookup gets from the slot to the bytes it compares in one step: the
/// marks, then the message, the TTL offsets as native-endian pairs of bytes, and the name.
#[derive(Clone, Debug)]
pub struct Entry(ThinArc<Marks, u8>);

/// The fields of an entry beside its bytes.
#[derive(Debug)]
struct Marks {
    lifetime: Lifetime,
    partition: u64,
    /// [`Uptime`] in microseconds.
    retry_at: AtomicU64,
    hits: AtomicU32,
    qtype: u16,
    qclass: u16,
    wire_len: u16,
    /// [`NO_ERROR`] if there is none.
    error: ExtendedErrorCode,
    flags: KeyFlags,
    kind: Kind,
    name_len: u8,
    refreshing: AtomicBool,
}

/// Size in bytes that most entries fit in: longer ones are put together on the heap before they are stored.
const MOST_ENTRIES: usize = 512;

impl Entry {
    /// Returns `None` if the key or the message could not have come off the wire. Hits index the message by
    /// the TTL offsets, so offsets outside of it are refused here, once.
    pub(super) fn new(key: &Key<'_>, stored: &Stored<'_>) -> Option<Self> {
        let wire_len = u16::try_from(stored.wire.len()).ok()?;
        // RFC 1035 §3.1: a name has at most 255 octets, so its length fits.
        let name_len = u8::try_from(key.name.len()).ok()?;
        let fits = |&at: &u16| usize::from(at) >= HEADER && usize::from(at) + TTL_LEN <= stored.wire.len();
        if stored.wire.len() < HEADER || !stored.ttl_offsets.iter().all(fits) {
            return None;
        }
        let mut octets = SmallVec::<[u8; MOST_ENTRIES]>::with_capacity(Self::content_len(key, stored));
        octets.extend_from_slice(stored.wire);
        for offset in stored.ttl_offsets {
            octets.extend_from_slice(&offset.to_ne_bytes());
        }
        octets.extend_from_slice(key.name);
        let marks = Marks {
            lifetime: Lifetime {
                stored_at: stored.now,
                ttl_secs: stored.ttl_secs,
                stale_secs: match stored.kind {
                    // Never served: RFC 8767 is about data that was right once. The entry is kept for another
                    // TTL, so that a repeated failure is cached for longer.
                    Kind::Failure => stored.ttl_secs,
                    Kind::Success | Kind::Denial => stored.stale_secs,
                },
            },
            partition: key.partition,
            retry_at: AtomicU64::new(0),
            hits: AtomicU32::new(0),
            qtype: key.qtype,
            qclass: key.qclass,
            wire_len,
            error: match (stored.error, stored.kind) {
                (Some(error), _) => error,
                // RFC 8914 section 4.14.
                (None, Kind::Failure) => ExtendedError::CachedError.code(),
                (None, Kind::Success | Kind::Denial) => NO_ERROR,
            },
            flags: key.flags,
            kind: stored.kind,
            name_len,
            refreshing: AtomicBool::new(false),
        };
        Some(Self(ThinArc::from_header_and_slice(marks, &octets)))
    }

    #[inline]
    fn marks(&self) -> &Marks {
        &self.0.header.header
    }

    #[inline]
    fn octets(&self) -> &[u8] {
        &self.0.slice
    }

    fn content_len(key: &Key<'_>, stored: &Stored<'_>) -> usize {
        stored.wire.len() + size_of_val(stored.ttl_offsets) + key.name.len()
    }

    /// Heap bytes that an entry takes, including the allocator's overhead.
    pub(super) fn cost(key: &Key<'_>, stored: &Stored<'_>) -> usize {
        let fixed = size_of::<usize>() + size_of::<HeaderWithLength<Marks>>();
        heap_bytes((fixed + Self::content_len(key, stored)).next_multiple_of(align_of::<Marks>()))
    }

    #[inline]
    pub(super) fn answers(&self, key: &Key<'_>) -> bool {
        let marks = self.marks();
        marks.qtype == key.qtype
            && marks.qclass == key.qclass
            && marks.flags == key.flags
            && marks.partition == key.partition
            && self.name() == key.name
    }

    /// The message as it was stored.
    #[inline]
    pub fn wire(&self) -> &[u8] {
        &self.octets()[..usize::from(self.marks().wire_len)]
    }

    /// The queried name: wire format, lower case.
    #[inline]
    pub fn name(&self) -> &[u8] {
        let octets = self.octets();
        &octets[octets.len() - usize::from(self.marks().name_len)..]
    }

    /// The queried type.
    pub fn qtype(&self) -> u16 {
        self.marks().qtype
    }

    /// The query's bits that the answer depends on. Displayed with a comma before each.
    pub fn flags(&self) -> KeyFlags {
        self.marks().flags
    }

    /// Offsets of the records' TTL fields in the message.
    #[inline]
    pub fn ttl_offsets(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        let (marks, octets) = (self.marks(), self.octets());
        let end = octets.len() - usize::from(marks.name_len);
        let pairs = octets[usize::from(marks.wire_len)..end].chunks_exact(2);
        pairs.map(|pair| usize::from(u16::from_ne_bytes([pair[0], pair[1]])))
    }

    /// The kind of answer.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.marks().kind
    }

    /// The extended error, if any (RFC 8914).
    #[inline]
    pub fn error(&self) -> Option<ExtendedErrorCode> {
        Some(self.marks().error).filter(|&error| error != NO_ERROR)
    }

    /// The answer's rcode. An extended rcode's upper bits are in OPT, which is not cached.
    #[inline]
    pub fn rcode(&self) -> u8 {
        self.octets()[3] & 0x0f
    }

    /// When it was stored and how long it may be served.
    #[inline]
    pub fn lifetime(&self) -> Lifetime {
        self.marks().lifetime
    }

    /// Lookups since it was stored.
    #[inline]
    pub fn hits(&self) -> u32 {
        self.marks().hits.load(Ordering::Relaxed)
    }

    /// Called with the shard locked, so a load and a store act like an atomic addition.
    #[inline]
    pub(super) fn count_hit(&self) {
        self.marks()
            .hits
            .store(self.hits().saturating_add(1), Ordering::Relaxed);
    }

    /// Whether to refresh this answer ahead of time. A caller that gets `true` should try
    /// [`Entry::claim_refresh`].
    #[inline]
    pub(crate) fn prefetch_due(&self, prefetch: &Prefetch, now: Uptime) -> bool {
        self.lifetime().is_prefetch_due(prefetch, self.hits(), now)
            && !self.marks().refreshing.load(Ordering::Relaxed)
            && self.may_retry(now, Uptime::START)
    }

    /// Whether another refresh may be tried: the last failure is long enough ago (RFC 8767 §5), or an
    /// upstream has recovered since, at `recovered`. Until then a stale answer is served without asking
    /// upstream.
    #[inline]
    pub(crate) fn may_retry(&self, now: Uptime, recovered: Uptime) -> bool {
        let retry_at = Uptime::from_micros(self.marks().retry_at.load(Ordering::Relaxed));
        now >= retry_at || retry_at.minus(REFRESH_RECHECK) < recovered
    }

    /// Claims the right to refresh this entry, for one caller at a time and not while a recent failure holds
    /// it back. Dropping the claim releases it, so a cancelled refresh does not block later ones.
    pub(crate) fn claim_refresh(&self, now: Uptime, recovered: Uptime) -> Option<RefreshClaim> {
        if self.may_retry(now, recovered) && !self.marks().refreshing.swap(true, Ordering::Relaxed) {
            Some(RefreshClaim { entry: self.clone() })
        } else {
            None
        }
    }

    /// Records that a refresh failed just now: the next may start [`REFRESH_RECHECK`] later.
    pub(crate) fn refresh_failed(&self, now: Uptime) {
        self.marks()
            .retry_at
            .store(now.plus(REFRESH_RECHECK).as_micros(), Ordering::Relaxed);
    }
}

/// The right to refresh one entry, released when dropped. See [`Entry::claim_refresh`].
#[derive(Debug)]
pub(crate) struct RefreshClaim {
    entry: Entry,
}

impl RefreshClaim {
    /// The entry to refresh.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }
}

impl Drop for RefreshClaim {
    fn drop(&mut self) {
        self.entry.marks().refreshing.store(false, Ordering::Relaxed);
    }
}

/// Heap bytes that an allocation of `len` takes. glibc adds a word, rounds up to 16 and returns no block
/// below 32; most others are within a few bytes of that.
pub(super) const fn heap_bytes(len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let rounded = (len + size_of::<usize>()).next_multiple_of(16);
    if rounded < 32 { 32 } else { rounded }
}

#[cfg(test)]
mod tests;
