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
    /// Whether a configuration that runs, or ran, has it.
    settled: bool,
}

impl NamedUpstreams {
    /// Resolves the hosts of a configuration that is loading. Waits briefly for the addresses of new ones.
    pub async fn learn(&self, config: &mut Config) {
        if self.want(config) && timeout(FIRST, self.ask()).await.is_err() {
            tracing::warn!("the addresses of an upstream are not known yet: continuing without it");
        }
        config.place_addresses(|host| self.known(host));
        self.wanted.notify_one();
    }

    /// Gives a configuration that runs the addresses that its upstreams have now. Returns whether any changed.
    pub(super) fn renew_in(&self, config: &mut Config) -> bool {
        config.renew_upstreams(|host| self.known(host))
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

    /// Keeps only the hosts of the configuration that runs from now on, and asks its servers.
    pub fn settle(&self, config: &Config) {
        let mut wanted = wanted(config);
        self.hosts.lock().retain(|name, host| {
            let Some(servers) = wanted.remove(name) else {
                return false;
            };
            if host.servers != servers {
                (host.due, host.failures) = (Instant::now(), 0);
            }
            (host.servers, host.settled) = (servers, true);
            true
        });
        self.wanted.notify_one();
    }

    /// Adds the hosts of a configuration; returns whether one is new. The others stay as they are, since the
    /// configuration may be rejected yet.
    fn want(&self, config: &Config) -> bool {
        let mut hosts = self.hosts.lock();
        let mut new = false;
        for (name, servers) in wanted(config) {
            let known = hosts.get(&name);
            // One that is not settled comes from a load that another has overtaken.
            if known.is_none_or(|known| !known.settled && known.servers != servers) {
                new = true;
                hosts.insert(name, Host::new(servers));
            }
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

/// The hosts of a configuration, and the servers to ask for each.
fn wanted(config: &Config) -> BTreeMap<String, Vec<SocketAddr>> {
    let mut wanted: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
    for (upstream, servers) in config.named_upstreams() {
        let known = wanted.entry(upstream.host.clone()).or_default();
        for server in servers {
            if !known.contains(server) {
                known.push(*server);
            }
        }
    }
    wanted
}

impl Host {
    /// One that is to be asked for now.
    fn new(servers: Vec<SocketAddr>) -> Host {
        Host {
            servers,
            addresses: BTreeMap::new(),
            due: Instant::now(),
            failures: 0,
            settled: false,
        }
    }

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
    use std::path::Path;

    use super::*;
    use crate::config;
    use crate::filter;

    fn host() -> Host {
        Host::new(Vec::new())
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

    /// It may be rejected, and then the one before goes on.
    #[test]
    fn a_configuration_that_is_loading_takes_nothing_away() {
        let config = |upstream: &str, bootstrap: &str| {
            let forward = format!("forward \"tls://{upstream}\" {{ bootstrap \"{bootstrap}\" }}");
            let text = format!("listen \"127.0.0.1\"\nzone \".\" {{ {forward} }}");
            config::parse("test", &text, Path::new("/"), filter::BUILTINS).unwrap()
        };
        let running = config("a.example", "192.0.2.53");
        let (named, now) = (NamedUpstreams::default(), Instant::now());
        assert!(named.want(&running));
        named.settle(&running);
        let learnt = |name: &str| {
            let mut hosts = named.hosts.lock();
            let host = hosts.get_mut(name).unwrap();
            host.take(name, found([1], 60), now)
        };
        assert!(learnt("a.example"));
        let asked = |name: &str| {
            let hosts = named.hosts.lock();
            hosts.get(name).map(|host| host.servers[0].to_string())
        };
        assert!(named.want(&config("b.example", "192.0.2.54")));
        assert!(!named.want(&config("a.example", "192.0.2.54")));
        assert!(learnt("b.example"));
        assert_eq!(named.known("a.example").len(), 1);
        assert_eq!(asked("a.example").unwrap(), "192.0.2.53:53");
        named.settle(&running);
        assert_eq!((named.known("a.example").len(), asked("b.example")), (1, None));
        named.settle(&config("a.example", "192.0.2.54"));
        assert_eq!(named.known("a.example").len(), 1);
        assert_eq!(asked("a.example").unwrap(), "192.0.2.54:53");
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
