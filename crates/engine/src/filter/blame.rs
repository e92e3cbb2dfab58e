//! Blames failed calls of a filter: first on the name, then on the client.
//!
//! What is blamed gets `on-error` without a call until its cost is paid off; everything else keeps the
//! filter. The debt of the filter itself is kept by [`Health`](super::health::Health), per worker;
//! docs/decisions/0014-blame.md gives the reasons. All workers share the book. While nothing is blamed, a
//! call only reads one flag.

mod accounts;
mod known;

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use super::evidence::Evidence;
use super::question::{Question, Subject};
use crate::config::{Network, Rate, left_aligned};
use accounts::Accounts;
use known::Known;

/// Names of one client that may fail before the client is blamed.
const NAMES_OF_CLIENT: u32 = 3;

/// How long after the last failure the book is closed.
const CLOSED_AFTER: Duration = Duration::from_secs(120);

/// A failure is paid off in this many times its cost, so that a tenth of the time may be wasted.
pub(super) const SHARE: u32 = 10;

/// Bytes of a full book.
pub(super) const OCTETS: usize = 2 * (accounts::OCTETS + known::OCTETS) + Evidence::OCTETS;

/// The book of one filter.
pub(super) struct Blame {
    /// Whether there may be anything in the book.
    open: AtomicBool,
    hasher: RandomState,
    /// Bits of an IPv4 and of an IPv6 address that identify a client.
    bits: AtomicU16,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    names: Accounts,
    clients: Accounts,
    known_names: Known,
    known_clients: Known,
    last_failure: Option<Instant>,
    evidence: Evidence,
}

/// Hashes of the name and the client of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    name: u64,
    client: u64,
}

/// The book's judgement of a name and client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The name is blamed.
    BadName,
    /// The client is blamed.
    BadClient,
    /// Calls have succeeded for the name or the client since failures began.
    Known,
    /// None has.
    Stranger,
}

impl Blame {
    /// An empty book, which keeps failed questions while the filter is on probation.
    pub(super) fn new(evidence: Evidence) -> Blame {
        let Rate { ipv4, ipv6, .. } = Rate::default();
        Blame {
            open: AtomicBool::new(false),
            hasher: RandomState::default(),
            bits: AtomicU16::new(u16::from_be_bytes([ipv4, ipv6])),
            book: Mutex::new(Book {
                evidence,
                ..Book::default()
            }),
        }
    }

    /// Sets how many bits of an IPv4 and of an IPv6 address identify a client.
    pub(super) fn tell_apart_by(&self, bits: (u8, u8)) {
        self.bits
            .store(u16::from_be_bytes(bits.into()), Ordering::Relaxed);
    }

    /// Whether any name or client may be blamed.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// The name and client of a query.
    pub(super) fn asker(&self, about: &impl Subject) -> Asker {
        let (query, bytes) = about.asked();
        let start = query.name_start as usize;
        let name = &bytes[start..start + usize::from(query.name_length)];
        let address = Ipv6Addr::from_bits(u128::from(query.client_high) << 64 | u128::from(query.client_low));
        let address = IpAddr::V6(address).to_canonical();
        let [ipv4, ipv6] = self.bits.load(Ordering::Relaxed).to_be_bytes();
        let length = if address.is_ipv4() { ipv4 } else { ipv6 };
        let network = Network::of(address, length).map_or(0, |network| left_aligned(network.address).1);
        Asker {
            name: self.hasher.hash_one(name),
            client: self.hasher.hash_one((address.is_ipv4(), network)),
        }
    }

    /// Returns the standing of a name and client at `now`, and closes the book when its time is over.
    pub(super) fn standing(&self, now: Instant, who: Asker) -> Standing {
        let mut book = self.book.lock();
        if book.is_over(now) {
            book.close();
            self.open.store(false, Ordering::Relaxed);
        }
        if book.names.is_blamed(now, who.name) {
            Standing::BadName
        } else if book.clients.is_blamed(now, who.client) {
            Standing::BadClient
        } else if book.known_names.has(who.name) || book.known_clients.has(who.client) {
            Standing::Known
        } else {
            Standing::Stranger
        }
    }

    /// Records that a call succeeded.
    pub(super) fn succeeded(&self, who: Asker) {
        let mut book = self.book.lock();
        if book.last_failure.is_some() {
            book.known_names.add(who.name);
            book.known_clients.add(who.client);
        }
    }

    /// Records that a call about several records failed.
    pub(super) fn failed_for_somebody(&self, now: Instant) {
        self.book.lock().last_failure = Some(now);
        self.open.store(true, Ordering::Relaxed);
    }

    /// Blames a call that failed at `now`, at this cost; `asked` returns its question. Returns false if there
    /// is no room to.
    pub(super) fn failed(
        &self,
        now: Instant,
        who: Asker,
        cost: Duration,
        why: &str,
        asked: impl FnOnce() -> Question,
    ) -> bool {
        let least = cost * SHARE;
        let mut book = self.book.lock();
        book.last_failure = Some(now);
        self.open.store(true, Ordering::Relaxed);
        book.known_names.remove(who.name);
        let is_new = !book.names.has(now, who.name);
        let mut room = book.names.blame(now, who.name, 1, least);
        // A client that queries a name already blamed is a victim, not the cause.
        if is_new {
            book.evidence.add((who.name, who.client), why, asked);
            room &= book.clients.blame(now, who.client, NAMES_OF_CLIENT, least);
            if book.clients.is_blamed(now, who.client) {
                book.known_clients.remove(who.client);
            }
        }
        room
    }

    /// Takes what failed during probation, once there is enough to test another filter with it. Returns it
    /// once.
    pub(super) fn take_evidence(&self) -> Option<(String, Vec<Question>)> {
        self.book.lock().evidence.take()
    }
}

impl Book {
    fn is_over(&self, now: Instant) -> bool {
        self.last_failure
            .is_some_and(|last| now.saturating_duration_since(last) >= CLOSED_AFTER)
    }

    /// Clears the book and frees its memory, but keeps the evidence of probation.
    fn close(&mut self) {
        *self = Book {
            evidence: std::mem::take(&mut self.evidence),
            ..Book::default()
        };
    }
}

#[cfg(test)]
mod tests;
