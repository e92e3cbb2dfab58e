//! Resolves upstreams that are configured by name.
//!
//! The servers configured for that are asked, never this proxy, and again before the answer expires. Known
//! addresses stay until others are learned, so a server that does not answer removes no upstream. TLS, not
//! DNS, verifies that the right server listens there.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::config::Config;
use dnsweir_deliver::fetch::{Found, addresses_of};

/// How long a start or a reload waits for the first addresses of a host.
const FIRST: Duration = Duration::from_secs(2);

/// The least and the most time until a host is asked for again, whatever its TTL.
const SOONEST: Duration = Duration::from_secs(60);
const LATEST: Duration = Duration::from_secs(3600);

/// The delay after a first failure; it doubles with each further one, up to [`SOONEST`].
const RETRY: Duration = Duration::from_secs(1);

/// The most addresses of one host. Some have more, and return different ones each time.
const MOST: usize = 8;

/// How long an address is used after answers no longer contain it.
const LINGERS: Duration = Duration::from_secs(3600);

/// All hosts.
#[derive(Default)]
pub(super) struct NamedUpstreams {
    hosts: Mutex<BTreeMap<String, Host>>,
    /// Notified when the set of hosts changes.
    wanted: Notify,
    /// Notified when addresses change.
    changed: Notify,
}

struct Host {
    /// The servers to ask.
    servers: Vec<SocketAddr>,
    /// The addresses in order, with the time each was last in an answer.
    addresses: BTreeMap<IpAddr, Instant>,
    due: Instant,
    /// Failures in a row.
    failures: u32,
}

impl NamedUpstreams {
    /// Resolves the hosts of a configuration. Waits briefly for the addresses of new ones.
    pub async fn learn(&self, config: &mut Config) {
        if self.want(config) && timeout(FIRST, self.ask()).await.is_err() {
            tracing::warn!("the addresses of an upstream are not known yet: continuing without it");
        }
        config.place_addresses(|host| self.known(host));
        self.wanted.notify_one();
    }

    /// Resolves when the known addresses differ from those last learned.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Asks for all hosts as they come due. Runs forever.
    pub async fn renew(self: Arc<Self>) {
        loop {
            let due = self.hosts.lock().values().map(|host| host.due).min();
            let come = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = come => {}
                () = self.wanted.notified() => continue,
            }
            if self.ask().await {
                self.changed.notify_one();
            }
        }
    }

    /// Replaces the hosts by those of a configuration; returns whether one is new.
    fn want(&self, config: &Config) -> bool {
        let mut hosts = self.hosts.lock();
        let mut before = std::mem::take(&mut *hosts);
        let mut new = false;
        for (upstream, servers) in config.named_upstreams() {
            let host = hosts.entry(upstream.host.clone()).or_insert_with(|| {
                let known = before.remove(&upstream.host);
                new |= known.is_none();
                let known = known.unwrap_or_else(|| Host {
                    servers: Vec::new(),
                    addresses: BTreeMap::new(),
                    due: Instant::now(),
                    failures: 0,
                });
                Host {
                    servers: Vec::new(),
                    ..known
                }
            });
            let added = servers.iter().filter(|server| !host.servers.contains(server));
            let added: Vec<SocketAddr> = added.copied().collect();
            host.servers.extend(added);
        }
        new
    }

    fn known(&self, host: &str) -> Vec<IpAddr> {
        let hosts = self.hosts.lock();
        hosts
            .get(host)
            .map_or_else(Vec::new, |host| host.addresses.keys().copied().collect())
    }

    /// Asks for all hosts that are due in parallel; returns whether addresses have changed.
    async fn ask(&self) -> bool {
        let now = Instant::now();
        let mut asking = JoinSet::new();
        for (name, host) in self.hosts.lock().iter_mut().filter(|(_, host)| host.due <= now) {
            // So that it is not asked twice if this call is cancelled.
            host.due = now + host.pause();
            let (name, servers) = (name.clone(), host.servers.clone());
            asking.spawn(async move {
                let found = addresses_of(&servers, &name).await;
                (name, found)
            });
        }
        let mut changed = false;
        while let Some(asked) = asking.join_next().await {
            if let Ok((name, found)) = asked
                && let Some(host) = self.hosts.lock().get_mut(&name)
            {
                changed |= host.take(&name, found, Instant::now());
            }
        }
        changed
    }
}

impl Host {
    fn pause(&self) -> Duration {
        RETRY.saturating_mul(1 << self.failures.min(16)).min(SOONEST)
    }

    /// Stores the result of a lookup; returns whether addresses have changed.
    fn take(&mut self, name: &str, found: io::Result<Found>, now: Instant) -> bool {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.due = now + self.pause();
                if self.failures == 1 {
                    let known = self.addresses.len();
                    tracing::warn!(host = name, known, %error, "cannot look up the addresses of an upstream");
                }
                return false;
            }
        };
        self.failures = 0;
        self.due = now + found.ttl.clamp(SOONEST, LATEST);
        let before: Vec<IpAddr> = self.addresses.keys().copied().collect();
        for address in found.addresses {
            if self.addresses.contains_key(&address) || self.addresses.len() < MOST {
                self.addresses.insert(address, now);
            }
        }
        self.addresses
            .retain(|_, named| now.saturating_duration_since(*named) < LINGERS);
        !self.addresses.keys().eq(&before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            servers: Vec::new(),
            addresses: BTreeMap::new(),
            due: Instant::now(),
            failures: 0,
        }
    }

    fn found(last: impl IntoIterator<Item = u8>, ttl: u64) -> io::Result<Found> {
        Ok(Found {
            addresses: last.into_iter().map(|last| [192, 0, 2, last].into()).collect(),
            ttl: Duration::from_secs(ttl),
        })
    }

    #[test]
    fn addresses_stay_until_they_have_not_been_named_for_long() {
        let (mut host, begin) = (host(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(host.take("a.example", found([1, 2], 300), begin));
        assert_eq!(host.due, after(300));
        // In another order, and with a TTL below the minimum.
        assert!(!host.take("a.example", found([2, 1], 0), after(300)));
        assert_eq!(host.due, after(360));
        assert!(!host.take("a.example", found([2], 1_000_000), after(360)));
        assert_eq!(host.due, after(360 + 3600));
        assert!(
            host.take("a.example", found([2], 60), after(3960)),
            "the other one has gone"
        );
        assert_eq!(host.addresses.len(), 1);
        assert!(host.take("a.example", found(0..=255, 60), after(4000)));
        assert_eq!(host.addresses.len(), MOST);
    }

    #[test]
    fn failures_take_nothing_away_and_are_tried_again() {
        let (mut host, now) = (host(), Instant::now());
        host.take("a.example", found([1], 60), now);
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            assert!(!host.take("a.example", Err(io::Error::other("no")), now));
            assert_eq!(host.due, now + Duration::from_secs(seconds));
        }
        assert_eq!(host.addresses.len(), 1);
        assert!(!host.take("a.example", found([1], 60), now));
        assert_eq!(host.failures, 0);
    }
}
