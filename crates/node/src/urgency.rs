//! When the network is looked at before its next turn: as soon as rules are heard to have changed, and while something does not work
//! that they are for.
//!
//! Either way there is a pause between two looks, and one that mends nothing is followed by a longer one: what stays may be nothing
//! that rules could mend.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::rule_news::RuleNews;
use super::self_test::Record;

/// From one look to the next at least.
const PAUSE: Duration = Duration::from_secs(1);

/// How many times as long as a look takes there is none that news is the reason for.
const SHARE: u32 = 10;

/// How long after the first news we look: who writes a rule as a rule writes several.
const QUIET: Duration = Duration::from_millis(100);

/// Whether something does not work that the network is kept for, as far as others know.
pub type Symptom = Box<dyn Fn() -> bool + Send>;

/// Says when it is time.
pub struct Urgency {
    /// None: the kernel tells nothing of rules.
    news: Option<RuleNews>,
    symptom: Symptom,
    self_test: Arc<Record>,
    ticks: Interval,
    /// There was news since the last look.
    heard: bool,
    /// When news is next looked after.
    next: Instant,
    patience: Patience,
    /// How often the network is looked at anyway.
    pub every: Duration,
}

impl Urgency {
    /// Hears of rules from now on.
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

    /// Resolves when it is time to look, with what time it is. May be dropped and called again.
    pub async fn come(&mut self) -> Instant {
        loop {
            tokio::select! {
                () = hear(&mut self.news), if !self.heard => {
                    self.heard = true;
                    self.next = self.next.max(Instant::now() + QUIET);
                }
                () = sleep_until(self.next), if self.heard => {
                    self.heard = false;
                    // What has been told by now is seen by who looks now.
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

    /// It has been looked since `begin`, and whether anything was put right.
    pub fn looked(&mut self, begin: Instant, mended: bool) {
        let now = Instant::now();
        self.next = now + PAUSE.max((now - begin) * SHARE);
        self.patience.looked(mended, now, self.every);
    }
}

/// How long a symptom is borne.
struct Patience {
    /// Until when.
    again: Instant,
    /// How long the last time.
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

/// Ticks of so long, the first of them after that time.
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

    /// The seconds at which is looked, of so many, while a symptom is there or not.
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
        // One that comes back is a new one.
        let comes_back = |second| second != 100;
        let expected = [0, 2, 6, 14, 30, 62, 101, 103, 107, 115, 131, 163];
        assert_eq!(looks(200, comes_back, false), expected);
        assert!(looks(200, |_| false, false).is_empty());
    }
}
