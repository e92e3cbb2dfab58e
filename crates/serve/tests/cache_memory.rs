//! The cache's limit against what the allocator really hands out.
//!
//! A binary of its own with one test, because it counts every allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use dnsweir_os::clock::Uptime;
use dnsweir_serve::cache::{Cache, Key, KeyFlags, KeyHasher, Kind, Stored};

/// The system's allocator; counts blocks at their actual size, not at the requested one.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// glibc's header in front of each block.
const BLOCK_HEADER: usize = size_of::<usize>();

fn block_len(block: *mut u8) -> usize {
    // SAFETY: called only with blocks that the system's allocator has handed out and not taken back.
    BLOCK_HEADER + unsafe { libc::malloc_usable_size(block.cast()) }
}

// SAFETY: every call is forwarded to `System` unchanged; the rest only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same as `System`'s.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            let live = LIVE.fetch_add(block_len(block), Ordering::Relaxed) + block_len(block);
            PEAK.fetch_max(live, Ordering::Relaxed);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(block_len(block), Ordering::Relaxed);
        // SAFETY: the caller's contract is the same as `System`'s.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: usize = 32 << 20;
/// What may exceed the limit for a moment: the answer about to be stored, and the old half of one shard's
/// table while it grows.
const BEYOND: usize = 256 << 10;
const NAMES: u32 = 1_000_000;
const HOT_NAMES: u32 = 1_000;

/// `host-N.example.org` in wire format.
fn wire_name(buffer: &mut Vec<u8>, n: u32) {
    buffer.clear();
    let label = format!("host-{n}");
    buffer.push(label.len() as u8);
    buffer.extend_from_slice(label.as_bytes());
    buffer.extend_from_slice(b"\x07example\x03org\0");
}

#[test]
fn a_million_names_stay_within_the_limit_and_leave_the_hot_ones() {
    let hasher = KeyHasher::new();
    let message = vec![0u8; 2_048];
    let mut name = Vec::with_capacity(64);
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);

    let cache = Cache::new(LIMIT);
    let mut ask = |n: u32, now: Uptime| {
        wire_name(&mut name, n);
        let key = Key::new(hasher.question(&name, 1, 1), &name, 1, 1, KeyFlags::default(), 0);
        let hit = cache.lookup(&key, now).is_some();
        if !hit {
            // Most answers are small, some hold many records.
            let len = match n % 50 {
                0 => 1_500,
                _ => 60 + n as usize % 140,
            };
            let stored = Stored {
                wire: &message[..len],
                ttl_offsets: &[40, 56],
                kind: Kind::Success,
                error: None,
                ttl_secs: 600,
                stale_secs: 3_600,
                now,
            };
            cache.insert(&key, &stored);
        }
        hit
    };
    let (mut hits, mut peak_live) = (0, 0);
    for n in 0..NAMES {
        let now = Uptime::from_micros(u64::from(n) * 100);
        ask(HOT_NAMES + n, now);
        hits += u32::from(ask(n % HOT_NAMES, now));
        peak_live = peak_live.max(LIVE.load(Ordering::Relaxed) - before);
    }
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let stats = cache.stats();
    let ratio = f64::from(hits) / f64::from(NAMES);
    println!(
        "limit {LIMIT}: {} entries, counted {}, allocated {} (most between calls {peak_live}, within {peak}); \
         hit ratio of the hot names {ratio:.4}",
        stats.kind(Kind::Success).entries,
        stats.bytes,
        LIVE.load(Ordering::Relaxed) - before,
    );
    assert!(stats.bytes <= LIMIT as u64);
    assert!(peak <= LIMIT + BEYOND, "allocated {peak}");
    assert!(
        stats.bytes as usize > LIMIT / 10 * 9,
        "the limit is there to be used: {}",
        stats.bytes
    );
    assert!(ratio > 0.9, "hit ratio {ratio}");
    drop(cache);
    assert!(
        LIVE.load(Ordering::Relaxed) - before < BEYOND,
        "dropping the cache frees it"
    );
}
