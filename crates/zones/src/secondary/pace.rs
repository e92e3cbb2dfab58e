//! Limits how often NOTIFY messages cause checks: messages with a forged sender must not trigger endless
//! queries to the primaries.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::state::State;

/// The shortest time between such checks, over all zones: 20 a second, as in BIND (`serial-query-rate`).
const APART: Duration = Duration::from_millis(50);

/// The shortest time between such checks of one zone.
pub(crate) const ZONE_APART: Duration = Duration::from_secs(1);

/// The pace of all zones.
static PACE: Pace = Pace(Mutex::new(None));

/// When the next check may start.
struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// Reserves a time for a check, at `wanted` or later.
    fn slot(&self, wanted: Instant) -> Instant {
        let mut next = self.0.lock();
        let slot = next.map_or(wanted, |next| next.max(wanted));
        *next = Some(slot + APART);
        slot
    }
}

/// Waits for a NOTIFY message, and then until a check may start; not before `earliest`.
pub async fn told(state: &State, earliest: Instant) {
    state.wake.notified().await;
    sleep_until(earliest).await;
    // Reserves its slot only now, so that other zones do not wait for `earliest`.
    sleep_until(PACE.slot(Instant::now())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_follow_each_other_at_a_pace() {
        let (pace, start) = (Pace(Mutex::default()), Instant::now());
        let mut slots = (0..100).map(|_| pace.slot(start) - start);
        assert_eq!(slots.next(), Some(Duration::ZERO));
        assert_eq!(slots.last(), Some(Duration::from_millis(4950)));
        // A later check does not wait.
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.slot(later), later);
    }

    #[test]
    fn however_many_messages_come_there_are_so_many_looks() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(async {
            let state = State::new(&crate::dns::name::Name::parse("example").unwrap());
            let start = Instant::now();
            for _ in 0..5 {
                for _ in 0..1000 {
                    state.wake.notify_one();
                }
                told(&state, start).await;
            }
            assert!(start.elapsed() >= 4 * APART);
            // One notification is kept until the zone may be checked again.
            state.wake.notify_one();
            told(&state, start + ZONE_APART).await;
            assert!(start.elapsed() >= ZONE_APART);
        });
    }
}
