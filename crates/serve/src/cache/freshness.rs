//! How old an answer may get: arithmetic on times, and nothing else.

use std::time::Duration;

use dnsweir_os::clock::Uptime;

use crate::config::Prefetch;

/// How long a failed refresh of an answer delays the next one (RFC 8767 §5, the failure recheck timer: no more
/// often than every 30 seconds).
pub(crate) const REFRESH_RECHECK: Duration = Duration::from_secs(30);

/// When an answer was stored and how long it may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// When it was stored.
    pub stored_at: Uptime,
    /// How long it is fresh, in seconds.
    pub ttl_secs: u32,
    /// How long after that it may still be served if no newer answer is available, in seconds.
    pub stale_secs: u32,
}

/// Whether an answer is usable at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Within its TTL.
    Fresh {
        /// Whole seconds since it was stored; always below its TTL, so no record counts down to 0.
        age_secs: u32,
    },
    /// Past its TTL, but usable if no newer answer is available (RFC 8767).
    Stale {
        /// Whole seconds since its TTL expired.
        overdue_secs: u32,
    },
    /// No longer usable.
    Gone,
}

impl Lifetime {
    /// The first moment at which the answer is no longer fresh.
    #[inline]
    pub(crate) fn expires_at(&self) -> Uptime {
        self.stored_at.plus(Duration::from_secs(self.ttl_secs.into()))
    }

    /// The first moment at which the answer is no longer usable at all.
    #[inline]
    pub(crate) fn gone_at(&self) -> Uptime {
        self.expires_at()
            .plus(Duration::from_secs(self.stale_secs.into()))
    }

    /// Whether the answer is usable at `now`. A moment before it was stored counts as age 0: workers read
    /// the clock once per batch, and one may be slightly behind another.
    // Three comparisons on the path of every hit.
    #[inline(always)]
    pub fn freshness(&self, now: Uptime) -> Freshness {
        let expires_at = self.expires_at();
        if now < expires_at {
            Freshness::Fresh {
                age_secs: whole_secs(now.micros_since(self.stored_at)),
            }
        } else if now < self.gone_at() {
            Freshness::Stale {
                overdue_secs: whole_secs(now.micros_since(expires_at)),
            }
        } else {
            Freshness::Gone
        }
    }

    /// Whether an answer that was served `hits` times should be refreshed ahead of time.
    #[inline]
    pub(crate) fn is_prefetch_due(&self, prefetch: &Prefetch, hits: u32, now: Uptime) -> bool {
        let remaining = self.expires_at().micros_since(now);
        // ttl × 1,000,000 × percent / 100, in microseconds.
        let window = u64::from(self.ttl_secs) * 10_000 * u64::from(prefetch.percent);
        hits >= prefetch.hits && remaining > 0 && remaining <= window
    }
}

#[inline]
fn whole_secs(micros: u64) -> u32 {
    u32::try_from(micros / 1_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::ms;
    use super::*;

    const LIFE: Lifetime = Lifetime {
        stored_at: ms(10_000),
        ttl_secs: 60,
        stale_secs: 3600,
    };

    #[test]
    fn an_answer_is_fresh_then_stale_then_gone() {
        assert_eq!(LIFE.freshness(ms(10_000)), Freshness::Fresh { age_secs: 0 });
        assert_eq!(LIFE.freshness(ms(10_999)), Freshness::Fresh { age_secs: 0 });
        assert_eq!(LIFE.freshness(ms(11_000)), Freshness::Fresh { age_secs: 1 });
        assert_eq!(LIFE.freshness(ms(69_999)), Freshness::Fresh { age_secs: 59 });
        assert_eq!(LIFE.freshness(ms(70_000)), Freshness::Stale { overdue_secs: 0 });
        assert_eq!(
            LIFE.freshness(ms(3_669_999)),
            Freshness::Stale { overdue_secs: 3599 }
        );
        assert_eq!(LIFE.freshness(ms(3_670_000)), Freshness::Gone);
    }

    #[test]
    fn without_stale_time_an_expired_answer_is_gone() {
        let life = Lifetime {
            stale_secs: 0,
            ..LIFE
        };
        assert_eq!(life.freshness(ms(69_999)), Freshness::Fresh { age_secs: 59 });
        assert_eq!(life.freshness(ms(70_000)), Freshness::Gone);
    }

    #[test]
    fn a_clock_a_little_behind_sees_age_zero() {
        assert_eq!(LIFE.freshness(ms(9_990)), Freshness::Fresh { age_secs: 0 });
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let life = Lifetime {
            stored_at: Uptime::from_micros(u64::MAX - 1),
            ttl_secs: u32::MAX,
            stale_secs: u32::MAX,
        };
        assert_eq!(
            life.freshness(Uptime::from_micros(u64::MAX - 1)),
            Freshness::Fresh { age_secs: 0 }
        );
        assert_eq!(life.freshness(Uptime::from_micros(u64::MAX)), Freshness::Gone);
        assert_eq!(life.freshness(Uptime::START), Freshness::Fresh { age_secs: 0 });
        assert!(!life.is_prefetch_due(
            &Prefetch {
                hits: 0,
                percent: 255
            },
            0,
            Uptime::from_micros(u64::MAX)
        ));
    }

    #[test]
    fn prefetch_wants_hits_and_the_end_of_the_ttl() {
        let prefetch = Prefetch { hits: 3, percent: 10 };
        assert!(!LIFE.is_prefetch_due(&prefetch, 3, ms(63_999)), "too early");
        assert!(
            LIFE.is_prefetch_due(&prefetch, 3, ms(64_000)),
            "the last 10 percent begin"
        );
        assert!(LIFE.is_prefetch_due(&prefetch, 9, ms(69_999)));
        assert!(!LIFE.is_prefetch_due(&prefetch, 2, ms(64_000)), "not popular");
        assert!(
            !LIFE.is_prefetch_due(&prefetch, 9, ms(70_000)),
            "a stale answer is refreshed, not prefetched"
        );
    }
}
