//! How often what primaries tell has them asked: whoever writes their address on messages shall not have them asked without end.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::state::State;

/// How far apart looks are that were told of, over all zones: 20 a second, as BIND has it (`serial-query-rate`).
const APART: Duration = Duration::from_millis(50);

/// How far apart those of one zone are.
pub(crate) const ZONE_APART: Duration = Duration::from_secs(1);

/// That of all zones.
static PACE: Pace = Pace(Mutex::new(None));

/// When the next look may begin.
struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// When a look begins that could from `wanted` on.
    fn slot(&self, wanted: Instant) -> Instant {
        let mut next = self.0.lock();
        let slot = next.map_or(wanted, |next| next.max(wanted));
        *next = Some(slot + APART);
        slot
    }
}

/// Resolves when there may be something new, and it is time to look; not before `earliest`.
pub async fn told(state: &State, earliest: Instant) {
    state.wake.notified().await;
    sleep_until(earliest).await;
    // Its turn is taken only now: those of others do not wait for its time to come.
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
        // Whoever comes later waits for nobody.
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
            // One of them is kept, for when the zone's own time has come.
            state.wake.notify_one();
            told(&state, start + ZONE_APART).await;
            assert!(start.elapsed() >= ZONE_APART);
        });
    }
}
