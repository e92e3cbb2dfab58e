//! Rate limits for log lines: what a stranger can cause once, it can cause endlessly.
//!
//! A kind of line is a place in the source, ours or a dependency's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The name of our own reports, which may have several lines and are not limited.
pub const REPORT: &str = "report";

/// Lines of a kind that may be written in a burst.
const BURST: u32 = 100;

/// How long until one more line may be written.
const APART: Duration = Duration::from_millis(100);

/// Lines left out, of all kinds.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Lines left out so far.
pub fn left_out() -> u64 {
    LEFT_OUT.load(Relaxed)
}

/// The state of all kinds. Clones share it.
#[derive(Clone, Default)]
pub struct Pace(Arc<Mutex<HashMap<Identifier, Kind>>>);

/// A token bucket for one kind of line.
struct Kind {
    /// How many lines may be written.
    room: u32,
    /// The time at which `room` was right.
    since: Instant,
    /// How many were left out since the last written one.
    left_out: u64,
}

impl Kind {
    fn new(now: Instant) -> Kind {
        Kind {
            room: BURST,
            since: now,
            left_out: 0,
        }
    }

    /// Returns whether one more line is written.
    fn takes(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.since).as_millis() / APART.as_millis();
        let more = u32::try_from(more).unwrap_or(u32::MAX).min(BURST - self.room);
        self.room += more;
        self.since = match self.room {
            BURST => now,
            _ => self.since + APART * more,
        };
        let takes = self.room > 0;
        match takes {
            true => self.room -= 1,
            false => self.left_out += 1,
        }
        takes
    }
}

impl Pace {
    /// How many lines of a kind were left out since the last call.
    pub(crate) fn take_left_out(&self, kind: &Metadata<'_>) -> u64 {
        let mut kinds = self.0.lock();
        let kind = kinds.get_mut(&kind.callsite());
        kind.map_or(0, |kind| std::mem::take(&mut kind.left_out))
    }
}

impl<S: Subscriber> Layer<S> for Pace {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Our own reports, about the process itself.
        if metadata.name() == REPORT {
            return true;
        }
        let now = Instant::now();
        let mut kinds = self.0.lock();
        // At most one per place in the source.
        let kind = kinds.entry(metadata.callsite()).or_insert_with(|| Kind::new(now));
        let takes = kind.takes(now);
        LEFT_OUT.fetch_add(u64::from(!takes), Relaxed);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_come_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut kind = Kind::new(start);
        let mut written = |after: Duration, lines: usize| {
            let takes = (0..lines).filter(|_| kind.takes(start + after)).count();
            (takes, std::mem::take(&mut kind.left_out))
        };
        assert_eq!(written(Duration::ZERO, 20_000), (100, 19_900));
        assert_eq!(written(Duration::from_millis(99), 10), (0, 10));
        assert_eq!(written(Duration::from_millis(250), 10), (2, 8));
        assert_eq!(written(Duration::from_millis(300), 10), (1, 9));
        assert_eq!(written(Duration::from_secs(3600), 1000), (100, 900));
    }
}
