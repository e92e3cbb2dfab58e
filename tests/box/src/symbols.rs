//! The C library symbols that the box replaces. In threads outside the world, and for the kernel's
//! descriptors, each does what the C library does.
//!
//! Variadic functions of the C library take all their arguments here: on both architectures that dnsweir
//! supports, integers and pointers are passed in the same registers either way.

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

/// Charges for a call that the box sees, and may pass the baton on.
pub fn seen() {
    let (Some(thread), Some(world)) = (this(), world()) else {
        return;
    };
    if world.charge(thread) {
        wait(Waits::No, crate::schedule::NEVER);
    }
}

/// Whether a call must fail; `errno` is then set.
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

/// Like `fails`, for calls that the box does not simulate, such as netlink: they fail only outside.
pub fn fails_outside(kind: Kind, what: &str) -> bool {
    world().is_none() && fails(kind, what)
}

/// Whether a call must read or write less than it could.
pub fn shortened() -> bool {
    world().is_some_and(|world| {
        let fate = world.faults.meets(Kind::Short, "", world.net.now);
        matches!(fate, Fate::Fails(_))
    })
}

/// The result of one attempt at a call.
pub enum Tried<T> {
    Done(T),
    Failed(i32),
    /// It would block.
    Waits,
}

/// Retries a call that may block, until it completes or the deadline passes.
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
