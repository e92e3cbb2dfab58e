//! A limit on concurrent requests, shared fairly when it is reached.
//!
//! A newcomer that finds no free place may take one from a request that has been in progress for long
//! (unbound calls this jostling):
//!
//! 1. From the client with the most places, if it has more than the newcomer's client would then have, and
//!    more than a sixteenth of all: its oldest request gives way. So one client alone cannot lock out
//!    another.
//! 2. Else from the subject with the most places (a zone, a question), by the same rule, as long as no
//!    smaller client pays for it. So a zone that does not answer cannot lock out those that do.
//! 3. Else the oldest of all gives way, or the oldest of the newcomer's client if that client has more places
//!    than the oldest's, provided it is older than the jostle time. If not, the newcomer is rejected. So
//!    every admitted request has some time to finish.
//!
//! The jostle time depends on the kind of request, so newcomers bring it along.
//!
//! Shares are counted only while the room is crowded; otherwise entering and leaving only links into a list
//! and unlinks. Clients are told apart by their whole address, because the pods of a node share a network.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;

/// The default jostle time: unbound's `jostle-timeout`.
pub const JOSTLE: Duration = Duration::from_millis(200);

/// A client or subject with at most one in this many of all places is not displaced for its size.
const SMALL: usize = 16;

/// A limited number of places.
#[derive(Debug)]
pub struct Room {
    hasher: foldhash::quality::RandomState,
    inner: Mutex<Inner>,
}

/// There is no free place, and no holder has to give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// One of the places. It is freed when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Place(Arc<Held>);

/// State shared by a place's holder and whatever displaces it.
#[derive(Debug)]
struct Held {
    room: Arc<Room>,
    /// Its index in the room.
    at: usize,
    number: u64,
    displaced: AtomicBool,
    holder: Mutex<Option<Waker>>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    /// The number of the next place; numbers are never reused.
    next: u64,
    inside: Slab<Inside>,
    /// The ends of the list of places, in order of arrival.
    oldest: Option<usize>,
    newest: Option<usize>,
    /// Places per client and subject; only while the room is crowded.
    shares: Option<Box<Shares>>,
}

#[derive(Debug)]
struct Inside {
    number: u64,
    newcomer: Newcomer,
    held: Weak<Held>,
    /// Its neighbours in the list.
    older: Option<usize>,
    newer: Option<usize>,
}

/// A request for a place.
#[derive(Debug, Clone, Copy)]
struct Newcomer {
    client: u64,
    subject: u64,
    since: Instant,
}

#[derive(Debug, Default)]
struct Shares {
    clients: Groups,
    subjects: Groups,
}

/// Places grouped by client or by subject.
#[derive(Debug, Default)]
struct Groups {
    /// Slab indices, by group and number.
    members: BTreeMap<(u64, u64), usize>,
    sizes: HashMap<u64, usize>,
    by_size: BTreeSet<(usize, u64)>,
}

impl Room {
    /// Creates a room with `limit` places.
    pub fn new(limit: usize) -> Arc<Room> {
        Arc::new(Room {
            hasher: Default::default(),
            inner: Mutex::new(Inner {
                limit,
                next: 0,
                inside: Slab::new(),
                oldest: None,
                newest: None,
                shares: None,
            }),
        })
    }

    /// Changes the limit. Requests that are inside stay.
    pub fn set_limit(&self, limit: usize) {
        let mut room = self.inner.lock();
        room.limit = limit;
        room.reckon();
    }

    /// The number of places taken.
    pub fn inside(&self) -> usize {
        self.inner.lock().inside.len()
    }

    /// Admits a request of `client` about `subject`. If the room is full, it displaces a request whose client
    /// or subject has too many places, or that has held its place for the `jostle` time.
    ///
    /// # Errors
    /// There is no free place, and no holder has to give way.
    pub fn enter(
        self: &Arc<Self>,
        client: IpAddr,
        subject: impl Hash,
        now: Instant,
        jostle: Duration,
    ) -> Result<Place, Full> {
        let newcomer = Newcomer {
            client: self.hasher.hash_one(client),
            subject: self.hasher.hash_one(subject),
            since: now,
        };
        let (place, displaced) = self.inner.lock().enter(self, newcomer, jostle)?;
        // Our lock is released here: a waker runs code of its runtime.
        if let Some(displaced) = displaced.as_ref().and_then(Weak::upgrade) {
            displaced.displace();
        }
        Ok(place)
    }
}

impl Place {
    /// Ready when the place has been taken away: its holder has to stop.
    pub fn poll_displaced(&self, context: &mut Context<'_>) -> Poll<()> {
        let held = &self.0;
        if held.displaced.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut holder = held.holder.lock();
        // `displace` sets the flag before it looks for the waker, so a waker stored now is found.
        if held.displaced.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        match &mut *holder {
            Some(waker) => waker.clone_from(context.waker()),
            None => *holder = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Whether the place was taken away or given up.
    pub fn is_displaced(&self) -> bool {
        self.0.displaced.load(Ordering::Acquire)
    }

    /// Makes the holder stop, as if the place had been taken away.
    pub fn give_up(&self) {
        self.0.displace();
    }
}

impl Held {
    fn displace(&self) {
        self.displaced.store(true, Ordering::Release);
        let holder = self.holder.lock().take();
        if let Some(waker) = holder {
            waker.wake();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut room = self.room.inner.lock();
        // A displaced holder has no place to give back: its slot is empty or belongs to another.
        let own = |inside: &Inside| inside.number == self.number;
        if room.inside.get(self.at).is_some_and(own) {
            room.remove(self.at);
        }
    }
}

impl Inner {
    /// Gives the newcomer a place; also returns the holder it displaces.
    fn enter(
        &mut self,
        room: &Arc<Room>,
        newcomer: Newcomer,
        jostle: Duration,
    ) -> Result<(Place, Option<Weak<Held>>), Full> {
        let displaced = if self.inside.len() < self.limit {
            None
        } else {
            let victim = self.victim(&newcomer, jostle).ok_or(Full)?;
            Some(self.remove(victim))
        };
        let number = self.next;
        self.next += 1;
        let vacant = self.inside.vacant_entry();
        let at = vacant.key();
        let held = Arc::new(Held {
            room: Arc::clone(room),
            at,
            number,
            displaced: AtomicBool::new(false),
            holder: Mutex::default(),
        });
        let older = self.newest.replace(at);
        vacant.insert(Inside {
            number,
            newcomer,
            held: Arc::downgrade(&held),
            older,
            newer: None,
        });
        *self.newer_of(older) = Some(at);
        if let Some(shares) = &mut self.shares {
            shares.join(at, &self.inside[at]);
        }
        self.reckon();
        Ok((Place(held), displaced))
    }

    /// The link to the newer neighbour of `older`; without one, the head of the list.
    fn newer_of(&mut self, older: Option<usize>) -> &mut Option<usize> {
        match older {
            Some(older) => &mut self.inside[older].newer,
            None => &mut self.oldest,
        }
    }

    /// Removes a place.
    fn remove(&mut self, at: usize) -> Weak<Held> {
        let gone = self.inside.remove(at);
        *self.newer_of(gone.older) = gone.newer;
        match gone.newer {
            Some(newer) => self.inside[newer].older = gone.older,
            None => self.newest = gone.older,
        }
        if let Some(shares) = &mut self.shares {
            shares.leave(&gone);
        }
        self.reckon();
        gone.held
    }

    /// Starts counting shares when three quarters of the places are taken, and stops below half.
    fn reckon(&mut self) {
        let inside = self.inside.len();
        if self.shares.is_none() && inside * 4 >= self.limit * 3 {
            let mut shares = Box::<Shares>::default();
            for (at, inside) in &self.inside {
                shares.join(at, inside);
            }
            self.shares = Some(shares);
        } else if self.shares.is_some() && inside * 2 < self.limit {
            self.shares = None;
        }
    }

    /// The place that has to give way to the newcomer.
    fn victim(&self, newcomer: &Newcomer, jostle: Duration) -> Option<usize> {
        let Shares { clients, subjects } = &**self.shares.as_ref()?;
        let small = self.limit / SMALL;
        let own = clients.size(newcomer.client) + 1;
        let (most, client) = clients.largest()?;
        if most > own.max(small) {
            return clients.oldest(client);
        }
        // Places of a client that has fewer than the newcomer's client are safe.
        let safe = |at: usize| {
            let inside = self.inside.get(at);
            inside.is_none_or(|inside| clients.size(inside.newcomer.client) + 1 < own)
        };
        let (most, subject) = subjects.largest()?;
        if most > small.max(subjects.size(newcomer.subject) + 1)
            && let Some(victim) = subjects.oldest(subject).filter(|&at| !safe(at))
        {
            return Some(victim);
        }
        let victim = self
            .oldest
            .filter(|&at| !safe(at))
            .or_else(|| clients.oldest(newcomer.client))?;
        let since = self.inside.get(victim)?.newcomer.since;
        (newcomer.since.duration_since(since) >= jostle).then_some(victim)
    }
}

impl Shares {
    fn join(&mut self, at: usize, inside: &Inside) {
        self.clients.join(inside.newcomer.client, inside.number, at);
        self.subjects.join(inside.newcomer.subject, inside.number, at);
    }

    fn leave(&mut self, inside: &Inside) {
        self.clients.leave(inside.newcomer.client, inside.number);
        self.subjects.leave(inside.newcomer.subject, inside.number);
    }
}

impl Groups {
    fn join(&mut self, group: u64, number: u64, at: usize) {
        self.members.insert((group, number), at);
        let size = self.sizes.entry(group).or_default();
        self.by_size.remove(&(*size, group));
        *size += 1;
        self.by_size.insert((*size, group));
    }

    fn leave(&mut self, group: u64, number: u64) {
        self.members.remove(&(group, number));
        if let Some(size) = self.sizes.get_mut(&group) {
            self.by_size.remove(&(*size, group));
            *size -= 1;
            match *size {
                0 => drop(self.sizes.remove(&group)),
                left => drop(self.by_size.insert((left, group))),
            }
        }
    }

    fn size(&self, group: u64) -> usize {
        self.sizes.get(&group).copied().unwrap_or(0)
    }

    /// The group with the most places, and their number.
    fn largest(&self) -> Option<(usize, u64)> {
        self.by_size.last().copied()
    }

    fn oldest(&self, group: u64) -> Option<usize> {
        let (_, at) = self.members.range((group, 0)..=(group, u64::MAX)).next()?;
        Some(*at)
    }
}

#[cfg(test)]
mod tests;
