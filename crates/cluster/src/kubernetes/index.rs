//! What queries are answered from: every name and address of the cluster, found by one lookup.
//!
//! An index is immutable. A change publishes a new one, which shares everything unchanged with the old.

use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use rpds::HashTrieMapSync;

use super::known::Indexed;
use super::objects::{Endpoint, Namespace, Pod, Port, Service, ServiceName, Slice};
use crate::dns::name::Name;

/// The most slices of a service, and ports in all of them, since a query looks through them.
const MOST_SLICES: usize = 1000;
const MOST_PORTS: usize = 10_000;

/// The most services, slices or pods per address: a reverse query's reply holds only so many names.
const MOST_HOLDERS: usize = 1000;

type Map<K, V> = HashTrieMapSync<K, V, foldhash::fast::RandomState>;

/// Everything known of a cluster at one time.
#[derive(Debug, Clone)]
pub struct Index {
    services: Map<ServiceName, Entry>,
    /// Multi-cluster services.
    imports: Map<ServiceName, Entry>,
    addresses: Map<IpAddr, Box<[Holder]>>,
    /// Pods by address.
    pods: Map<IpAddr, Box<[Arc<Pod>]>>,
    namespaces: Map<Box<[u8]>, ()>,
    /// Problems to report about objects that were cut or left out.
    pub refused: Vec<String>,
    /// The SOA record's serial. It grows whenever an answer changes.
    pub serial: u32,
    /// Whether everything except multi-cluster objects has been listed once.
    pub complete: bool,
    /// Whether multi-cluster objects have been listed once.
    pub imports_complete: bool,
}

/// A service, its endpoints, or both, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The service.
    pub service: Option<Arc<Service>>,
    slices: Box<[Arc<Slice>]>,
}

/// What has an address.
#[derive(Debug, Clone)]
pub enum Holder {
    /// A service, by its cluster IP.
    Service(Arc<Service>),
    /// A service, by an address outside the cluster.
    Outside(Arc<Service>),
    /// An endpoint of this slice.
    Endpoint(Arc<Slice>),
}

impl Default for Index {
    fn default() -> Index {
        Index {
            services: Map::new_with_hasher_and_ptr_kind(Default::default()),
            imports: Map::new_with_hasher_and_ptr_kind(Default::default()),
            addresses: Map::new_with_hasher_and_ptr_kind(Default::default()),
            pods: Map::new_with_hasher_and_ptr_kind(Default::default()),
            namespaces: Map::new_with_hasher_and_ptr_kind(Default::default()),
            refused: Vec::new(),
            serial: 0,
            complete: false,
            imports_complete: false,
        }
    }
}

impl Index {
    /// The entry for the labels `service.namespace`.
    pub fn service(&self, name: &[u8]) -> Option<&Entry> {
        self.services.get(name)
    }

    /// All services and endpoints, by their labels `service.namespace`.
    pub fn services(&self) -> impl Iterator<Item = (&ServiceName, &Entry)> {
        self.services.iter()
    }

    /// All addresses that something in the cluster has.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.keys().copied()
    }

    /// Each address of each pod, with the label of the pod's namespace.
    pub fn pods(&self) -> impl Iterator<Item = (&[u8], IpAddr)> {
        let pods = self.pods.iter();
        pods.flat_map(|(&address, pods)| pods.iter().map(move |pod| (&*pod.namespace, address)))
    }

    /// Like `service`, for multi-cluster services.
    pub fn import(&self, name: &[u8]) -> Option<&Entry> {
        self.imports.get(name)
    }

    /// Returns whether the namespace exists.
    pub(crate) fn has_namespace(&self, label: &[u8]) -> bool {
        self.namespaces.contains_key(label)
    }

    /// Returns whether a pod of this namespace has this address.
    pub(crate) fn has_pod(&self, namespace: &[u8], address: IpAddr) -> bool {
        let pods = self.pods.get(&address);
        pods.is_some_and(|pods| pods.iter().any(|pod| *pod.namespace == *namespace))
    }

    /// The namespace of the pod with this address. `None` if unsure: pods of several may have it, or one on
    /// the node's network.
    pub(crate) fn namespace_of(&self, address: IpAddr) -> Option<&[u8]> {
        let (first, others) = self.pods.get(&address)?.split_first()?;
        let is_sure = |pod: &Arc<Pod>| !pod.on_host && pod.namespace == first.namespace;
        (is_sure(first) && others.iter().all(is_sure)).then_some(&*first.namespace)
    }

    /// Everything that has this address.
    pub(crate) fn holders(&self, address: IpAddr) -> &[Holder] {
        self.addresses.get(&address).map_or(&[], |holders| holders)
    }

    /// Changes the entry of a multi-cluster service.
    pub(crate) fn change_import<R>(&mut self, name: &ServiceName, change: impl FnOnce(&mut Entry) -> R) -> R {
        change_entry(&mut self.imports, name, change)
    }

    /// Records what was cut from a slice, and, unless `is_there`, that its service has no room for it.
    pub fn note(&mut self, slice: &Slice, is_there: bool) {
        self.refused.extend(slice.left_out.as_deref().map(str::to_owned));
        if !is_there {
            let service = Name::lowercased(&[&slice.service, &b"\0"[..]].concat());
            self.refused.push(format!(
                "{service} has more than {MOST_SLICES} slices or {MOST_PORTS} ports in them: one is left out"
            ));
        }
    }
}

fn change_entry<R>(
    services: &mut Map<ServiceName, Entry>,
    name: &ServiceName,
    change: impl FnOnce(&mut Entry) -> R,
) -> R {
    let mut entry = services.get(name).cloned().unwrap_or_default();
    let changed = change(&mut entry);
    if entry.service.is_none() && entry.slices.is_empty() {
        services.remove_mut(name);
    } else {
        services.insert_mut(name.clone(), entry);
    }
    changed
}

impl Entry {
    /// Adds a slice, and returns whether it was: a service has only as many as a query can look through.
    pub fn add(&mut self, slice: &Arc<Slice>) -> bool {
        let ports: usize = self.slices.iter().map(|slice| slice.ports.len()).sum();
        if self.slices.len() >= MOST_SLICES || ports + slice.ports.len() > MOST_PORTS {
            return false;
        }
        let slices = self.slices.iter().cloned();
        self.slices = slices.chain([Arc::clone(slice)]).collect();
        true
    }

    /// Removes a slice.
    pub fn remove(&mut self, slice: &Arc<Slice>) {
        let slices = self.slices.iter().filter(|other| !Arc::ptr_eq(slice, other));
        self.slices = slices.cloned().collect();
    }

    /// All endpoints, slice by slice, with the ports that each endpoint of the slice has.
    pub fn slices(&self) -> impl Iterator<Item = (&[Endpoint], &[Port])> {
        let slices = self.slices.iter();
        slices.map(|slice| (&*slice.endpoints, &*slice.ports))
    }

    /// The endpoints with this label.
    pub fn labelled(&self, label: &[u8]) -> impl Iterator<Item = (&[Endpoint], &[Port])> {
        self.slices().map(move |(endpoints, ports)| {
            let from = endpoints.partition_point(|endpoint| *endpoint.label < *label);
            let those = &endpoints[from..];
            let count = those.partition_point(|endpoint| *endpoint.label == *label);
            (&those[..count], ports)
        })
    }

    /// Returns whether there are any endpoints.
    pub(crate) fn has_endpoints(&self) -> bool {
        self.slices.iter().any(|slice| !slice.endpoints.is_empty())
    }

    /// The endpoints' ports.
    pub(crate) fn endpoint_ports(&self) -> impl Iterator<Item = &Port> {
        let slices = self.slices.iter().filter(|slice| !slice.endpoints.is_empty());
        slices.flat_map(|slice| slice.ports.iter())
    }
}

impl Holder {
    fn is(&self, other: &Holder) -> bool {
        match (self, other) {
            (Holder::Service(one), Holder::Service(other))
            | (Holder::Outside(one), Holder::Outside(other)) => Arc::ptr_eq(one, other),
            (Holder::Endpoint(one), Holder::Endpoint(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Indexed<Index> for Service {
    fn enter(self: &Arc<Self>, index: &mut Index) -> usize {
        change_entry(&mut index.services, &self.name, |entry| {
            entry.service = Some(Arc::clone(self));
        });
        index.refused.extend(self.left_out.as_deref().map(str::to_owned));
        let mut missing = 0;
        for &address in self.addresses() {
            missing += add(&mut index.addresses, address, Holder::Service(Arc::clone(self)));
        }
        for &address in &self.outside.addresses {
            missing += add(&mut index.addresses, address, Holder::Outside(Arc::clone(self)));
        }
        missing
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        change_entry(&mut index.services, &self.name, |entry| entry.service = None);
        let holder = Holder::Service(Arc::clone(self));
        for &address in self.addresses() {
            remove(&mut index.addresses, address, |other| holder.is(other));
        }
        let holder = Holder::Outside(Arc::clone(self));
        for &address in &self.outside.addresses {
            remove(&mut index.addresses, address, |other| holder.is(other));
        }
    }

    fn octets(&self) -> usize {
        let ports: usize = self.ports.iter().map(Port::octets).sum();
        let outside =
            self.outside.addresses.len() * ENTRY + self.outside.host.as_ref().map_or(0, |host| host.len());
        OBJECT + 2 * self.name.len() + ports + self.addresses().len() * ENTRY + outside
    }
}

impl Indexed<Index> for Slice {
    fn enter(self: &Arc<Self>, index: &mut Index) -> usize {
        let is_there = change_entry(&mut index.services, &self.service, |entry| entry.add(self));
        index.note(self, is_there);
        let mut missing = usize::from(!is_there);
        for address in self.addresses() {
            missing += add(&mut index.addresses, address, Holder::Endpoint(Arc::clone(self)));
        }
        missing
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        change_entry(&mut index.services, &self.service, |entry| entry.remove(self));
        let holder = Holder::Endpoint(Arc::clone(self));
        for address in self.addresses() {
            remove(&mut index.addresses, address, |other| holder.is(other));
        }
    }

    fn octets(&self) -> usize {
        let ports: usize = self.ports.iter().map(Port::octets).sum();
        let endpoints = self.endpoints.iter();
        let endpoints: usize = endpoints
            .map(|endpoint| size_of::<Endpoint>() + endpoint.label.len() + ENTRY)
            .sum();
        OBJECT + 2 * self.service.len() + ports + endpoints
    }
}

impl Indexed<Index> for Pod {
    fn enter(self: &Arc<Self>, index: &mut Index) -> usize {
        let mut missing = 0;
        for &address in &self.addresses {
            missing += add(&mut index.pods, address, Arc::clone(self));
        }
        missing
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        for &address in &self.addresses {
            remove(&mut index.pods, address, |other| Arc::ptr_eq(self, other));
        }
    }

    fn octets(&self) -> usize {
        OBJECT + self.namespace.len() + self.addresses.len() * ENTRY
    }
}

impl Indexed<Index> for Namespace {
    fn enter(self: &Arc<Self>, index: &mut Index) -> usize {
        index.namespaces.insert_mut(self.label.clone(), ());
        0
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        index.namespaces.remove_mut(&self.label);
    }

    fn octets(&self) -> usize {
        OBJECT + 2 * self.label.len()
    }
}

/// Bytes of an object besides its texts: itself, its place among the known ones, its key and its map entry.
const OBJECT: usize = 480;

/// Bytes of an address in a map.
const ENTRY: usize = 240;

impl Service {
    fn addresses(&self) -> &[IpAddr] {
        match &self.kind {
            super::objects::ServiceKind::Cluster(addresses) => addresses,
            _ => &[],
        }
    }
}

impl Slice {
    /// The addresses of its endpoints without duplicates.
    fn addresses(&self) -> Vec<IpAddr> {
        let addresses = self.endpoints.iter().map(|endpoint| endpoint.address);
        let mut addresses: Vec<IpAddr> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

impl Port {
    fn octets(&self) -> usize {
        size_of::<Port>() + self.name.len() + self.protocol.len()
    }
}

/// Adds a value to a key, unless the key has too many already; returns how many places it is missing from.
fn add<K: Eq + Hash, V: Clone>(map: &mut Map<K, Box<[V]>>, key: K, value: V) -> usize {
    if map.get(&key).is_some_and(|others| others.len() >= MOST_HOLDERS) {
        return 1;
    }
    let others = map.get(&key).into_iter().flatten().cloned();
    let all = others.chain([value]).collect();
    map.insert_mut(key, all);
    0
}

/// Removes the matching values of a key.
fn remove<K: Eq + Hash, V: Clone>(map: &mut Map<K, Box<[V]>>, key: K, is: impl Fn(&V) -> bool) {
    let Some(all) = map.get(&key) else { return };
    let others: Box<[V]> = all.iter().filter(|other| !is(other)).cloned().collect();
    if others.is_empty() {
        map.remove_mut(&key);
    } else {
        map.insert_mut(key, others);
    }
}
