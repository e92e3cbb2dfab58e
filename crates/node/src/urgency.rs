//! When the network is checked before the regular interval: as soon as rules are reported to have changed,
//! and while something that depends on them does not work.
//!
//! There is always a pause between two checks, which grows after a check that repaired nothing: rules may not
//! be the cause.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::rule_news::RuleNews;
use super::self_test::Record;

/// The shortest time between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// News triggers no check for this many times as long as the last one took.
const SHARE: u32 = 10;

/// How long after the first news we check: a program that writes one rule usually writes several.
const QUIET: Duration = Duration::from_millis(100);

/// Returns whether the rest of the proxy sees that something fails which depends on the network.
pub type Symptom = Box<dyn Fn() -> bool + Send>;

/// Decides when to check.
pub struct Urgency {
    /// None if the kernel does not report rules.
    news: Option<RuleNews>,
    symptom: Symptom,
    self_test: Arc<Record>,
    ticks: Interval,
    /// There was news since the last check.
    heard: bool,
    /// When news may next trigger a check.
    next: Instant,
    patience: Patience,
    /// The regular interval between checks.
    pub every: Duration,
}

impl Urgency {
    /// Subscribes to rule changes.
    pub fn new(symptom: Symptom, self_test: Arc<Record>, every: Duration) -> Urgency {
        let news = RuleNews::open().inspect_err(|error| {
            tracing::info!(%error, "node: the kernel does not report changes of rules: they are only checked at intervals");
        });
        let now = Instant::now();
        Urgency {
            news: news.ok(),
            symptom,
            self_test,
            ticks: ticks(PAUSE),
            heard: false,
            next: now,
            patience: Patience {
                again: now,
                pause: PAUSE,
            },
            every,
        }
    }

    /// Resolves when it is time to check, with the current time. Cancel-safe.
    pub async fn come(&mut self) -> Instant {
        loop {
            tokio::select! {
                () = hear(&mut self.news), if !self.heard => {
                    self.heard = true;
                    self.next = self.next.max(Instant::now() + QUIET);
                }
                () = sleep_until(self.next), if self.heard => {
                    self.heard = false;
                    // The check that follows sees everything reported so far.
                    self.news.iter_mut().for_each(RuleNews::forget);
                    return Instant::now();
                }
                now = self.ticks.tick() => {
                    let is_ill = (self.symptom)() || !self.self_test.failures().is_empty();
                    if self.patience.is_over(is_ill, now) {
                        return now;
                    }
                }
            }
        }
    }

    /// Records a check that started at `begin`, and whether it repaired anything.
    pub fn looked(&mut self, begin: Instant, mended: bool) {
        let now = Instant::now();
        self.next = now + PAUSE.max((now - begin) * SHARE);
        self.patience.looked(mended, now, self.every);
    }
}

/// Backoff of checks while a symptom lasts.
struct Patience {
    /// No check before this time.
    again: Instant,
    /// The last pause.
    pause: Duration,
}

impl Patience {
    fn is_over(&mut self, is_ill: bool, now: Instant) -> bool {
        if !is_ill {
            (self.pause, self.again) = (PAUSE, now);
        }
        is_ill && now >= self.again
    }

    fn looked(&mut self, mended: bool, now: Instant, most: Duration) {
        self.pause = match mended {
            true => PAUSE,
            false => (self.pause * 2).min(most.max(PAUSE)),
        };
        self.again = now + self.pause;
    }
}

/// Ticks at an interval, the first after one interval.
pub(super) fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    ticks
}

async fn hear(news: &mut Option<RuleNews>) {
    match news {
        Some(news) => news.come().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which checks happen, out of so many, with or without a symptom.
    fn looks(seconds: u64, is_ill: impl Fn(u64) -> bool, mended: bool) -> Vec<u64> {
        let begin = Instant::now();
        let mut patience = Patience {
            again: begin,
            pause: PAUSE,
        };
        let mut looks = Vec::new();
        for second in 0..seconds {
            let now = begin + Duration::from_secs(second);
            if patience.is_over(is_ill(second), now) {
                looks.push(second);
                patience.looked(mended, now, Duration::from_secs(60));
            }
        }
        looks
    }

    #[test]
    fn a_symptom_that_stays_is_looked_after_less_and_less_often() {
        assert_eq!(looks(5, |_| true, true), [0, 1, 2, 3, 4]);
        assert_eq!(looks(200, |_| true, false), [0, 2, 6, 14, 30, 62, 122, 182]);
        // A symptom that returns starts over.
        let comes_back = |second| second != 100;
        let expected = [0, 2, 6, 14, 30, 62, 101, 103, 107, 115, 131, 163];
        assert_eq!(looks(200, comes_back, false), expected);
        assert!(looks(200, |_| false, false).is_empty());
    }
}
