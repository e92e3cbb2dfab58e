//! Maps addresses to identities.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};

use dnsweir_answer::identity::{Identity, PodObject};

/// The owner of each address. Immutable: a new table replaces it.
#[derive(Debug, Default)]
pub(super) struct Table(HashMap<IpAddr, Identity>);

impl Table {
    /// Builds the table from pods that have not ended and their identities.
    ///
    /// An address of two pods belongs to the newer one, even if that one's identity is unknown, and to none
    /// if neither is newer.
    pub(super) fn new<'a>(pods: impl Iterator<Item = (&'a PodObject, Identity)>) -> Table {
        let mut holders: HashMap<IpAddr, (Option<i64>, Identity)> = HashMap::new();
        let mut hosts: Vec<&IpAddr> = Vec::new();
        for (pod, identity) in pods {
            hosts.extend(&pod.host);
            if pod.on_host {
                hosts.extend(&pod.addresses);
                continue;
            }
            for address in &pod.addresses {
                let created = pod.created;
                match holders.entry(*address) {
                    Entry::Vacant(free) => {
                        free.insert((created, identity.clone()));
                    }
                    Entry::Occupied(mut held) if held.get().0 < created => {
                        held.insert((created, identity.clone()));
                    }
                    Entry::Occupied(mut held) if held.get().0 == created => {
                        held.insert((created, Identity::Unknown));
                    }
                    Entry::Occupied(_) => {}
                }
            }
        }
        let holders = holders.into_iter();
        let mut table: HashMap<_, _> = holders
            .map(|(address, (_, identity))| (address, identity))
            .collect();
        table.extend(hosts.into_iter().map(|address| (*address, Identity::Host)));
        Table(table)
    }

    /// The owner of an address; the proxy listens on `own`.
    pub(super) fn identify(&self, address: IpAddr, own: &[SocketAddr]) -> Identity {
        let address = address.to_canonical();
        match self.0.get(&address) {
            Some(identity) => identity.clone(),
            // Only the node itself can send from a loopback address.
            None if address.is_loopback() || is_among(address, own) => Identity::Host,
            None => Identity::Unknown,
        }
    }
}

/// Whether the proxy listens on this address. The kernel chooses it as the source of what the node itself
/// sends there.
fn is_among(address: IpAddr, own: &[SocketAddr]) -> bool {
    let mut own = own.iter().map(|own| own.ip().to_canonical());
    !address.is_unspecified() && own.any(|own| own == address)
}
