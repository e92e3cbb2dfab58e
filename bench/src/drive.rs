//! When queries are sent: on a schedule regardless of answers, or as fast as answers come.
//!
//! With a schedule (open loop) the latency of a query counts from the moment it was *due*. If server or
//! client stall, every query that became due meanwhile shows the wait; a client that sent the next query
//! after the last answer would omit exactly the queries that had to wait longest.
//!
//! Both loops spin: a client that sleeps would charge the server for waking it, and measure its own timer.
//! When idle they yield, so that an upstream may run on the same core.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::wire::Question;

/// Queries that a saturating client has in flight. Few enough to fit a socket's default receive buffer, so
/// that losses are the server's doing.
pub const WINDOW: usize = 128;

/// A query without an answer for this long is lost, in nanoseconds.
pub const PATIENCE: u64 = 1_000_000_000;

/// A source of time.
pub trait Clock {
    /// Nanoseconds since some moment.
    fn now(&mut self) -> u64;

    /// Yields the processor.
    fn pause(&mut self);
}

/// The machine's monotonic clock.
pub struct Monotonic;

impl Clock for Monotonic {
    fn now(&mut self) -> u64 {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a timespec of ours. This clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn pause(&mut self) {
        std::thread::yield_now();
    }
}

/// A client with queries in flight.
pub trait Client {
    /// Sends `count` queries that are due at `due`.
    fn ask(
        &mut self,
        count: usize,
        due: u64,
        next: &mut dyn FnMut() -> Question,
        tally: &mut Tally,
    ) -> io::Result<()>;

    /// Takes the answers that have arrived, and returns how many.
    fn collect(&mut self, clock: &mut dyn Clock, tally: &mut Tally) -> io::Result<usize>;

    /// Gives up on queries that were due before `before`.
    fn abandon(&mut self, before: u64, tally: &mut Tally);

    /// How many queries are in flight.
    fn waiting(&self) -> usize;
}

/// The fate of the queries.
pub struct Tally {
    /// Handed to the kernel, or refused by it.
    pub sent: u64,
    /// Answered correctly.
    pub answered: u64,
    /// Answered with something else.
    pub wrong: u64,
    /// Not answered in time.
    pub lost: u64,
    /// TCP connections that the server closed.
    pub reconnects: u64,
    /// From due to answered, in nanoseconds.
    pub latency: Histogram<u64>,
    /// From due to sent: the client's own delay, in nanoseconds.
    pub late: Histogram<u64>,
}

impl Tally {
    /// Returns an empty tally.
    pub fn new() -> Tally {
        Tally {
            sent: 0,
            answered: 0,
            wrong: 0,
            lost: 0,
            reconnects: 0,
            latency: nanoseconds(),
            late: nanoseconds(),
        }
    }
}

/// Values have a precision of one percent, up to eighteen minutes: no measurement is that long.
fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 40, 2)
        .unwrap_or_else(|_| unreachable!("bounds that hdrhistogram allows"))
}

/// Equal batches at equal intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Queries in each batch.
    pub batch: usize,
    /// Nanoseconds between batches.
    pub interval: u64,
    /// How many batches.
    pub batches: u64,
}

impl Schedule {
    /// Spreads `rate` queries a second over `duration`, in batches of `batch`: made even, so that the two
    /// questions of a pair come together.
    pub fn new(rate: u32, batch: usize, duration: Duration) -> Schedule {
        let batch = batch.next_multiple_of(2).max(2);
        let interval = batch as u64 * 1_000_000_000 / u64::from(rate.max(1));
        Schedule {
            batch,
            interval,
            batches: (duration.as_nanos() as u64 / interval).max(1),
        }
    }
}

/// Asks on the schedule, then waits for what is in flight.
pub fn on_schedule(
    client: &mut impl Client,
    clock: &mut impl Clock,
    schedule: Schedule,
    next: &mut dyn FnMut() -> Question,
) -> io::Result<Tally> {
    let mut tally = Tally::new();
    let start = clock.now() + schedule.interval;
    for number in 0..schedule.batches {
        let due = start + number * schedule.interval;
        loop {
            let now = clock.now();
            if now >= due {
                tally.late.saturating_record(now - due);
                break;
            }
            if client.collect(clock, &mut tally)? == 0 {
                clock.pause();
            }
        }
        client.ask(schedule.batch, due, next, &mut tally)?;
        // A late client catches up without a pause, but still takes answers.
        client.collect(clock, &mut tally)?;
    }
    drain(client, clock, &mut tally)?;
    Ok(tally)
}

/// Keeps [`WINDOW`] queries in flight for `duration`, or until `limit` were sent.
pub fn as_fast_as_answered(
    client: &mut impl Client,
    clock: &mut impl Clock,
    duration: Duration,
    limit: u64,
    next: &mut dyn FnMut() -> Question,
) -> io::Result<Tally> {
    let mut tally = Tally::new();
    let start = clock.now();
    let end = start + duration.as_nanos() as u64;
    let mut checked = start;
    loop {
        let now = clock.now();
        if now >= end || tally.sent >= limit {
            break;
        }
        if now - checked > PATIENCE / 10 {
            client.abandon(now.saturating_sub(PATIENCE), &mut tally);
            checked = now;
        }
        let room = WINDOW.saturating_sub(client.waiting()) as u64;
        let count = room.min(limit - tally.sent) as usize;
        if count > 0 {
            client.ask(count, now, next, &mut tally)?;
        }
        if client.collect(clock, &mut tally)? == 0 {
            clock.pause();
        }
    }
    drain(client, clock, &mut tally)?;
    Ok(tally)
}

fn drain(client: &mut impl Client, clock: &mut impl Clock, tally: &mut Tally) -> io::Result<()> {
    let start = clock.now();
    while client.waiting() > 0 && clock.now() - start < PATIENCE {
        if client.collect(clock, tally)? == 0 {
            clock.pause();
        }
    }
    client.abandon(u64::MAX, tally);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::VecDeque;

    /// A clock that advances when it is read.
    struct Simulated<'a>(&'a Cell<u64>);

    impl Clock for Simulated<'_> {
        fn now(&mut self) -> u64 {
            self.0.set(self.0.get() + 100);
            self.0.get()
        }

        fn pause(&mut self) {
            self.0.set(self.0.get() + 1000);
        }
    }

    /// A server that answers after `latency`, but not within `stall`.
    struct Server<'a> {
        time: &'a Cell<u64>,
        latency: u64,
        stall: std::ops::Range<u64>,
        drops: bool,
        waiting: VecDeque<(u64, u64)>,
        most: usize,
    }

    impl Client for Server<'_> {
        fn ask(
            &mut self,
            count: usize,
            due: u64,
            next: &mut dyn FnMut() -> Question,
            tally: &mut Tally,
        ) -> io::Result<()> {
            for _ in 0..count {
                next();
                let mut at = self.time.get() + self.latency;
                if self.stall.contains(&at) {
                    at = self.stall.end;
                }
                self.waiting.push_back((at, due));
            }
            tally.sent += count as u64;
            self.most = self.most.max(self.waiting.len());
            Ok(())
        }

        fn collect(&mut self, clock: &mut dyn Clock, tally: &mut Tally) -> io::Result<usize> {
            let now = clock.now();
            let mut taken = 0;
            while let Some((_, due)) = self.waiting.pop_front_if(|(at, _)| *at <= now && !self.drops) {
                tally.answered += 1;
                tally.latency.saturating_record(now - due);
                taken += 1;
            }
            Ok(taken)
        }

        fn abandon(&mut self, before: u64, tally: &mut Tally) {
            let waiting = self.waiting.len();
            self.waiting.retain(|(_, due)| *due >= before);
            tally.lost += (waiting - self.waiting.len()) as u64;
        }

        fn waiting(&self) -> usize {
            self.waiting.len()
        }
    }

    fn server(time: &Cell<u64>, stall: std::ops::Range<u64>) -> Server<'_> {
        Server {
            time,
            latency: 50_000,
            stall,
            drops: false,
            waiting: VecDeque::new(),
            most: 0,
        }
    }

    fn any() -> Question {
        Question {
            letter: b'h',
            number: 0,
            qtype: 1,
            exists: true,
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_schedule_has_the_rate_it_was_made_for() {
        for rate in [100, 1500, 2000, 10_000, 59_999, 60_000, 250_000] {
            let schedule = Schedule::new(rate, 15, Duration::from_secs(3));
            let queries = schedule.batch as u64 * schedule.batches;
            let wanted = u64::from(rate) * 3;
            assert!(queries.abs_diff(wanted) <= wanted / 100 + 16, "{rate}: {queries}");
            assert_eq!(schedule.batch, 16, "a pair is not torn apart");
        }
        assert_eq!(Schedule::new(60_000, 60, Duration::from_secs(1)).interval, MS);
    }

    /// A server that stalls for a tenth of the time: a tenth of all queries, evenly spread over the stall,
    /// must show it. A client that waits for answers would have seen one slow batch.
    #[test]
    fn a_stall_shows_in_every_query_that_was_due_in_it() {
        let time = Cell::new(0);
        let mut server = server(&time, 500 * MS..600 * MS);
        let schedule = Schedule::new(10_000, 10, Duration::from_secs(1));
        let tally = on_schedule(&mut server, &mut Simulated(&time), schedule, &mut any).unwrap();
        assert_eq!((tally.sent, tally.answered, tally.lost), (10_000, 10_000, 0));
        let at = |part| tally.latency.value_at_quantile(part);
        assert!(at(0.89) < MS, "{}", at(0.89));
        assert!((45 * MS..55 * MS).contains(&at(0.95)), "{}", at(0.95));
        assert!((95 * MS..102 * MS).contains(&at(1.0)), "{}", at(1.0));
    }

    /// The client itself stalls: it catches up without a pause, and the wait counts.
    #[test]
    fn a_late_client_catches_up_and_counts_the_wait() {
        struct Jump<'a>(Simulated<'a>, bool);
        impl Clock for Jump<'_> {
            fn now(&mut self) -> u64 {
                let now = self.0.now();
                if now > 500 * MS && !self.1 {
                    self.1 = true;
                    self.0.0.set(now + 100 * MS);
                }
                self.0.now()
            }
            fn pause(&mut self) {
                self.0.pause();
            }
        }
        let time = Cell::new(0);
        let mut server = server(&time, 0..0);
        let schedule = Schedule::new(10_000, 10, Duration::from_secs(1));
        let mut clock = Jump(Simulated(&time), false);
        let tally = on_schedule(&mut server, &mut clock, schedule, &mut any).unwrap();
        assert_eq!(tally.answered, 10_000);
        let at = |part| tally.latency.value_at_quantile(part);
        assert!((45 * MS..55 * MS).contains(&at(0.95)), "{}", at(0.95));
        assert!(tally.late.value_at_quantile(1.0) > 95 * MS);
        assert!(time.get() < 1_010 * MS, "it caught up");
    }

    #[test]
    fn what_is_not_answered_is_lost() {
        let time = Cell::new(0);
        let mut silent = server(&time, 0..0);
        silent.drops = true;
        let schedule = Schedule::new(10_000, 10, Duration::from_millis(100));
        let tally = on_schedule(&mut silent, &mut Simulated(&time), schedule, &mut any).unwrap();
        assert_eq!((tally.sent, tally.answered, tally.lost), (1000, 0, 1000));
    }

    #[test]
    fn saturation_keeps_the_window_full_and_no_fuller() {
        let time = Cell::new(0);
        let mut server = server(&time, 0..0);
        let tally = as_fast_as_answered(
            &mut server,
            &mut Simulated(&time),
            Duration::from_millis(100),
            u64::MAX,
            &mut any,
        );
        let tally = tally.unwrap();
        assert_eq!(server.most, WINDOW);
        assert_eq!((tally.answered, tally.lost), (tally.sent, 0));
        // 128 every 50 us, plus the time to read the clock.
        let rate = tally.answered * 10;
        assert!((1_500_000..=2_600_000).contains(&rate), "{rate}");
        let mut few = self::server(&time, 0..0);
        let tally = as_fast_as_answered(
            &mut few,
            &mut Simulated(&time),
            Duration::from_secs(1),
            1000,
            &mut any,
        );
        assert_eq!(tally.unwrap().sent, 1000);
    }
}
