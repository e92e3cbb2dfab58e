//! The C library's symbols that the box stands in for. Where a thread is none of the world's, or a descriptor is the kernel's,
//! each does what the C library does.
//!
//! Those that take a variable number of arguments there take all of them here: on both architectures that dnsweir is built
//! for, integers and pointers are passed in the same registers either way.

mod chance;
mod descriptors;
mod events;
mod files;
pub mod memory;
mod messages;
mod sockets;
mod threads;
mod time;

use crate::faults::{Fate, Kind};
use crate::kernel::fail;
use crate::outside;
use crate::schedule::{Waits, this, wait, world};

/// A call that the box sees: it costs something, and may pass the baton on.
pub fn seen() {
    let (Some(thread), Some(world)) = (this(), world()) else {
        return;
    };
    if world.charge(thread) {
        wait(Waits::No, crate::schedule::NEVER);
    }
}

/// Whether a call is to fail: with `errno` set then.
pub fn fails(kind: Kind, what: &str) -> bool {
    let fate = match world() {
        Some(world) => world.faults.meets(kind, what, world.net.now),
        None => outside::meets(kind, what),
    };
    match (fate, world()) {
        (Fate::Passes, _) => false,
        (Fate::Fails(errno), _) => {
            fail(errno);
            true
        }
        (Fate::Kills, Some(world)) => world.end_by_force(),
        (Fate::Kills, None) => outside::end_by_force(),
    }
}

/// The same for calls that the world has no part in, such as those to netlink: they fail outside alone.
pub fn fails_outside(kind: Kind, what: &str) -> bool {
    world().is_none() && fails(kind, what)
}

/// Whether a call is to read or write less than it could.
pub fn shortened() -> bool {
    world().is_some_and(|world| {
        let fate = world.faults.meets(Kind::Short, "", world.net.now);
        matches!(fate, Fate::Fails(_))
    })
}

/// Ready, or not yet: what a call tries.
pub enum Tried<T> {
    Done(T),
    Failed(i32),
    /// It would wait.
    Waits,
}

/// Tries until it is done, or until a time: what a call that may wait does.
pub fn until<T>(
    deadline: u64,
    mut attempt: impl FnMut(&mut crate::world::World) -> Tried<T>,
) -> Result<T, i32> {
    loop {
        let Some(world) = world() else {
            return Err(libc::EIO);
        };
        let tried = attempt(world);
        world.spread();
        match tried {
            Tried::Done(value) => return Ok(value),
            Tried::Failed(errno) => return Err(errno),
            Tried::Waits if world.net.now >= deadline => return Err(libc::EAGAIN),
            Tried::Waits => {
                let seen = world.changes;
                wait(
                    Waits::Anything {
                        seen,
                        kernel: Vec::new(),
                    },
                    deadline,
                );
            }
        }
    }
}
