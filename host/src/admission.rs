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
//! Who has how many is reckoned only while it is crowded: as a rule, to come and go is one step in an ordered map.
//! Clients are told apart by their whole address: the pods of a node share a network.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

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

/// One of the places. Dropped, it is free.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    number: u64,
    ticket: Arc<Ticket>,
}

/// What a place's holder and whoever displaces it both know.
#[derive(Debug, Default)]
struct Ticket {
    displaced: AtomicBool,
    holder: Mutex<Option<Waker>>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    /// The next place's number: they count up, so that the oldest comes first.
    next: u64,
    inside: BTreeMap<u64, Inside>,
    /// Who has how many; only while it is crowded.
    shares: Option<Box<Shares>>,
}

#[derive(Debug)]
struct Inside {
    client: u64,
    subject: u64,
    since: Instant,
    ticket: Arc<Ticket>,
}

#[derive(Debug, Default)]
struct Shares {
    clients: Groups,
    subjects: Groups,
}

/// Places by what they have in common.
#[derive(Debug, Default)]
struct Groups {
    members: BTreeSet<(u64, u64)>,
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
                inside: BTreeMap::new(),
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
    pub fn len(&self) -> usize {
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
        let ticket = Arc::new(Ticket::default());
        let newcomer = Inside {
            client: self.hasher.hash_one(client),
            subject: self.hasher.hash_one(subject),
            since: now,
            ticket: Arc::clone(&ticket),
        };
        let (number, displaced) = self.inner.lock().enter(newcomer, jostle)?;
        // No lock of ours is held: a waker runs code of the runtime it belongs to.
        if let Some(displaced) = displaced {
            displaced.displace();
        }
        Ok(Place {
            room: Arc::clone(self),
            number,
            ticket,
        })
    }
}

impl Place {
    /// Ready when somebody else has taken the place: its holder has to end what it does.
    pub fn poll_displaced(&self, context: &mut Context<'_>) -> Poll<()> {
        let ticket = &self.ticket;
        if ticket.displaced.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut holder = ticket.holder.lock();
        // Whoever displaces it says so before it looks for the waker: one that is left now is found.
        if ticket.displaced.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        match &mut *holder {
            Some(waker) => waker.clone_from(context.waker()),
            None => *holder = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Place {
    /// Whether somebody else has taken it, or it was given up.
    pub fn is_displaced(&self) -> bool {
        self.ticket.displaced.load(Ordering::Acquire)
    }

    /// Has its holder end what it does, as if somebody else had taken the place.
    pub fn give_up(&self) {
        self.ticket.displace();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.inner.lock().remove(self.number);
    }
}

impl Ticket {
    fn displace(&self) {
        self.displaced.store(true, Ordering::Release);
        let holder = self.holder.lock().take();
        if let Some(waker) = holder {
            waker.wake();
        }
    }
}

impl Inner {
    /// Gives the newcomer its number, and who has to leave for it.
    fn enter(&mut self, newcomer: Inside, jostle: Duration) -> Result<(u64, Option<Arc<Ticket>>), Full> {
        let displaced = if self.inside.len() < self.limit {
            None
        } else {
            let victim = self.victim(&newcomer, jostle).ok_or(Full)?;
            self.remove(victim)
        };
        let number = self.next;
        self.next += 1;
        if let Some(shares) = &mut self.shares {
            shares.join(number, &newcomer);
        }
        self.inside.insert(number, newcomer);
        self.reckon();
        Ok((number, displaced.map(|gone| gone.ticket)))
    }

    /// Takes a place away, if it has not been taken before.
    fn remove(&mut self, number: u64) -> Option<Inside> {
        let gone = self.inside.remove(&number)?;
        if let Some(shares) = &mut self.shares {
            shares.leave(number, &gone);
        }
        self.reckon();
        Some(gone)
    }

    /// Begins to reckon shares when three quarters are taken, and stops below a half.
    fn reckon(&mut self) {
        let inside = self.inside.len();
        if self.shares.is_none() && inside * 4 >= self.limit * 3 {
            let mut shares = Box::<Shares>::default();
            for (&number, holder) in &self.inside {
                shares.join(number, holder);
            }
            self.shares = Some(shares);
        } else if self.shares.is_some() && inside * 2 < self.limit {
            self.shares = None;
        }
    }

    /// Who has to give way to the newcomer.
    fn victim(&self, newcomer: &Inside, jostle: Duration) -> Option<u64> {
        let Shares { clients, subjects } = &**self.shares.as_ref()?;
        let small = self.limit / SMALL;
        let own = clients.size(newcomer.client) + 1;
        let (most, client) = clients.largest()?;
        if most > own.max(small) {
            return clients.oldest(client);
        }
        // Places of a client that has fewer than the newcomer's are safe.
        let safe = |number: u64| {
            let holder = self.inside.get(&number);
            holder.is_none_or(|holder| clients.size(holder.client) + 1 < own)
        };
        let (most, subject) = subjects.largest()?;
        if most > small.max(subjects.size(newcomer.subject) + 1)
            && let Some(victim) = subjects.oldest(subject).filter(|&number| !safe(number))
        {
            return Some(victim);
        }
        let oldest = self.inside.keys().next().copied();
        let victim = oldest
            .filter(|&number| !safe(number))
            .or_else(|| clients.oldest(newcomer.client))?;
        let since = self.inside.get(&victim)?.since;
        (newcomer.since.duration_since(since) >= jostle).then_some(victim)
    }
}

impl Shares {
    fn join(&mut self, number: u64, holder: &Inside) {
        self.clients.join(holder.client, number);
        self.subjects.join(holder.subject, number);
    }

    fn leave(&mut self, number: u64, holder: &Inside) {
        self.clients.leave(holder.client, number);
        self.subjects.leave(holder.subject, number);
    }
}

impl Groups {
    fn join(&mut self, group: u64, number: u64) {
        self.members.insert((group, number));
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

    fn oldest(&self, group: u64) -> Option<u64> {
        let (_, number) = self.members.range((group, 0)..=(group, u64::MAX)).next()?;
        Some(*number)
    }
}

#[cfg(test)]
mod tests;
