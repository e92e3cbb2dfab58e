//! Runs one thread at a time, drawn by seed. When none can run, time jumps to the next event.
//!
//! The running thread holds the baton, and with it the world: only that thread reads or writes the state of
//! this library. It passes the baton on where the program would block, and where it wakes another thread.

use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::kernel;
use crate::pulse;
use crate::world::World;

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// What a thread waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// Nothing: it can run.
    No,
    /// Its deadline.
    Sleep,
    /// A wake-up at an address, and whether it has come.
    Futex { address: usize, woken: bool },
    /// Events of an epoll instance.
    Epoll(u32),
    /// Any event on a socket of the box after the first `seen`, or on one of these descriptors of the kernel.
    Anything { seen: u64, kernel: Vec<(i32, i16)> },
    /// The end of another thread.
    Join(usize),
    /// Nothing: it has ended.
    Ended,
}

/// A thread of the program.
pub struct Thread {
    /// What it waits for.
    pub waits: Waits,
    /// When the wait times out, in nanoseconds since the start.
    pub deadline: u64,
    /// Its `pthread_t`.
    pub number: libc::pthread_t,
    /// The CPU time charged to it, in nanoseconds.
    pub charged: u64,
    /// 1 while it may run. Leaked, because an ending thread still reads it.
    pub gate: &'static AtomicU32,
}

impl Thread {
    /// Returns a thread that waits for its turn.
    pub fn new() -> Thread {
        Thread {
            waits: Waits::No,
            deadline: NEVER,
            number: 0,
            charged: 0,
            gate: Box::leak(Box::new(AtomicU32::new(0))),
        }
    }
}

/// The next step.
pub enum Drawn {
    /// This thread runs.
    Runs(usize),
    /// The process receives a signal.
    Signal(i32),
}

/// The world, for the thread with the baton.
struct Shared(UnsafeCell<Option<World>>);

// SAFETY: only the thread with the baton looks inside, and the gates order each thread's writes before the
// next one's reads.
unsafe impl Sync for Shared {}

static WORLD: Shared = Shared(UnsafeCell::new(None));

thread_local! {
    /// The index of this thread in the world; `None` before the world begins, in threads that are not the
    /// program's, and while the thread waits for its turn, when a signal handler may run.
    static SELF: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns this thread's index in the world.
pub fn this() -> Option<usize> {
    SELF.try_with(Cell::get).ok().flatten()
}

/// Returns the world if this thread holds the baton. The reference must not be kept across a wait.
pub fn world() -> Option<&'static mut World> {
    this()?;
    // SAFETY: a thread has an index only while it holds the baton, so no other thread looks inside. No caller
    // keeps the reference across `wait`, which is where the baton is passed on and where signal handlers run.
    unsafe { (*WORLD.0.get()).as_mut() }
}

/// Begins the world with this thread as its first.
pub fn begin(world: World) {
    // SAFETY: the library's constructor calls this, before the program has a second thread.
    unsafe { *WORLD.0.get() = Some(world) };
    SELF.set(Some(0));
}

/// Adds this new thread to the world; it waits for its turn.
pub fn enter(index: usize, gate: &'static AtomicU32) {
    close(gate);
    pulse::runs();
    SELF.set(Some(index));
}

/// Removes this thread from the world and lets another one run.
pub fn leave() {
    let (Some(index), Some(world)) = (this(), world()) else {
        return;
    };
    world.threads[index].waits = Waits::Ended;
    let next = draw();
    SELF.set(None);
    open(next.1);
}

/// Lets other threads run until the wait is over or `deadline` is reached.
pub fn wait(waits: Waits, deadline: u64) {
    let (Some(index), Some(world)) = (this(), world()) else {
        return;
    };
    world.settle(index);
    let own = world.threads[index].gate;
    world.threads[index].waits = waits;
    world.threads[index].deadline = deadline;
    let (next, gate) = draw();
    if next != index {
        SELF.set(None);
        open(gate);
        close(own);
        pulse::runs();
        SELF.set(Some(index));
    }
    if let Some(world) = self::world() {
        world.threads[index].deadline = NEVER;
    }
}

/// Picks the next thread. Signals that are due are first delivered, on this thread.
fn draw() -> (usize, &'static AtomicU32) {
    loop {
        let Some(world) = world() else {
            unreachable!("whoever draws holds the baton")
        };
        match world.draw() {
            Drawn::Runs(index) => {
                let thread = &mut world.threads[index];
                if !matches!(thread.waits, Waits::Futex { .. }) {
                    thread.waits = Waits::No;
                }
                return (index, thread.gate);
            }
            // The handler runs before this call returns; no reference to the world is held here.
            Drawn::Signal(signal) => {
                let (process, thread) = (kernel!(libc::SYS_getpid), kernel!(libc::SYS_gettid));
                kernel!(libc::SYS_tgkill, process, thread, signal);
            }
        }
    }
}

/// Lets a thread run.
fn open(gate: &AtomicU32) {
    gate.store(1, Ordering::Release);
    kernel!(
        libc::SYS_futex,
        ptr::from_ref(gate),
        libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
        1
    );
}

/// Waits until this thread may run, and consumes the permission.
fn close(gate: &AtomicU32) {
    while gate.swap(0, Ordering::Acquire) == 0 {
        kernel!(
            libc::SYS_futex,
            ptr::from_ref(gate),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            0,
            0
        );
    }
}
