//! Follows a zone: when its primaries are asked, and how long their zone is served (RFC 1034 section 4.3.5).

use std::net::{IpAddr, SocketAddr};
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

/// How long another primary's serial is waited for once one has confirmed the zone: one that is down must not
/// delay the next check for `time`.
const BRIEFLY: Duration = Duration::from_secs(10);

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
        let (mut confirmed, mut problems) = (None, Vec::new());
        for address in in_turn(&config.primaries, state.notifier()) {
            let asked = ask(&state, &config, address, confirmed.is_some());
            match self.meanwhile(asked).await {
                Ok((outcome, Some(new))) => {
                    state.counters.count(outcome);
                    return self.confirm(Some(new));
                }
                // It may itself wait for a newer zone, which another has (RFC 1996 section 3.11).
                Ok((_, None)) => confirmed = Some(self.confirm(None)),
                Err(problem) => problems.push(format!("{address}: {problem}")),
            }
        }
        if let Some(pause) = confirmed {
            state.counters.count(Outcome::Unchanged);
            if !problems.is_empty() {
                tracing::warn!(
                    "secondary {}: only some primaries could be asked: {}",
                    state.origin,
                    problems.join("; ")
                );
            }
            // The zone may have expired since, while others were asked.
            return if self.expires.is_some() { pause } else { FIRST };
        }
        state.counters.count(Outcome::Failed);
        let failures = state.failed(problems.join("; "));
        match state.zone.load_full() {
            Some(known) => Timers::of(&known).retry,
            None => FIRST.saturating_mul(1 << (failures - 1).min(16)).min(MOST),
        }
    }

    /// A primary has the zone, or this newer one: it is served for as long again. Returns the pause until the
    /// next check.
    fn confirm(&mut self, new: Option<Zone>) -> Duration {
        self.state.checked();
        if let Some(new) = new {
            self.take_over(new);
        }
        let Some(known) = self.state.zone.load_full() else {
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

/// The primaries in the order in which they are asked: the sender of a NOTIFY first, since others may not
/// have the change yet (RFC 1996 section 3.11).
fn in_turn(primaries: &[SocketAddr], notifier: Option<IpAddr>) -> Vec<SocketAddr> {
    let mut primaries = primaries.to_vec();
    // The others stay in order: the sort is stable.
    primaries.sort_by_key(|primary| Some(primary.ip()) != notifier);
    primaries
}

/// Asks a primary for what is newer than the current zone, which another one may have confirmed.
///
/// # Errors
/// Its problem.
async fn ask(
    state: &State,
    config: &config::Secondary,
    address: SocketAddr,
    confirmed: bool,
) -> Result<(Outcome, Option<Zone>), String> {
    let known = state.zone.load_full();
    let primary = Primary {
        address,
        state,
        key: config.key.as_ref(),
        octets: config.memory,
        patience: if confirmed { BRIEFLY } else { Duration::MAX },
    };
    let came = timeout(config.time, primary.look(known.as_ref())).await;
    let came = came.unwrap_or_else(|_| Err("it took longer than `time`".into()))?;
    let (outcome, records) = match came {
        Came::Nothing => return Ok((Outcome::Unchanged, None)),
        Came::Whole(records) => (Outcome::Axfr, records),
        Came::Changed(records) => (Outcome::Ixfr, records),
    };
    let zone = from_records(&state.origin, records, config.memory)?;
    Ok((outcome, Some(zone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1996 section 3.11.
    #[test]
    fn the_sender_of_a_notify_is_asked_first() {
        let primaries = ["192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53", "192.0.2.2:5300"];
        let primaries: [SocketAddr; 4] = primaries.map(|primary| primary.parse().unwrap());
        let [one, two, three, other] = primaries;
        let order = |notifier: &str| in_turn(&primaries, notifier.parse().ok());
        assert_eq!(order(""), primaries);
        assert_eq!(order("192.0.2.1"), primaries);
        assert_eq!(order("192.0.2.2"), [two, other, one, three]);
        assert_eq!(order("192.0.2.3"), [three, one, two, other]);
    }
}
