use super::*;
use crate::cache::fixture::{self, ms};
use crate::cache::key::KeyHasher;

const STORED_AT: Uptime = ms(5_000);

const NAME: &[u8] = b"\x01a\x03org\0";

fn key() -> Key<'static> {
    fixture::key(&KeyHasher::new(), NAME, 1, KeyFlags::new(true, false))
}

/// A header with rcode 3 and two "records" that are only a TTL each.
fn wire() -> Vec<u8> {
    let mut wire = vec![0; HEADER];
    wire[3] = 0x83;
    wire.extend_from_slice(&300u32.to_be_bytes());
    wire.extend_from_slice(&2u32.to_be_bytes());
    wire
}

fn stored<'a>(wire: &'a [u8], ttl_offsets: &'a [u16]) -> Stored<'a> {
    Stored {
        ttl_offsets,
        ttl_secs: 300,
        ..fixture::stored(wire, Kind::Success, STORED_AT)
    }
}

fn entry() -> Entry {
    Entry::new(&key(), &stored(&wire(), &[12, 16])).unwrap()
}

#[test]
fn what_goes_in_comes_out() {
    let entry = entry();
    assert_eq!(entry.wire(), wire());
    assert_eq!(entry.name(), NAME);
    assert_eq!(entry.ttl_offsets().collect::<Vec<_>>(), [12, 16]);
    assert_eq!(entry.rcode(), 3);
    assert_eq!(entry.kind(), Kind::Success);
    assert_eq!(
        entry.lifetime(),
        Lifetime {
            stored_at: STORED_AT,
            ttl_secs: 300,
            stale_secs: 100
        }
    );
}

#[test]
fn every_field_of_the_key_counts() {
    let entry = entry();
    assert!(entry.answers(&key()));
    assert!(!entry.answers(&Key { qtype: 28, ..key() }));
    assert!(!entry.answers(&Key { qclass: 3, ..key() }));
    assert!(!entry.answers(&Key {
        flags: KeyFlags::new(false, false),
        ..key()
    }));
    assert!(!entry.answers(&Key {
        partition: 1,
        ..key()
    }));
    assert!(!entry.answers(&Key {
        name: b"\x01b\x03org\0",
        ..key()
    }));
}

#[test]
fn what_cannot_come_off_the_wire_is_refused() {
    let wire = wire();
    assert!(
        Entry::new(&key(), &stored(&wire[..11], &[])).is_none(),
        "shorter than a header"
    );
    assert!(
        Entry::new(&key(), &stored(&wire, &[17])).is_none(),
        "a TTL past the end"
    );
    assert!(Entry::new(&key(), &stored(&wire, &[u16::MAX])).is_none());
    assert!(
        Entry::new(&key(), &stored(&wire, &[11])).is_none(),
        "a TTL inside the header"
    );
    assert!(
        Entry::new(&key(), &stored(&vec![0; 65_536], &[])).is_none(),
        "longer than a message"
    );
    assert!(Entry::new(&key(), &stored(&vec![0; 65_535], &[65_531])).is_some());
    let long = vec![0; 256];
    assert!(Entry::new(&Key { name: &long, ..key() }, &stored(&wire, &[])).is_none());
}

#[test]
fn one_refresh_at_a_time() {
    let entry = entry();
    let claim = entry.claim_refresh(ms(6_000), ms(0)).unwrap();
    assert!(entry.claim_refresh(ms(6_000), ms(0)).is_none());
    drop(claim);
    assert!(entry.claim_refresh(ms(6_000), ms(0)).is_some());
}

#[test]
fn a_failed_refresh_keeps_the_next_away() {
    let entry = entry();
    let prefetch = Prefetch {
        hits: 0,
        percent: 100,
    };
    assert!(entry.prefetch_due(&prefetch, ms(6_000)));
    entry.refresh_failed(ms(6_000));
    assert!(!entry.prefetch_due(&prefetch, ms(6_000)));
    assert!(entry.claim_refresh(ms(35_999), ms(0)).is_none());
    assert!(!entry.may_retry(ms(6_001), ms(6_000)));
    assert!(
        entry.may_retry(ms(6_001), ms(6_001)),
        "an upstream has recovered since"
    );
    let claim = entry.claim_refresh(ms(36_000), ms(0)).unwrap();
    assert!(!entry.prefetch_due(&prefetch, ms(36_000)), "claimed");
    drop(claim);
    assert!(entry.prefetch_due(&prefetch, ms(36_000)));
}

#[test]
fn heap_bytes_follow_the_allocator() {
    assert_eq!([0, 1, 24, 25, 40, 41].map(heap_bytes), [0, 32, 32, 48, 48, 64]);
}
