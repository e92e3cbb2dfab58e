//! Answers that were asked for before.
//!
//! One store for the whole process, bounded in bytes, shared by all workers and zones, and older than
//! any generation: a reload keeps what is cached. Beside it, [`Flights`] makes one upstream query out of
//! many clients that ask the same thing at the same moment.
//!
//! The store holds finished messages. What may be cached, for how long, and what a hit looks like to one
//! client (ID, flags, question case, EDNS) is decided by its callers. It reads no clock: callers pass
//! milliseconds since the process started. It starts no task or thread: what has expired is cleared away
//! by the calls that come along anyway.
//!
//! A miss goes like this, and the order matters:
//!
//! 1. [`Cache::lookup`] finds nothing usable.
//! 2. The key is looked up once more when its turn comes to wait: another's answer may have been stored since.
//! 3. [`Flights::join`]: a follower waits for the leader's result.
//! 4. The leader asks upstream, calls [`Cache::insert`], and only then lets its [`Leader`] tell the others. Each of
//!    them may store what it makes of the result; [`Cache::peek`] tells that it has been done.

mod entry;
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
