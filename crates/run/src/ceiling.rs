//! The most memory that the process can hold: a sum of everything the configuration bounds.
//!
//! Only this file knows the sum. `docs/limits.md` explains it, `/status` and `/metrics` show it beside the
//! resident size, and a test holds the process to it under floods. The constants are measured, and generous.

mod limit;

use crate::config::{self, Config, Module, TapMessages};
use crate::filter;
use crate::identity;
use crate::listen;
use crate::output;
use crate::registry;
use crate::serve::{LOOKUP_OCTETS, MESSAGE_KEPT, WAITING_OCTETS};
use crate::source::{self, forward};
pub(crate) use limit::memory_limit;

/// Program, main thread, log, file watches, the admin address, and the temporary needs of a reload.
const PROGRAM: usize = 24 << 20;

/// A worker's stack, buffers, counters, and share of what the allocator keeps.
const WORKER: usize = 2 << 20;

/// Client query rates: a table for `queries` and one for `responses`.
const RATES: usize = 512 << 10;

/// The allocator leaves gaps: one extra byte for this many in use. Measured with a full cache: a third.
const HOLES: usize = 2;

/// Names of these parts.
const CACHE: &str = "cache";
const ALLOCATOR: &str = "allocator";

/// The smallest cache that a memory limit leads to: the minimum of `cache-memory`.
const LEAST_CACHE: usize = 1 << 20;

/// The sum and its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// Bytes by purpose.
    pub parts: Vec<(&'static str, usize)>,
    /// Kernel memory of sockets in bytes, which a container is charged for and a process is not.
    pub kernel: usize,
}

/// Bytes that the filters of a generation hold besides their instances, as only the filters know.
#[derive(Debug, Default)]
pub struct OfFilters {
    /// Machine code.
    pub compiled: usize,
    /// Tables.
    pub tables: usize,
    /// Messages that wait to be delivered, on each worker.
    pub messages: usize,
}

/// Returns the memory of the process that pulls modules.
fn pulling(config: &Config) -> usize {
    let is_artifact = |filter: &config::Filter| matches!(filter.module, Module::Artifact(_));
    match config.filters.iter().any(is_artifact) {
        true => registry::PULL_MEMORY,
        false => 0,
    }
}

/// Returns the memory of what is known about pods.
fn pods(config: &Config) -> usize {
    let pods = config.pods.as_ref();
    pods.map_or(0, |pods| pods.memory + identity::FIXED_OCTETS)
}

/// Returns the memory of queued dnstap messages, and of messages of waiting queries.
fn dnstap(config: &Config) -> usize {
    match &config.dnstap {
        Some(dnstap) => {
            let of_clients = usize::from(dnstap.logs(TapMessages::Clients));
            2 * output::CAPACITY + of_clients * config.waiting_queries * MESSAGE_KEPT
        }
        None => 0,
    }
}

/// Returns the memory of published data, and of a refresh: its sources, and the one instance that works on
/// them.
fn refreshes(config: &Config) -> (usize, usize) {
    let filters = || config.filters.iter();
    let refreshed = || filters().filter_map(|filter| Some((filter, filter.refresh.as_ref()?)));
    let published = refreshed().map(|(filter, _)| filter.limits.data).sum();
    let sources: usize = refreshed().map(|(_, refresh)| refresh.source_octets()).sum();
    let instances = refreshed().map(|(filter, _)| filter.limits.data + filter.limits.refresh_memory);
    (published, sources + instances.max().unwrap_or_default())
}

impl Ceiling {
    /// Computes it for a configuration with this many workers and client connections.
    pub fn of(config: &Config, workers: usize, connections: usize, filters: &OfFilters) -> Ceiling {
        let &OfFilters {
            compiled,
            tables,
            messages,
        } = filters;
        let sources = || config.sources().map(|source| source::bounds(source, workers));
        let limits = config.filters.iter().map(|filter| &filter.limits);
        let instances = limits.map(|limits| filter::filter_memory(limits, workers));
        let listeners = config.listen.addresses.len() * listen::listener_memory(&config.listen);
        let batches = forward::batch_octets();
        let tcp = config.listen.tcp_memory + listen::connections_memory(&config.listen, connections);
        let waiting = config.waiting_queries * WAITING_OCTETS;
        let held: usize = sources().map(|bounds| bounds.octets).sum();
        let transferred = sources().map(|bounds| bounds.transferred).max();
        let under_way = held + transferred.unwrap_or_default();
        let lookups = LOOKUP_OCTETS * usize::from(!config.filters.is_empty());
        let data: usize = config.data().iter().map(|data| data.len()).sum();
        // What a file may become in the next generation.
        let with_data = config
            .filters
            .iter()
            .filter(|filter| filter.data().next().is_some());
        let next_data: usize = with_data.map(|filter| filter.limits.data).sum();
        let (published, refreshes) = refreshes(config);
        let rates = config
            .clients
            .iter()
            .flat_map(|clients| [clients.queries, clients.responses]);
        Ceiling {
            parts: vec![
                ("program", PROGRAM),
                ("workers", workers * (WORKER + batches + listeners)),
                ("rates", rates.flatten().count() * RATES),
                (CACHE, config.cache_memory),
                ("tcp", tcp),
                ("waiting", waiting),
                ("under-way", under_way),
                ("lookups", lookups),
                ("pods", pods(config)),
                ("filters", instances.sum()),
                ("tables", tables),
                ("messages", workers * messages),
                ("data", data + published),
                ("refreshes", refreshes),
                ("compiled", compiled),
                // Tables that change their shape exist twice.
                (
                    "loading",
                    filter::loading_memory(&config.filters, workers) + tables + next_data,
                ),
                ("pulling", pulling(config)),
                ("dnstap", dnstap(config)),
                (
                    ALLOCATOR,
                    (config.cache_memory + tcp + waiting + under_way + 2 * tables) / HOLES,
                ),
            ],
            kernel: (connections + listen::LEAVING) * listen::CONNECTION_KERNEL_MEMORY
                + workers * config.listen.addresses.len() * listen::LISTENER_KERNEL_MEMORY,
        }
    }

    /// Returns the sum of all parts.
    pub fn total(&self) -> usize {
        self.parts.iter().map(|(_, octets)| octets).sum()
    }

    /// Returns the most bytes that a container is charged for.
    pub fn charged(&self) -> usize {
        self.total() + self.kernel
    }

    /// Returns the most bytes of the cache.
    pub fn cache(&self) -> usize {
        self.parts
            .iter()
            .find(|(name, _)| *name == CACHE)
            .map_or(0, |(_, octets)| *octets)
    }

    /// Shrinks the cache until everything fits the limit, or to its minimum.
    pub(crate) fn fit_cache(&mut self, limit: usize) {
        let excess = self.charged().saturating_sub(limit);
        // Each byte of the cache counts together with its share of the allocator's gaps.
        let cut = (excess * HOLES).div_ceil(HOLES + 1);
        let cut = cut.min(self.cache().saturating_sub(LEAST_CACHE));
        for (name, octets) in &mut self.parts {
            match *name {
                CACHE => *octets -= cut,
                ALLOCATOR => *octets -= cut / HOLES,
                _ => {}
            }
        }
    }

    /// Returns a warning if a memory limit is smaller than that.
    pub fn beyond(&self, limit: Option<usize>) -> Option<String> {
        let limit = limit.filter(|limit| *limit < self.charged())?;
        let mebibytes = |octets: usize| octets.div_ceil(1 << 20);
        Some(format!(
            "this configuration may use up to {} MiB, including the kernel's buffers, but the memory limit of this process's control group (a \
             container's) is {} MiB. Beyond it, the kernel kills the process. Raise the limit, or lower `cache-memory` or another part of the \
             sum in docs/limits.md",
            mebibytes(self.charged()),
            limit >> 20
        ))
    }
}

/// Returns the resident memory of the process in bytes, if the kernel reports it.
pub fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_cache_whose_size_is_not_written_is_fit_into_the_limit() {
        let text = "listen \"127.0.0.1\"\nzone \".\" { cache; forward \"192.0.2.1\" }";
        let config = crate::config::parse("test", text, Path::new("/"), &[]).unwrap();
        let of = || Ceiling::of(&config, 2, 1024, &OfFilters::default());
        let ceiling = of();
        let fit = |limit| {
            let mut ceiling = of();
            ceiling.fit_cache(limit);
            ceiling
        };
        assert_eq!(fit(ceiling.charged()), ceiling, "it fits already");
        assert_eq!(ceiling.beyond(Some(ceiling.charged())), None);
        assert_eq!(ceiling.beyond(None), None);
        let tight = ceiling.charged() - (30 << 20);
        assert!(ceiling.beyond(Some(tight)).is_some());
        let fitted = fit(tight);
        assert_eq!(fitted.beyond(Some(tight)), None);
        assert!(fitted.charged() + 16 > tight, "and no smaller than it must be");
        assert_eq!(fitted.cache(), ceiling.cache() - (20 << 20));
        // The rest does not fit: shrinking the cache is not enough.
        let least = fit(1 << 20);
        assert_eq!(least.cache(), LEAST_CACHE);
        let said = least.beyond(Some(1 << 20)).unwrap();
        assert!(said.contains(" is 1 MiB. "), "{said}");
    }

    /// The DaemonSet's memory limit covers what the process can hold, including kernel memory, on a node
    /// where `workers` has its largest default.
    #[test]
    fn the_daemon_set_has_room_for_all_of_it() {
        let config = include_str!("../../../deploy/overlays/cluster-address/dnsweir.kdl")
            .replace("(env)\"KUBE_DNS_SERVICE_HOST\"", "\"10.96.0.10\"");
        let config = crate::config::parse("dnsweir.kdl", &config, Path::new("/"), &[]).unwrap();
        let ceiling = Ceiling::of(&config, 4, 1024, &OfFilters::default());
        let manifest = include_str!("../../../deploy/base/daemonset.yaml");
        let limits = manifest.split("limits: {memory: ").nth(1).unwrap();
        let mebibytes: usize = limits.split("Mi").next().unwrap().parse().unwrap();
        let needed = (ceiling.total() + ceiling.kernel).div_ceil(1 << 20);
        assert!(
            (needed..needed + needed / 4).contains(&mebibytes),
            "{needed} MiB are needed, and the limit is {mebibytes}"
        );
    }
}
