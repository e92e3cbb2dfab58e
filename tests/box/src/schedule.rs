//! One thread at a time, drawn by seed. When none can run, time jumps to what is due next.
//!
//! The thread that runs holds the baton, and with it the world: everything that this library knows is read and written by
//! that thread alone. It passes the baton on where the program would wait, and where it wakes another thread.

use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::kernel;
use crate::pulse;
use crate::world::World;

/// No time at all.
pub const NEVER: u64 = u64::MAX;

/// What a thread waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// Nothing: it can run.
    No,
    /// Its deadline.
    Sleep,
    /// A wake-up at an address; whether it has come.
    Futex { address: usize, woken: bool },
    /// Events of an epoll instance.
    Epoll(u32),
    /// Anything to happen to a socket of the box, after so many such things, or to one of these descriptors of the kernel's.
    Anything { seen: u64, kernel: Vec<(i32, i16)> },
    /// The end of another thread.
    Join(usize),
    /// Nothing any more.
    Ended,
}

/// A thread of the program.
pub struct Thread {
    /// What it waits for.
    pub waits: Waits,
    /// When it stops waiting, in nanoseconds since the start.
    pub deadline: u64,
    /// The C library's number of it.
    pub number: libc::pthread_t,
    /// What it was charged, in nanoseconds.
    pub charged: u64,
    /// 1 for as long as it may run. Leaked, since a thread that ends still looks at it.
    pub gate: &'static AtomicU32,
}

impl Thread {
    /// One that waits for its turn.
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

/// What is to be done next.
pub enum Drawn {
    /// This thread runs.
    Runs(usize),
    /// The process gets a signal.
    Signal(i32),
}

/// The world, for whoever holds the baton.
struct Shared(UnsafeCell<Option<World>>);

// SAFETY: only the thread that holds the baton looks inside, and the gates order what one wrote before what the next reads.
unsafe impl Sync for Shared {}

static WORLD: Shared = Shared(UnsafeCell::new(None));

thread_local! {
    /// Which thread of the world this is; none before the world begins, for threads that are not the program's, and while
    /// this one waits for its turn: a signal's handler may run meanwhile.
    static SELF: Cell<Option<usize>> = const { Cell::new(None) };
}

/// This thread's place in the world.
pub fn this() -> Option<usize> {
    SELF.try_with(Cell::get).ok().flatten()
}

/// The world, if this thread is one of it and so holds the baton. The reference must not be kept while this thread waits.
pub fn world() -> Option<&'static mut World> {
    this()?;
    // SAFETY: a thread has its place only while it holds the baton, so no other looks inside; and no caller keeps the
    // reference past `wait`, which is where the baton goes on and where handlers of signals run.
    unsafe { (*WORLD.0.get()).as_mut() }
}

/// The world begins, and this thread is its first.
pub fn begin(world: World) {
    // SAFETY: the library's constructor calls this, before the program has a second thread.
    unsafe { *WORLD.0.get() = Some(world) };
    SELF.set(Some(0));
}

/// This thread is a new one of the world; it waits for its turn.
pub fn enter(index: usize, gate: &'static AtomicU32) {
    close(gate);
    pulse::runs();
    SELF.set(Some(index));
}

/// This thread leaves the world: another one runs.
pub fn leave() {
    let (Some(index), Some(world)) = (this(), world()) else {
        return;
    };
    world.threads[index].waits = Waits::Ended;
    let next = draw();
    SELF.set(None);
    open(next.1);
}

/// Waits: whatever else can run does, until this is over or it is `deadline`.
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

/// Who runs next. Signals that are due reach the process first, on this thread.
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
            // The handler runs before this call returns, and no reference to the world is left.
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

/// Waits until this thread may run, and takes the permission.
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
