//! A clock that keeps counting while the machine sleeps.

use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/uptime` includes sleep.
    #[test]
    fn it_is_the_machines_uptime() {
        let uptime = || -> f64 {
            let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
            uptime.split(' ').next().unwrap().parse().unwrap()
        };
        let before = uptime();
        let now = since_boot().as_secs_f64();
        // It has two decimals.
        assert!((before..=uptime() + 0.01).contains(&now), "{before} {now}");
    }
}
