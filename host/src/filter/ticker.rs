//! The clock that ends calls which take too long.
//!
//! Compiled guests compare the engine's epoch with their store's deadline at every loop and function
//! entry; somebody has to advance the epoch. One thread does, once a millisecond, and sleeps without
//! waking while no filter runs.
//!
//! Why no call can miss its deadline. Three values: the *epoch*, which guests see; `now`, the ticks
//! counted so far; and `until`, the tick up to which the thread has promised to go on.
//!
//! 1. A call whose deadline is `ticks` away sets it, reads `now`, and does not start before
//!    `until ≥ now + ticks`, raising `until` itself if need be ([`Ticker::cover`]).
//! 2. The thread counts `now` before it advances the epoch, so the epoch a deadline was computed from is at
//!    most the `now` the call reads afterwards, and the deadline is at most `until`.
//! 3. `until` never falls, and the thread parks only when it finds `now ≥ until`, at which point the epoch
//!    equals `now` and so has passed the deadline.
//! 4. Raising `until` is followed by an unpark. If the thread had just decided to park, the token makes it
//!    look again.
//!
//! A call that [is given more time](super::time_limit) sets a later deadline without `until` having been raised for
//! it. It keeps the thread [awake](Ticker::keep_awake) instead, from before it sets the deadline until it is over: the
//! thread counts on, past `until`, and an unpark follows here, too.
//!
//! None of this depends on how long anything takes. What does is by how much a deadline is late: on a busy
//! machine the kernel may let the thread wait, which then makes up for a few ticks at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The unit of deadlines.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Ticks promised beyond what a call asked for, so that a busy process raises the promise (and unparks)
/// once a second and not once a call.
const AHEAD: u64 = 1000;

/// Ticks made up for at most when the kernel let the thread wait. Bounded so that a process which was stopped
/// for a minute does not find its calls a minute late.
const CATCH_UP: u128 = 4;

/// Owns the thread: it ends when this is dropped.
pub(super) struct Ticker {
    state: Arc<State>,
    thread: Thread,
}

#[derive(Default)]
struct State {
    now: AtomicU64,
    until: AtomicU64,
    /// How many want it to go on whatever was promised.
    awake: AtomicU64,
    stop: AtomicBool,
}

impl Ticker {
    /// Starts the thread, parked. `advance` moves the epoch by one.
    pub(super) fn start(advance: impl Fn() + Send + 'static) -> io::Result<Ticker> {
        let state = Arc::new(State::default());
        let thread = thread::Builder::new()
            .name("filter-clock".into())
            .stack_size(64 << 10)
            .spawn({
                let state = Arc::clone(&state);
                move || state.run(advance)
            })?
            .thread()
            .clone();
        Ok(Ticker { state, thread })
    }

    /// How many ticks give a call at least `time`: one more than it holds, since the tick under way is
    /// already partly over.
    pub(super) fn ticks(time: Duration) -> u64 {
        u64::try_from(time.as_millis())
            .unwrap_or(u64::MAX / 2)
            .saturating_add(1)
    }

    /// To be called after a deadline `ticks` away was set and before the guest is entered: makes sure that
    /// the epoch gets there.
    #[inline]
    pub(super) fn cover(&self, ticks: u64) {
        // Pairs with the fence in `run`: having read an epoch, we read a `now` no older than it.
        fence(Ordering::Acquire);
        let needed = self.state.now.load(Ordering::Relaxed).saturating_add(ticks);
        if self.state.until.load(Ordering::Relaxed) < needed {
            self.extend(needed);
        }
    }

    #[cold]
    fn extend(&self, needed: u64) {
        self.state
            .until
            .fetch_max(needed.saturating_add(AHEAD), Ordering::Release);
        self.thread.unpark();
    }
}

/// Keeps the ticker going while it lives.
pub(super) struct Awake(Arc<Ticker>);

impl Ticker {
    /// Has the epoch go on until what is returned is dropped.
    pub(super) fn keep_awake(ticker: &Arc<Ticker>) -> Awake {
        ticker.state.awake.fetch_add(1, Ordering::Release);
        ticker.thread.unpark();
        Awake(Arc::clone(ticker))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.state.awake.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl State {
    fn run(&self, advance: impl Fn()) {
        let mut last = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            let now = self.now.load(Ordering::Relaxed);
            let wanted = self.awake.load(Ordering::Acquire) > 0;
            if now >= self.until.load(Ordering::Acquire) && !wanted {
                thread::park();
                last = Instant::now();
                continue;
            }
            thread::sleep(TICK);
            let passed = last.elapsed().as_millis().clamp(1, CATCH_UP) as u64;
            last = Instant::now();
            for tick in 1..=passed {
                self.now.store(now + tick, Ordering::Relaxed);
                fence(Ordering::Release);
                advance();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn ticks_as_far_as_it_promised_and_no_further() {
        let (sender, ticks) = channel();
        let ticker = Ticker::start(move || {
            let _ = sender.send(());
        })
        .unwrap();
        assert!(ticks.try_recv().is_err(), "nobody has asked for a tick");
        ticker.cover(3);
        for _ in 0..3 + AHEAD {
            ticks.recv().unwrap();
        }
        // Parked now, or about to: a second call must wake it again.
        ticker.cover(1);
        ticks.recv().unwrap();
        drop(ticker);
        // The thread lets go of the sender, so this ends.
        while ticks.recv().is_ok() {}
    }

    #[test]
    fn goes_on_while_somebody_wants_it_to() {
        let (sender, ticks) = channel();
        let ticker = Arc::new(
            Ticker::start(move || {
                let _ = sender.send(());
            })
            .unwrap(),
        );
        let awake = Ticker::keep_awake(&ticker);
        for _ in 0..20 {
            ticks.recv().unwrap();
        }
        drop(awake);
        assert_eq!(ticker.state.awake.load(Ordering::Relaxed), 0);
        drop(ticker);
        while ticks.recv().is_ok() {}
    }

    #[test]
    fn a_limit_gets_at_least_its_time() {
        assert_eq!(Ticker::ticks(Duration::from_millis(5)), 6);
        assert_eq!(Ticker::ticks(Duration::from_micros(10)), 1);
        assert!(Ticker::ticks(Duration::MAX) > u64::MAX / 4);
    }
}
