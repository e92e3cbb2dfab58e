//! Merges concurrent identical questions to upstreams: one query asks, all get the answer.
//!
//! Followers are futures rather than a list of replies handed to the leader. Workers are threads with their
//! own sockets, filter instances and timers, so a follower has to finish where it began (it may give up
//! earlier, serve stale, or have to run response filters), and a waker is the one handle that may cross
//! threads. A flight costs two allocations however many follow: the followers share one result and one list
//! of wakers.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use hashbrown::HashTable;
use parking_lot::Mutex;
use slab::Slab;
use smallvec::SmallVec;

use super::key::{Key, KeyFlags};

/// Shards of the table of flights.
const SHARDS: usize = 16;

/// Length in bytes that most names fit in.
const MOST_NAMES: usize = 64;

/// The questions being asked upstream now. One per process, shared by all threads. It sets no limit: there
/// are as many flights as callers that lead, and as many followers as callers that wait. Its users bound
/// both.
pub(crate) struct Flights<T> {
    shards: [Mutex<HashTable<Arc<Flight<T>>>>; SHARDS],
}

/// One question in flight, and its followers.
struct Flight<T> {
    hash: u64,
    name: SmallVec<[u8; MOST_NAMES]>,
    qtype: u16,
    qclass: u16,
    flags: KeyFlags,
    partition: u64,
    /// Set once: the leader's result, or `None` if it gave up.
    result: OnceLock<Option<T>>,
    /// One place per follower for its waker.
    waiting: Mutex<Slab<Option<Waker>>>,
}

/// The role of a caller of [`Flights::join`].
#[must_use]
pub enum Join<T: Clone + Send + Sync> {
    /// The first caller: it asks, and passes the result on.
    Lead(Leader<T>),
    /// A later caller: it waits, and gets `None` if the leader gave up without a result.
    Follow(Follower<T>),
}

/// The duty to answer all followers. Dropping it gives them the result, or `None`.
#[must_use]
pub struct Leader<T: Clone + Send + Sync> {
    flights: Arc<Flights<T>>,
    flight: Arc<Flight<T>>,
    result: Option<T>,
}

/// Waits for the leader's result. May be dropped at any time and polled on any thread.
#[must_use]
pub struct Follower<T: Clone + Send + Sync> {
    flight: Arc<Flight<T>>,
    place: usize,
}

impl<T: Clone + Send + Sync> Flights<T> {
    /// Creates an empty table.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: Default::default(),
        })
    }

    /// The number of different questions in flight.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Arc<Flight<T>>>> {
        &self.shards[(hash >> 48) as usize % SHARDS]
    }

    /// Leads the flight of `key` if there is none yet, and follows it otherwise.
    pub fn join(self: &Arc<Self>, key: &Key<'_>) -> Join<T> {
        let mut shard = self.shard(key.hash).lock();
        if let Some(flight) = shard.find(key.hash, |flight| flight.asks(key)) {
            let flight = Arc::clone(flight);
            drop(shard);
            return Join::Follow(Follower::new(flight));
        }
        let flight = Arc::new(Flight {
            hash: key.hash,
            name: SmallVec::from_slice(key.name),
            qtype: key.qtype,
            qclass: key.qclass,
            flags: key.flags,
            partition: key.partition,
            result: OnceLock::new(),
            waiting: Mutex::default(),
        });
        shard.insert_unique(key.hash, Arc::clone(&flight), |flight| flight.hash);
        Join::Lead(Leader {
            flights: Arc::clone(self),
            flight,
            result: None,
        })
    }
}

impl<T> Flight<T> {
    fn asks(&self, key: &Key<'_>) -> bool {
        self.hash == key.hash
            && self.qtype == key.qtype
            && self.qclass == key.qclass
            && self.flags == key.flags
            && self.partition == key.partition
            && *self.name == *key.name
    }
}

impl<T: Clone + Send + Sync> Leader<T> {
    /// Gives `result` to all followers, on whichever threads they are. The next caller with this question
    /// leads a new flight, so an answer that belongs in the cache must be stored before.
    pub fn finish(self, result: T) {
        drop(self.with(result));
    }

    /// Sets the result to give when dropped. Until then, callers with the same question still follow.
    pub fn with(mut self, result: T) -> Self {
        self.result = Some(result);
        self
    }

    /// The number of followers now.
    pub fn followers(&self) -> usize {
        self.flight.waiting.lock().len()
    }

    fn land(&mut self) {
        // Out of the table first, so that a follower that runs and joins again does not meet this flight.
        let mut shard = self.flights.shard(self.flight.hash).lock();
        if let Ok(found) = shard.find_entry(self.flight.hash, |flight| Arc::ptr_eq(flight, &self.flight)) {
            found.remove();
        }
        drop(shard);
        // Nothing else sets it, so this cannot fail.
        let _ = self.flight.result.set(self.result.take());
        let wakers = std::mem::take(&mut *self.flight.waiting.lock());
        // No lock is held here: a waker runs code of its runtime.
        let wakers = wakers.into_iter().filter_map(|(_, waker)| waker);
        wakers.for_each(Waker::wake);
    }
}

impl<T: Clone + Send + Sync> Drop for Leader<T> {
    fn drop(&mut self) {
        self.land();
    }
}

impl<T: Clone + Send + Sync> Follower<T> {
    fn new(flight: Arc<Flight<T>>) -> Self {
        let place = flight.waiting.lock().insert(None);
        Self { flight, place }
    }
}

impl<T: Clone + Send + Sync> Future for Follower<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.flight.result.get() {
            return Poll::Ready(result.clone());
        }
        let mut waiting = self.flight.waiting.lock();
        // The leader sets the result before it locks the wakers: if there is no result yet, it will find a
        // waker stored now.
        if let Some(result) = self.flight.result.get() {
            drop(waiting);
            return Poll::Ready(result.clone());
        }
        let waker = waiting.get_mut(self.place);
        let earlier = match waker {
            Some(Some(waker)) if waker.will_wake(context.waker()) => None,
            Some(waker) => waker.replace(context.waker().clone()),
            None => None,
        };
        // Dropping a waker may run foreign code, which must not run under the lock.
        drop(waiting);
        drop(earlier);
        Poll::Pending
    }
}

impl<T: Clone + Send + Sync> Drop for Follower<T> {
    fn drop(&mut self) {
        if self.flight.result.get().is_some() {
            return;
        }
        // Once the leader has taken the wakers, there is no place to give back. No lock is held when the waker
        // is dropped.
        let waker = self.flight.waiting.lock().try_remove(self.place);
        drop(waker);
    }
}

#[cfg(test)]
mod tests;
