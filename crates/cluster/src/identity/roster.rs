//! The pods of a node and their namespaces, kept up to date by lists and changes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::bounds::{NAMESPACES, PODS};
use super::objects::Kept;
use super::state::State;
use super::table::Table;
use crate::api_server::{Change, Reading};
use dnsweir_answer::identity::{FIRST, Identity, Namespace, Pod, PodObject};

/// A change of one object.
#[derive(Debug)]
pub(super) enum News {
    /// Of a pod.
    Pod(Change<PodObject>),
    /// Of the namespace with this name.
    Namespace(Box<str>, Change<Namespace>),
}

/// The next identity's number, unique among all pods that this process ever followed.
static NUMBERS: AtomicU64 = AtomicU64::new(FIRST);

/// The known pods and namespaces.
pub(super) struct Roster<'a> {
    state: &'a State,
    /// The most bytes they may use.
    memory: usize,
    /// By `namespace/name`.
    pods: HashMap<Box<str>, Arc<PodObject>>,
    /// The keys seen so far in the list in progress.
    listed: Option<HashSet<Box<str>>>,
    /// Whether all pods have been listed once.
    complete: bool,
    /// Whether a pod had no room, so that no address can be attributed with certainty.
    crowded: bool,
    /// The same for the list in progress.
    list_crowded: bool,
    /// The followed namespaces: those with pods here.
    namespaces: HashMap<Box<str>, Followed>,
    octets: usize,
    /// The identities in the last table.
    identities: HashMap<Box<str>, Arc<Pod>>,
}

/// A followed namespace.
#[derive(Default)]
struct Followed {
    /// The object, if known.
    object: Option<Arc<Namespace>>,
    /// Whether the list in progress has named it.
    named: bool,
    /// Whether it has been listed once.
    complete: bool,
}

impl<'a> Roster<'a> {
    pub(super) fn new(state: &'a State, memory: usize) -> Roster<'a> {
        Roster {
            state,
            memory,
            pods: HashMap::new(),
            listed: None,
            complete: false,
            crowded: false,
            list_crowded: false,
            namespaces: HashMap::new(),
            octets: 0,
            identities: HashMap::new(),
        }
    }

    /// Applies a change.
    pub(super) fn take(&mut self, news: News) {
        match news {
            News::Pod(change) => self.pod(change),
            News::Namespace(name, change) => self.namespace(&name, change),
        }
    }

    fn pod(&mut self, change: Change<PodObject>) {
        match change {
            Change::ListBegins => {
                self.listed = Some(HashSet::new());
                self.list_crowded = false;
            }
            Change::Object(key, reading) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(key.clone());
                }
                match reading {
                    Reading::Present(pod) => self.keep(key, pod),
                    Reading::Nothing => self.forget(&key),
                    Reading::Unchanged => {}
                }
            }
            Change::Gone(key) => self.forget(&key),
            Change::ListEnds => {
                let Some(listed) = self.listed.take() else { return };
                let gone: Vec<Box<str>> = self
                    .pods
                    .keys()
                    .filter(|key| !listed.contains(*key))
                    .cloned()
                    .collect();
                gone.iter().for_each(|key| self.forget(key));
                self.complete = true;
                // The list repeated everything, so only its own state counts.
                self.crowded = self.list_crowded;
            }
        }
    }

    fn keep(&mut self, key: Box<str>, mut pod: PodObject) {
        let before = self.pods.get(&key).map_or(0, |known| known.octets());
        let room = self.memory.saturating_sub(self.octets - before);
        if let Some(what) = pod.fit(room) {
            let problem = format!("{key} is known without its {what}, because there is no memory for them");
            self.state.pods.refuse(&problem);
        }
        let is_full = self.pods.len() >= PODS;
        match self.pods.entry(key) {
            Entry::Occupied(known) if **known.get() == pod => {}
            Entry::Vacant(new) if is_full => {
                self.state.pods.refuse(&format!(
                    "{} exceeds the limit of {PODS} pods: until there are fewer, no pod has an identity",
                    new.key()
                ));
                (self.crowded, self.list_crowded) = (true, true);
            }
            entry => {
                self.octets = self.octets - before + pod.octets();
                entry.insert_entry(Arc::new(pod));
            }
        }
    }

    fn forget(&mut self, key: &str) {
        if let Some(pod) = self.pods.remove(key) {
            self.octets -= pod.octets();
        }
    }

    fn namespace(&mut self, name: &str, change: Change<Namespace>) {
        // A change may arrive after the namespace's last pod has gone.
        let Some(followed) = self.namespaces.get_mut(name) else {
            return;
        };
        let before = followed.object.as_ref().map_or(0, |known| known.octets());
        let now = match change {
            Change::ListBegins => {
                followed.named = false;
                return;
            }
            Change::Object(_, Reading::Present(mut namespace)) => {
                followed.named = true;
                let room = self.memory.saturating_sub(self.octets - before);
                if let Some(what) = namespace.fit(room) {
                    let problem =
                        format!("{name} is known without its {what}, because there is no memory for them");
                    self.state.namespaces.refuse(&problem);
                }
                Some(namespace)
            }
            Change::Object(_, Reading::Unchanged) => return,
            Change::Object(_, Reading::Nothing) | Change::Gone(_) => None,
            Change::ListEnds => {
                followed.complete = true;
                if followed.named {
                    return;
                }
                None
            }
        };
        if followed.object.as_deref() != now.as_ref() {
            self.octets = self.octets - before + now.as_ref().map_or(0, Kept::octets);
            followed.object = now.map(Arc::new);
        }
    }

    /// Selects which namespaces to follow: those of all pods, up to the limit.
    fn choose_namespaces(&mut self) {
        let wanted: BTreeSet<&str> = self.pods.values().map(|pod| &*pod.namespace).collect();
        let octets = &mut self.octets;
        self.namespaces.retain(|name, followed| {
            let stays = wanted.contains(&**name);
            if let (false, Some(object)) = (stays, &followed.object) {
                *octets -= object.octets();
            }
            stays
        });
        for name in wanted {
            if self.namespaces.contains_key(name) {
                continue;
            }
            if self.namespaces.len() == NAMESPACES {
                self.state.namespaces.refuse(&format!(
                    "{name} exceeds the limit of {NAMESPACES} namespaces: its pods have no identity"
                ));
                continue;
            }
            self.namespaces.insert(name.into(), Followed::default());
        }
        let names: BTreeSet<Box<str>> = self.namespaces.keys().cloned().collect();
        self.state.wanted.send_if_modified(|known| {
            let changed = *known != names;
            *known = names;
            changed
        });
    }

    /// Publishes the current state for queries.
    pub(super) fn publish(&mut self) {
        self.choose_namespaces();
        let mut identities = HashMap::with_capacity(self.pods.len());
        for (key, object) in &self.pods {
            let namespace = self.namespaces.get(&object.namespace);
            if let Some(namespace) = namespace.and_then(|followed| followed.object.as_ref())
                && !self.crowded
            {
                let known = self.identities.get(key).filter(|known| {
                    Arc::ptr_eq(&known.object, object) && Arc::ptr_eq(&known.namespace, namespace)
                });
                let pod = known.cloned().unwrap_or_else(|| {
                    Arc::new(Pod {
                        number: NUMBERS.fetch_add(1, Relaxed),
                        object: Arc::clone(object),
                        namespace: Arc::clone(namespace),
                        queries: self.state.counters.of(&object.namespace),
                    })
                });
                identities.insert(key.clone(), pod);
            }
        }
        let pods = self.pods.iter().map(|(key, object)| {
            let identity = identities.get(key);
            let identity = identity.map_or(Identity::Unknown, |pod| Identity::Pod(Arc::clone(pod)));
            (&**object, identity)
        });
        self.state.table.store(Arc::new(Table::new(pods)));
        self.identities = identities;
        self.count();
        if self.complete && self.namespaces.values().all(|followed| followed.complete) {
            self.state.arrival.come();
        }
    }

    fn count(&self) {
        let store = |at: &AtomicUsize, count| at.store(count, Relaxed);
        let known = self
            .namespaces
            .values()
            .filter(|followed| followed.object.is_some());
        store(&self.state.pods.objects, self.pods.len());
        store(&self.state.namespaces.objects, known.count());
        store(&self.state.octets, self.octets);
    }
}
