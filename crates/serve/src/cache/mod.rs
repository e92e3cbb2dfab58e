//! Cached answers.
//!
//! One store for the whole process, bounded in bytes, shared by all workers and zones. It outlives every
//! generation: a reload keeps what is cached. Beside it, [`Flights`] merges concurrent identical queries of
//! many clients into one upstream query.
//!
//! The store holds finished messages. Its callers decide what may be cached, for how long, and what a hit
//! looks like to a client (ID, flags, question case, EDNS). It reads no clock: callers pass the time.
//! It starts no task or thread: expired entries are cleared by later calls.
//!
//! On a miss, the order of steps matters:
//!
//! 1. [`Cache::lookup`] finds nothing usable.
//! 2. Once the query may wait, the key is looked up again: another query may have stored an answer since.
//! 3. [`Flights::join`]: a follower waits for the leader's result.
//! 4. The leader asks upstream, calls [`Cache::insert`], and only then lets its [`Leader`] wake the others.
//!    Each of them may store what it makes of the result; [`Cache::peek`] shows whether that has been done.

mod entry;
#[cfg(test)]
mod fixture;
mod flight;
mod freshness;
mod ghost;
mod key;
#[cfg(test)]
mod model;
mod shard;
mod store;

pub(crate) use entry::RefreshClaim;
pub use entry::{Entry, Kind, Stored};
pub(crate) use flight::Flights;
pub use flight::{Join, Leader};
pub use freshness::{Freshness, Lifetime};
pub use key::{Key, KeyFlags, KeyHasher};
pub use store::{Cache, Insertion};
