//! Upper bounds on a source's resources.

use dnsweir_cluster::{kubernetes, service_entries};
use dnsweir_lists as lists;
use dnsweir_upstream as forward;
use dnsweir_zones::{file, secondary, transfer};

use crate::config::SourceConfig;

/// The most that a source uses, over all workers.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Open sockets.
    pub sockets: usize,
    /// Those of them that stay open while idle.
    pub connections: usize,
    /// Bytes of memory.
    pub octets: usize,
    /// Bytes of old versions of a zone that transfers in progress keep alive.
    pub transferred: usize,
}

/// The bounds of a source with this configuration.
pub fn bounds(config: &SourceConfig, workers: usize) -> Bounds {
    let of_transfers =
        |transfer: &Option<_>, memory: usize| transfer.as_ref().map_or(0, |_| transfer::AT_ONCE * memory);
    match config {
        SourceConfig::Forward(forward) => Bounds {
            sockets: forward::most_sockets(forward, workers),
            connections: forward::most_connections(forward, workers),
            octets: forward::most_octets(forward, workers),
            transferred: 0,
        },
        SourceConfig::Kubernetes(kubernetes) => Bounds {
            sockets: kubernetes::MOST_SOCKETS + transfer::sockets(&kubernetes.transfer),
            connections: kubernetes::MOST_SOCKETS,
            octets: kubernetes.memory,
            transferred: of_transfers(&kubernetes.transfer, kubernetes.memory),
        },
        SourceConfig::ServiceEntries(entries) => Bounds {
            sockets: service_entries::MOST_SOCKETS,
            connections: service_entries::MOST_SOCKETS,
            octets: entries.memory,
            transferred: 0,
        },
        SourceConfig::File(file) => Bounds {
            sockets: file.zones.len() * transfer::sockets(&file.transfer),
            connections: 0,
            octets: file::most_octets(file),
            transferred: of_transfers(&file.transfer, file.memory),
        },
        SourceConfig::Secondary(secondary) => Bounds {
            sockets: secondary::most_sockets(secondary),
            connections: secondary::most_sockets(secondary),
            octets: secondary::most_octets(secondary),
            transferred: of_transfers(&secondary.transfer, secondary.memory),
        },
        SourceConfig::Lists(config) => Bounds {
            sockets: lists::MOST_SOCKETS,
            connections: lists::MOST_SOCKETS,
            octets: lists::most_octets(config),
            transferred: 0,
        },
    }
}
