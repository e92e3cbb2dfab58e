//! Room for so many at a time, shared fairly when it is full.
//!
//! A newcomer that finds no room takes the place of somebody who has been there long (unbound calls it jostling):
//!
//! 1. of the client with the most places, if that is more than the newcomer's client would then have, and more than a
//!    sixteenth of all: its oldest gives way. So one client alone cannot keep another out.
//! 2. Else of the subject with the most places (a zone, a question), by the same rule, as long as no smaller client
//!    pays for it. So a zone that does not answer cannot keep those out that do.
//! 3. Else the oldest of all, or of the newcomer's client if that has more than the oldest's, gives way if it has been
//!    there for longer than the jostle time; else the newcomer is turned away. So everybody who is let in has some
//!    time to finish.
//!
//! What is the jostle time depends on what they are there for: newcomers bring it.
//!
//! Who has how many is reckoned only while it is crowded: as a rule, to come and go is to be linked into a list and out of it.
//! Clients are told apart by their whole address: the pods of a node share a network.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;

/// The jostle time of those who know no better: unbound's `jostle-timeout`.
pub const JOSTLE: Duration = Duration::from_millis(200);

/// The share of all places that nobody has to give away before the jostle time: one in so many.
const SMALL: usize = 16;

/// So many at a time.
#[derive(Debug)]
pub struct Room {
    hasher: foldhash::quality::RandomState,
    inner: Mutex<Inner>,
}

/// No room for the newcomer, and nobody gives way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// One of the places. It is free when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Place(Arc<Held>);

/// What a place's holder and whoever displaces it both know.
#[derive(Debug)]
struct Held {
    room: Arc<Room>,
    /// Where it is in the room.
    at: usize,
    number: u64,
    displaced: AtomicBool,
    holder: Mutex<Option<Waker>>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    /// The next place's number: they count up.
    next: u64,
    inside: Slab<Inside>,
    /// The ends of the list of those inside, in the order in which they came.
    oldest: Option<usize>,
    newest: Option<usize>,
    /// Who has how many; only while it is crowded.
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

/// Who wants to come in.
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

/// Places by what they have in common.
#[derive(Debug, Default)]
struct Groups {
    /// Where they are, by group and number.
    members: BTreeMap<(u64, u64), usize>,
    sizes: HashMap<u64, usize>,
    by_size: BTreeSet<(usize, u64)>,
}

impl Room {
    /// Room for `limit` at a time.
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

    /// Makes room for more, or for fewer: those who are inside stay.
    pub fn set_limit(&self, limit: usize) {
        let mut room = self.inner.lock();
        room.limit = limit;
        room.reckon();
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        self.inner.lock().inside.len()
    }

    /// Lets `client` in with what `subject` stands for, if need be in the place of somebody else: one whose client or
    /// subject has too many, or who has been there for the `jostle` time.
    ///
    /// # Errors
    /// There is no room, and nobody has to give way.
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
        // No lock of ours is held: a waker runs code of the runtime it belongs to.
        if let Some(displaced) = displaced.as_ref().and_then(Weak::upgrade) {
            displaced.displace();
        }
        Ok(place)
    }
}

impl Place {
    /// Ready when somebody else has taken the place: its holder has to end what it does.
    pub fn poll_displaced(&self, context: &mut Context<'_>) -> Poll<()> {
        let held = &self.0;
        if held.displaced.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut holder = held.holder.lock();
        // Whoever displaces it says so before it looks for the waker: one that is left now is found.
        if held.displaced.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        match &mut *holder {
            Some(waker) => waker.clone_from(context.waker()),
            None => *holder = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Whether somebody else has taken it, or it was given up.
    pub fn is_displaced(&self) -> bool {
        self.0.displaced.load(Ordering::Acquire)
    }

    /// Has its holder end what it does, as if somebody else had taken the place.
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
        // Who was displaced has no place to give back: somebody else is there, or nobody.
        let own = |inside: &Inside| inside.number == self.number;
        if room.inside.get(self.at).is_some_and(own) {
            room.remove(self.at);
        }
    }
}

impl Inner {
    /// Gives the newcomer a place, and says who has to leave for it.
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

    /// What stands for the newer neighbour of this one; of none: the oldest of all.
    fn newer_of(&mut self, older: Option<usize>) -> &mut Option<usize> {
        match older {
            Some(older) => &mut self.inside[older].newer,
            None => &mut self.oldest,
        }
    }

    /// Takes a place away.
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

    /// Begins to reckon shares when three quarters are taken, and stops below a half.
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

    /// Who has to give way to the newcomer.
    fn victim(&self, newcomer: &Newcomer, jostle: Duration) -> Option<usize> {
        let Shares { clients, subjects } = &**self.shares.as_ref()?;
        let small = self.limit / SMALL;
        let own = clients.size(newcomer.client) + 1;
        let (most, client) = clients.largest()?;
        if most > own.max(small) {
            return clients.oldest(client);
        }
        // Places of a client that has fewer than the newcomer's are safe.
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

    /// The group with the most places, and how many it has.
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
