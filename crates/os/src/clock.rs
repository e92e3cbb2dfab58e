//! Clocks, and types for the moments of two of them, so that these are not mixed up.
//!
//! [`Uptime`] is what a process measures with: it never goes back, and includes the time in which the machine
//! slept. [`UnixTime`] is for people and filters; it jumps when the machine's clock is set. [`since_boot`] is
//! the same for all processes of a machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since boot, including sleep: the same for all processes, in any container. So entries kept over a
/// sleep have their true age.
///
/// Costs as much as the monotonic clock, through the vDSO. Calls the C library as `Instant` does, so that a
/// simulation can replace it.
#[inline]
pub fn since_boot() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to `now`. Only unknown clocks fail, and Linux has this one since 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The clock of a process, which starts at [`Uptime::START`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Since boot.
    start: Duration,
}

impl Clock {
    /// Starts it.
    pub fn start() -> Clock {
        Clock { start: since_boot() }
    }

    /// Reads it.
    #[inline]
    pub fn now(&self) -> Uptime {
        Uptime((since_boot() - self.start).as_micros() as u64)
    }
}

/// A moment by a [`Clock`], to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uptime(u64);

impl Uptime {
    /// When the clock started.
    pub const START: Uptime = Uptime(0);

    /// The moment so many microseconds after the start.
    #[inline]
    pub const fn from_micros(micros: u64) -> Uptime {
        Uptime(micros)
    }

    /// Microseconds since the start.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Microseconds since `earlier`; 0 if that is later: workers read the clock once per batch, so one may be
    /// slightly behind another.
    #[inline]
    pub const fn micros_since(self, earlier: Uptime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time since `earlier`; 0 if that is later.
    #[inline]
    pub const fn since(self, earlier: Uptime) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    /// The moment `time` later, or the last one there is.
    #[inline]
    pub fn plus(self, time: Duration) -> Uptime {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Uptime(self.0.saturating_add(micros))
    }

    /// The moment `time` earlier, or the start.
    #[inline]
    pub fn minus(self, time: Duration) -> Uptime {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Uptime(self.0.saturating_sub(micros))
    }
}

/// Unix time, to the millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime(u64);

impl UnixTime {
    /// Reads the machine's clock; one that stands before 1970 counts as 1970.
    pub fn now() -> UnixTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        UnixTime(since.map_or(0, |since| since.as_millis() as u64))
    }

    /// The moment so many milliseconds after 1970.
    #[inline]
    pub const fn from_millis(millis: u64) -> UnixTime {
        UnixTime(millis)
    }

    /// Milliseconds since 1970.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/uptime` includes sleep.
    #[test]
    fn since_boot_is_the_machines_uptime() {
        let uptime = || -> f64 {
            let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
            uptime.split(' ').next().unwrap().parse().unwrap()
        };
        let before = uptime();
        let now = since_boot().as_secs_f64();
        // It has two decimals.
        assert!((before..=uptime() + 0.01).contains(&now), "{before} {now}");
    }

    #[test]
    fn moments_have_two_ends() {
        let (early, late) = (Uptime::from_micros(10), Uptime::from_micros(u64::MAX - 10));
        assert_eq!(early.micros_since(late), 0);
        assert_eq!(late.plus(Duration::MAX), Uptime::from_micros(u64::MAX));
        assert_eq!(early.minus(Duration::from_secs(1)), Uptime::START);
        assert_eq!(
            early.plus(Duration::from_millis(1)).since(early),
            Duration::from_millis(1)
        );
    }
}
