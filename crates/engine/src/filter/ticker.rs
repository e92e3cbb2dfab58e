//! The clock that ends calls that take too long.
//!
//! Compiled guests compare the engine's epoch with their store's deadline at every loop and function entry;
//! something has to advance the epoch. One thread does, and only while a call lasts: nearly all calls are
//! over in microseconds, and waking a thread a thousand times a second would cost more than they do. So the
//! thread checks every [`LOOK`] whether a call is under way, advances the epoch every [`TICK`] while one is,
//! and parks when none has begun for a second.
//!
//! Why no call can run unseen:
//!
//! 1. A call [shows itself](Mark::during) before the guest is entered, and until it is over.
//! 2. The thread checks the calls at least every [`LOOK`], unless it is parked.
//! 3. Before it parks, it announces that and checks once more; a call shows itself and then checks for the
//!    announcement. Both write, pass a fence, and read what the other writes: at least one sees the other, and
//!    a call that sees the announcement wakes the thread.
//!
//! A guest can be interrupted only at loops and function entries, not in a host function or in an instruction
//! that fills or copies memory. So the thread notes, when it first sees a call, how long the caller's thread
//! has run, and the caller finds out afterwards how long it [ran since](Mark::ran_since_seen).
//!
//! None of this depends on timing. Only the delay of an interruption does: [`LOOK`] plus a tick, plus the
//! time that the kernel keeps the thread waiting on a busy machine.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::time_limit::{clock_of_thread, read_clock, thread_clock};

/// How often the epoch advances while a call is under way.
const TICK: Duration = Duration::from_millis(1);

/// How long a call may be under way before it is noticed.
const LOOK: Duration = Duration::from_millis(4);

/// Checks without a new call before the thread parks. They take a second, so a busy process wakes the thread
/// at most once a second, not once per call.
const QUIET: u32 = 250;

/// Owns the thread, which ends when this is dropped.
pub(super) struct Ticker {
    state: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    thread: OnceLock<Thread>,
    marks: Mutex<Vec<Weak<Calls>>>,
    /// The thread is about to park, or is parked.
    parked: AtomicBool,
    stop: AtomicBool,
}

/// Shows that a call is under way. Each caller has one, and makes one call at a time.
pub(super) struct Mark {
    state: Arc<Shared>,
    calls: Arc<Calls>,
}

/// What a mark shows, and what the thread noted about it.
#[derive(Default)]
struct Calls {
    /// Calls begun plus calls ended: odd while one is under way.
    count: AtomicU64,
    /// CPU clock of the thread that makes the current call.
    clock: AtomicI32,
    /// `count` when the thread last saw a new call, and the caller's CPU time then, in nanoseconds.
    seen: AtomicU64,
    seen_at: AtomicU64,
}

/// A call under way.
struct Shown<'a>(&'a AtomicU64);

/// The result of one check of all marks.
#[derive(PartialEq, Eq)]
struct Look {
    under_way: bool,
    /// Sum of all counts.
    count: u64,
}

impl Ticker {
    /// Starts the thread, parked. `advance` moves the epoch by one.
    pub(super) fn start(advance: impl Fn() + Send + 'static) -> io::Result<Ticker> {
        let state = Arc::new(Shared::default());
        let thread = thread::Builder::new()
            .name("filter-clock".into())
            .stack_size(64 << 10)
            .spawn({
                let state = Arc::clone(&state);
                move || state.run(advance)
            })?;
        // Not needed earlier: there are no marks yet.
        let _ = state.thread.set(thread.thread().clone());
        Ok(Ticker { state })
    }

    /// Registers a new mark.
    pub(super) fn mark(&self) -> Mark {
        let calls = Arc::<Calls>::default();
        let mut marks = self.state.marks.lock();
        marks.retain(|mark| mark.strong_count() > 0);
        marks.push(Arc::downgrade(&calls));
        Mark {
            state: Arc::clone(&self.state),
            calls,
        }
    }
}

impl Mark {
    /// Makes a call, during which the epoch advances: first within [`LOOK`] plus a tick, then every tick.
    #[inline]
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        let count = &self.calls.count;
        self.calls.clock.store(clock_of_thread(), Ordering::Relaxed);
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
        let _shown = Shown(count);
        // Pairs with the fence in `park`.
        fence(Ordering::SeqCst);
        if self.state.parked.load(Ordering::Relaxed) {
            self.state.wake();
        }
        call()
    }

    /// CPU time that this thread has used since its last call was first seen; none: that call was not seen.
    #[inline]
    pub(super) fn ran_since_seen(&self) -> Option<Duration> {
        let calls = &self.calls;
        let was_seen = calls.seen.load(Ordering::Acquire) + 1 == calls.count.load(Ordering::Relaxed);
        was_seen.then(|| {
            let then = Duration::from_nanos(calls.seen_at.load(Ordering::Relaxed));
            thread_clock().saturating_sub(then)
        })
    }
}

impl Calls {
    /// Notes a call not seen before. Returns the count.
    fn look(&self) -> u64 {
        let count = self.count.load(Ordering::Acquire);
        if count % 2 == 1
            && self.seen.load(Ordering::Relaxed) != count
            && let Some(now) = read_clock(self.clock.load(Ordering::Relaxed))
        {
            self.seen_at.store(now.as_nanos() as u64, Ordering::Relaxed);
            self.seen.store(count, Ordering::Release);
        }
        count
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count + 1, Ordering::Release);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        self.state.wake();
    }
}

impl Shared {
    #[cold]
    fn wake(&self) {
        self.parked.store(false, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn look(&self) -> Look {
        let mut look = Look {
            under_way: false,
            count: 0,
        };
        for mark in self.marks.lock().iter().filter_map(Weak::upgrade) {
            let count = mark.look();
            look.under_way |= count % 2 == 1;
            look.count = look.count.wrapping_add(count);
        }
        look
    }

    fn run(&self, advance: impl Fn()) {
        let mut quiet = QUIET;
        let mut before = 0;
        while !self.stop.load(Ordering::Acquire) {
            let look = self.look();
            if look.under_way {
                quiet = 0;
                advance();
                thread::sleep(TICK);
            } else if look.count == before && quiet >= QUIET {
                self.park(&look);
            } else {
                quiet = if look.count == before { quiet + 1 } else { 0 };
                thread::sleep(LOOK);
            }
            before = look.count;
        }
    }

    /// Waits until a call begins, unless one has begun since `look`.
    fn park(&self, look: &Look) {
        self.parked.store(true, Ordering::Relaxed);
        // Pairs with the fence in `during`.
        fence(Ordering::SeqCst);
        if self.look() != *look || self.stop.load(Ordering::Acquire) {
            self.parked.store(false, Ordering::Relaxed);
        }
        while self.parked.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn ticker() -> (Ticker, Receiver<()>) {
        let (sender, ticks) = channel();
        let ticker = Ticker::start(move || {
            let _ = sender.send(());
        })
        .unwrap();
        (ticker, ticks)
    }

    /// Waits until the thread has parked.
    fn until_parked(ticker: &Ticker) {
        while !ticker.state.parked.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    #[test]
    fn ticks_while_a_call_is_under_way_and_then_no_more() {
        let (ticker, ticks) = ticker();
        let mark = ticker.mark();
        until_parked(&ticker);
        assert!(ticks.try_recv().is_err(), "nobody has called");
        mark.during(|| {
            for _ in 0..20 {
                ticks.recv().unwrap();
            }
        });
        until_parked(&ticker);
        // It is parked, so no more ticks will be sent.
        while ticks.try_recv().is_ok() {}
        // A second call wakes it again.
        mark.during(|| ticks.recv().unwrap());
        drop(ticker);
        // Ends because the thread drops the sender.
        while ticks.recv().is_ok() {}
    }

    #[test]
    fn any_of_many_is_seen() {
        let (ticker, ticks) = ticker();
        let marks: Vec<Mark> = (0..8).map(|_| ticker.mark()).collect();
        for mark in &marks {
            mark.during(|| ticks.recv().unwrap());
        }
        drop(marks);
        let mark = ticker.mark();
        assert_eq!(
            ticker.state.marks.lock().len(),
            1,
            "those that are gone are forgotten"
        );
        mark.during(|| ticks.recv().unwrap());
    }

    /// Even if the call does nothing that can be interrupted.
    #[test]
    fn what_a_call_ran_is_known_when_it_is_over() {
        let (ticker, _ticks) = ticker();
        let mark = ticker.mark();
        let ran = Duration::from_millis(10);
        mark.during(|| {
            while mark.calls.seen.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            let begun = thread_clock();
            while thread_clock() - begun < ran {}
        });
        assert!(mark.ran_since_seen().unwrap() >= ran);
        // A later call that was not seen must not report the time of the earlier one.
        mark.calls.count.fetch_add(2, Ordering::Relaxed);
        assert_eq!(mark.ran_since_seen(), None);
    }

    #[test]
    fn a_call_that_ends_by_a_panic_is_over() {
        let (ticker, _ticks) = ticker();
        let mark = ticker.mark();
        let call = std::panic::AssertUnwindSafe(|| mark.during(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(call).is_err());
        assert!(!ticker.state.look().under_way);
    }
}
