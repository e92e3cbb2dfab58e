//! One cached answer.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use smallvec::SmallVec;
use triomphe::{HeaderWithLength, ThinArc};

use super::freshness::{Lifetime, REFRESH_RECHECK_MS};
use super::key::{Key, KeyFlags};
use crate::config::Prefetch;
use crate::dns::edns::{ExtendedError, ExtendedErrorCode};

/// Octets of a DNS message's header (RFC 1035 §4.1.1).
const HEADER_LEN: usize = 12;
/// Octets of a TTL field (RFC 1035 §4.1.3).
const TTL_LEN: usize = 4;

/// In the place of an INFO-CODE: there is none. The last of those that are for private use (RFC 8914 section 5.2).
const NO_ERROR: ExtendedErrorCode = u16::MAX;

/// What sort of answer an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records were found.
    Success,
    /// There is no such name, or no record of that type (RFC 2308).
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

    /// This kind's place in an array of one thing per kind.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A finished answer to be cached.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The whole message, without OPT (RFC 6891 §6.2.1: OPT is not cached); at most 65 535 octets.
    pub wire: &'a [u8],
    /// Where in `wire` the records' TTL fields begin.
    pub ttl_offsets: &'a [u16],
    /// What sort of answer it is.
    pub kind: Kind,
    /// Why it is as it is, if the upstream said so (RFC 8914). A failure without a reason gets one: that it was kept.
    pub error: Option<ExtendedErrorCode>,
    /// How long it is fresh, in seconds. With 0 it is not stored.
    pub ttl_secs: u32,
    /// How long it may be served after that, in seconds. Ignored for failures, which are not.
    pub stale_secs: u32,
    /// Now, in milliseconds since the process started.
    pub now_ms: u64,
}

/// A cached answer: immutable, but for the marks of its use. A clone is the same entry.
///
/// All of it is one allocation, so that a lookup goes from the slot to the octets it compares in one step: the marks, then the
/// message, the TTL offsets as native-endian pairs of octets, and the name.
#[derive(Clone, Debug)]
pub struct Entry(ThinArc<Marks, u8>);

/// What an entry holds beside its octets.
#[derive(Debug)]
struct Marks {
    lifetime: Lifetime,
    partition: u64,
    retry_at_ms: AtomicU64,
    hits: AtomicU32,
    qtype: u16,
    qclass: u16,
    wire_len: u16,
    /// [`NO_ERROR`]: none.
    error: ExtendedErrorCode,
    flags: KeyFlags,
    kind: Kind,
    name_len: u8,
    refreshing: AtomicBool,
}

/// Octets of most entries: what is longer is put together on the heap before it is stored there.
const MOST_ENTRIES: usize = 512;

impl Entry {
    /// `None` when the key or the message is not one that could come off the wire. Hits index the
    /// message by the TTL offsets, so those that point outside it are refused here, once.
    pub(super) fn new(key: &Key<'_>, stored: &Stored<'_>) -> Option<Self> {
        let wire_len = u16::try_from(stored.wire.len()).ok()?;
        // RFC 1035 §3.1: a name has at most 255 octets, which is also what the length fits.
        let name_len = u8::try_from(key.name.len()).ok()?;
        let fits =
            |&at: &u16| usize::from(at) >= HEADER_LEN && usize::from(at) + TTL_LEN <= stored.wire.len();
        if stored.wire.len() < HEADER_LEN || !stored.ttl_offsets.iter().all(fits) {
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
                stored_at_ms: stored.now_ms,
                ttl_secs: stored.ttl_secs,
                stale_secs: match stored.kind {
                    // Never served: RFC 8767 is about data that was right once. That it failed is remembered, so that
                    // another failure is kept longer.
                    Kind::Failure => stored.ttl_secs,
                    Kind::Success | Kind::Denial => stored.stale_secs,
                },
            },
            partition: key.partition,
            retry_at_ms: AtomicU64::new(0),
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

    /// What an entry takes from the heap, the allocator's share included, in bytes.
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

    /// The name that was asked for: wire format, lower case.
    #[inline]
    pub fn name(&self) -> &[u8] {
        let octets = self.octets();
        &octets[octets.len() - usize::from(self.marks().name_len)..]
    }

    /// The type that was asked for.
    pub fn qtype(&self) -> u16 {
        self.marks().qtype
    }

    /// The bits of the query that it is for; shown, each has a comma in front.
    pub fn flags(&self) -> KeyFlags {
        self.marks().flags
    }

    /// Where in the message the records' TTL fields begin.
    #[inline]
    pub fn ttl_offsets(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        let (marks, octets) = (self.marks(), self.octets());
        let end = octets.len() - usize::from(marks.name_len);
        let pairs = octets[usize::from(marks.wire_len)..end].chunks_exact(2);
        pairs.map(|pair| usize::from(u16::from_ne_bytes([pair[0], pair[1]])))
    }

    /// What sort of answer this is.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.marks().kind
    }

    /// Why it is as it is (RFC 8914).
    #[inline]
    pub fn error(&self) -> Option<ExtendedErrorCode> {
        Some(self.marks().error).filter(|&error| error != NO_ERROR)
    }

    /// The answer's rcode. The upper bits of an extended one live in OPT, which is not cached.
    #[inline]
    pub fn rcode(&self) -> u8 {
        self.octets()[3] & 0x0f
    }

    /// When it was stored and how long it serves.
    #[inline]
    pub fn lifetime(&self) -> Lifetime {
        self.marks().lifetime
    }

    /// How often it was looked up since it was stored.
    #[inline]
    pub fn hits(&self) -> u32 {
        self.marks().hits.load(Ordering::Relaxed)
    }

    /// Called with the shard locked, so a load and a store do what an atomic addition would.
    #[inline]
    pub(super) fn count_hit(&self) {
        self.marks()
            .hits
            .store(self.hits().saturating_add(1), Ordering::Relaxed);
    }

    /// Whether to ask for this answer again ahead of time. Whoever sees `true` should try
    /// [`Entry::claim_refresh`].
    #[inline]
    pub(crate) fn prefetch_due(&self, prefetch: &Prefetch, now_ms: u64) -> bool {
        self.lifetime().is_prefetch_due(prefetch, self.hits(), now_ms)
            && !self.marks().refreshing.load(Ordering::Relaxed)
            && self.may_retry(now_ms, 0)
    }

    /// Whether the last failed refresh is long enough ago to try another (RFC 8767 §5), or an upstream has recovered since, at
    /// `recovered_ms`. Until then a stale answer goes out without asking upstream.
    #[inline]
    pub(crate) fn may_retry(&self, now_ms: u64, recovered_ms: u64) -> bool {
        let retry_at_ms = self.marks().retry_at_ms.load(Ordering::Relaxed);
        now_ms >= retry_at_ms || retry_at_ms.saturating_sub(REFRESH_RECHECK_MS) < recovered_ms
    }

    /// The right to refresh this entry, for one caller at a time and not while a recent failure holds it
    /// back. Dropping the claim gives it up, so a refresh that is cancelled blocks nobody.
    pub(crate) fn claim_refresh(&self, now_ms: u64, recovered_ms: u64) -> Option<RefreshClaim> {
        if self.may_retry(now_ms, recovered_ms) && !self.marks().refreshing.swap(true, Ordering::Relaxed) {
            Some(RefreshClaim { entry: self.clone() })
        } else {
            None
        }
    }

    /// Remembers that a refresh failed just now: the next may start [`REFRESH_RECHECK_MS`] later.
    pub(crate) fn refresh_failed(&self, now_ms: u64) {
        self.marks()
            .retry_at_ms
            .store(now_ms.saturating_add(REFRESH_RECHECK_MS), Ordering::Relaxed);
    }
}

/// The right to refresh one entry, given up when dropped. See [`Entry::claim_refresh`].
#[derive(Debug)]
pub(crate) struct RefreshClaim {
    entry: Entry,
}

impl RefreshClaim {
    /// The entry to be refreshed.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }
}

impl Drop for RefreshClaim {
    fn drop(&mut self) {
        self.entry.marks().refreshing.store(false, Ordering::Relaxed);
    }
}

/// What an allocation of `len` bytes takes from the heap. glibc, and most others within a few bytes,
/// puts a word in front, rounds up to 16 and gives no block below 32.
pub(super) const fn heap_bytes(len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let rounded = (len + size_of::<usize>()).next_multiple_of(16);
    if rounded < 32 { 32 } else { rounded }
}

#[cfg(test)]
mod tests;
