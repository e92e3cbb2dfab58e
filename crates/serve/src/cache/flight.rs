//! Identical questions that are on their way upstream at the same time: one asks, all get the answer.
//!
//! Followers are futures rather than a list of replies handed to the leader. Workers are threads with
//! sockets, filter instances and timers of their own, so a follower has to finish where it began (it may
//! give up earlier, serve stale, or have to run response filters), and a waker is exactly the handle that
//! crosses threads. One flight costs two allocations however many follow: the followers share one result
//! and one list of wakers.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use hashbrown::HashTable;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::key::{Key, KeyFlags};

/// Shards of the table of flights.
const SHARDS: usize = 16;

/// Octets of most names.
const MOST_NAMES: usize = 64;

/// The questions that are being asked upstream now. One per process, shared by all threads. There are as many as
/// callers that lead, and followers as callers that wait: how many may is for their caller to decide.
pub(crate) struct Flights<T> {
    shards: [Mutex<HashTable<Arc<Flight<T>>>>; SHARDS],
}

/// One question on its way, and those who wait for it.
struct Flight<T> {
    hash: u64,
    name: SmallVec<[u8; MOST_NAMES]>,
    qtype: u16,
    qclass: u16,
    flags: KeyFlags,
    partition: u64,
    /// Set once: the leader's result, `None` if it gave up.
    result: OnceLock<Option<T>>,
    waiting: Mutex<Waiting>,
}

/// A place for the waker of each follower. Places of followers that left are used again.
#[derive(Default)]
struct Waiting {
    wakers: Vec<Option<Waker>>,
    vacant: Vec<usize>,
}

/// What a caller of [`Flights::join`] becomes.
#[must_use]
pub enum Join<T: Clone + Send + Sync> {
    /// The first: it asks, and tells the others.
    Lead(Leader<T>),
    /// One that waits. `None` comes out when the leader gave up without a result.
    Follow(Follower<T>),
}

/// The duty to answer all followers. Dropping it tells them the result, or that there is none.
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
    /// No question under way yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: Default::default(),
        })
    }

    /// Different questions under way now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Arc<Flight<T>>>> {
        &self.shards[(hash >> 48) as usize % SHARDS]
    }

    /// Leads the flight of `key` if nobody does, follows it otherwise.
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
    /// Hands `result` to all followers, on whatever threads they are. Whoever asks from now on leads a
    /// new flight, so what is to be found in the cache must be stored before.
    pub fn finish(self, result: T) {
        drop(self.with(result));
    }

    /// The same, once it is dropped. Until then whoever asks the same still follows.
    pub fn with(mut self, result: T) -> Self {
        self.result = Some(result);
        self
    }

    /// How many wait for this leader now.
    pub fn followers(&self) -> usize {
        let waiting = self.flight.waiting.lock();
        waiting.wakers.len() - waiting.vacant.len()
    }

    fn land(&mut self) {
        // Out of the table first, so that a follower who runs and joins again does not meet this flight.
        let mut shard = self.flights.shard(self.flight.hash).lock();
        if let Ok(found) = shard.find_entry(self.flight.hash, |flight| Arc::ptr_eq(flight, &self.flight)) {
            found.remove();
        }
        drop(shard);
        // Nobody else sets it, so this cannot fail.
        let _ = self.flight.result.set(self.result.take());
        let wakers = std::mem::take(&mut self.flight.waiting.lock().wakers);
        // No lock is held here: a waker runs code of the runtime it belongs to.
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl<T: Clone + Send + Sync> Drop for Leader<T> {
    fn drop(&mut self) {
        self.land();
    }
}

impl<T: Clone + Send + Sync> Follower<T> {
    fn new(flight: Arc<Flight<T>>) -> Self {
        let mut waiting = flight.waiting.lock();
        let place = waiting.vacant.pop().unwrap_or_else(|| {
            waiting.wakers.push(None);
            waiting.wakers.len() - 1
        });
        drop(waiting);
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
        // The leader sets the result before it takes the lock for the wakers: if it is not there now, a
        // waker left here is found.
        if let Some(result) = self.flight.result.get() {
            drop(waiting);
            return Poll::Ready(result.clone());
        }
        let waker = waiting.wakers.get_mut(self.place);
        let earlier = match waker {
            Some(Some(waker)) if waker.will_wake(context.waker()) => None,
            Some(waker) => waker.replace(context.waker().clone()),
            None => None,
        };
        // Dropping a waker may run foreign code, which must not meet the lock.
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
        let mut waiting = self.flight.waiting.lock();
        // After the leader took the wakers there is no place to give back.
        let waker = match waiting.wakers.get_mut(self.place) {
            Some(waker) => waker.take(),
            None => return,
        };
        waiting.vacant.push(self.place);
        drop(waiting);
        drop(waker);
    }
}

impl<T> fmt::Debug for Flights<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
