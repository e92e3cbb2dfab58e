//! Follows a zone: when its primaries are asked, and how long their zone is served (RFC 1034 section 4.3.5).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::counters::Outcome;
use super::incoming::Came;
use super::pace::{ZONE_APART, told};
use super::primary::Primary;
use super::state::State;
use crate::config;
use crate::dns::u32_at;
use crate::transfer::{Contents as _, Outgoing, notify_all};
use crate::zonefile::{Zone, from_records};

/// The bounds for the times in a zone's SOA record.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(28 * 86_400);

/// The first pause while no zone has arrived; it doubles with each failure.
const FIRST: Duration = Duration::from_secs(1);

/// The longest such pause.
const MOST: Duration = Duration::from_secs(60);

/// Follows one zone.
pub struct Follower {
    /// The zone's state, shared with the workers.
    state: Arc<State>,
    /// The stage's configuration.
    config: Arc<config::Secondary>,
    /// Notifies the zone's own secondaries.
    outgoing: Option<Arc<Outgoing>>,
    /// When the current zone expires.
    expires: Option<Instant>,
}

/// The times in an SOA record.
struct Timers {
    refresh: Duration,
    retry: Duration,
    expire: Duration,
}

impl Timers {
    fn of(zone: &Zone) -> Timers {
        let soa = zone.soa();
        let at = soa.data.len().saturating_sub(16);
        let field = |index: usize| match soa.data.len() {
            0 => SHORTEST,
            _ => Duration::from_secs(u32_at(&soa.data, at + 4 * index).into()).clamp(SHORTEST, LONGEST),
        };
        let (refresh, retry) = (field(0), field(1));
        Timers {
            refresh,
            retry,
            // Otherwise it would expire before the next check (RFC 1912 section 2.2).
            expire: field(2).max(refresh + retry),
        }
    }
}

impl Follower {
    /// Starts with the current zone, if any, which expires at its original time.
    pub fn new(
        state: &Arc<State>,
        config: &Arc<config::Secondary>,
        outgoing: Option<Arc<Outgoing>>,
    ) -> Follower {
        let known = state.zone.load_full();
        let left = known.and_then(|known| Some(Timers::of(&known).expire.saturating_sub(state.age()?)));
        Follower {
            state: Arc::clone(state),
            config: Arc::clone(config),
            outgoing,
            expires: left.map(|left| Instant::now() + left),
        }
    }

    /// Runs forever.
    pub async fn run(mut self) {
        loop {
            let pause = self.refresh().await;
            let state = Arc::clone(&self.state);
            let earliest = Instant::now() + ZONE_APART;
            self.meanwhile(async move {
                tokio::select! {
                    () = sleep(pause) => {}
                    () = told(&state, earliest) => {}
                }
            })
            .await;
        }
    }

    /// Awaits a future, and lets the zone expire meanwhile when its time comes.
    async fn meanwhile<T>(&mut self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            let Some(expires) = self.expires else {
                return awaited.await;
            };
            tokio::select! {
                done = &mut awaited => return done,
                () = sleep_until(expires) => {
                    tracing::error!("secondary {}: no primary could be asked for too long: the zone has expired", self.state.origin);
                    self.state.zone.store(None);
                    self.expires = None;
                }
            }
        }
    }

    /// Checks for a new version. Returns the pause until the next check.
    async fn refresh(&mut self) -> Duration {
        let (state, config) = (Arc::clone(&self.state), Arc::clone(&self.config));
        let came = self.meanwhile(look(&state, &config)).await;
        let known = match came {
            Ok((outcome, new)) => {
                self.state.counters.count(outcome);
                self.state.checked();
                if let Some(new) = new {
                    self.take_over(new);
                }
                self.state.zone.load_full()
            }
            Err(problem) => {
                self.state.counters.count(Outcome::Failed);
                let failures = self.state.failed(problem);
                return match self.state.zone.load_full() {
                    Some(known) => Timers::of(&known).retry,
                    None => FIRST.saturating_mul(1 << (failures - 1).min(16)).min(MOST),
                };
            }
        };
        let Some(known) = known else {
            return FIRST;
        };
        let timers = Timers::of(&known);
        self.expires = Some(Instant::now() + timers.expire);
        timers.refresh
    }

    fn take_over(&self, new: Zone) {
        let new = Arc::new(new);
        tracing::info!(
            "secondary {}: serial {} with {} records",
            self.state.origin,
            new.serial,
            new.records
        );
        self.state.publish(Arc::clone(&new));
        if let Some(outgoing) = &self.outgoing {
            notify_all(outgoing, &new.soa());
        }
    }
}

/// Asks one primary after another until one has an answer.
///
/// # Errors
/// The problem of each primary.
async fn look(state: &State, config: &config::Secondary) -> Result<(Outcome, Option<Zone>), String> {
    let known = state.zone.load_full();
    let mut problems = Vec::new();
    for &address in &config.primaries {
        let primary = Primary {
            address,
            state,
            key: config.key.as_ref(),
            octets: config.memory,
        };
        let came = timeout(config.time, primary.look(known.as_ref())).await;
        let came = came.unwrap_or_else(|_| Err("it took longer than `time`".into()));
        let made = came.and_then(|came| {
            let (outcome, records) = match came {
                Came::Nothing => return Ok((Outcome::Unchanged, None)),
                Came::Whole(records) => (Outcome::Axfr, records),
                Came::Changed(records) => (Outcome::Ixfr, records),
            };
            let zone = from_records(&state.origin, records, config.memory)?;
            Ok((outcome, Some(zone)))
        });
        match made {
            Ok(made) => return Ok(made),
            Err(problem) => problems.push(format!("{address}: {problem}")),
        }
    }
    Err(problems.join("; "))
}
