//! The clock that goes on while the machine sleeps.

use std::time::Duration;

/// Time since the machine began, those hours included in which it slept: the same for all processes, in whichever container.
/// What was kept before it slept is as old as it is to everybody else.
///
/// The kernel's vDSO answers as for the monotonic clock. By the C library, as `Instant` does it, for which a simulation stands
/// in.
#[inline]
pub fn since_boot() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to `now`. It fails for clocks that are not there, and this one is since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/uptime` counts the time that the machine slept.
    #[test]
    fn it_is_the_machines_uptime() {
        let uptime = || -> f64 {
            let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
            uptime.split(' ').next().unwrap().parse().unwrap()
        };
        let before = uptime();
        let now = since_boot().as_secs_f64();
        // It has two digits after the point.
        assert!((before..=uptime() + 0.01).contains(&now), "{before} {now}");
    }
}
