//! The pods of a node and their namespaces, as lists and changes tell of them.

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

/// What is told.
#[derive(Debug)]
pub(super) enum News {
    /// Of a pod.
    Pod(Change<PodObject>),
    /// Of the namespace with this name.
    Namespace(Box<str>, Change<Namespace>),
}

/// The number of the next identity: of all nodes' pods that this process has ever followed.
static NUMBERS: AtomicU64 = AtomicU64::new(FIRST);

/// Who is there.
pub(super) struct Roster<'a> {
    state: &'a State,
    /// Octets that they may take.
    memory: usize,
    /// By `namespace/name`.
    pods: HashMap<Box<str>, Arc<PodObject>>,
    /// Those that the list which is under way has named.
    listed: Option<HashSet<Box<str>>>,
    /// Whether all pods were listed once.
    complete: bool,
    /// Whether there was no room for a pod, so that nobody can be sure who has an address.
    crowded: bool,
    /// Whether there was none for a pod of the list that is under way.
    list_crowded: bool,
    /// Those with pods here that are followed.
    namespaces: HashMap<Box<str>, Followed>,
    octets: usize,
    /// Who the pods were in the last table.
    identities: HashMap<Box<str>, Arc<Pod>>,
}

/// A namespace that is followed.
#[derive(Default)]
struct Followed {
    /// What is known of it; none: nothing.
    object: Option<Arc<Namespace>>,
    /// Whether the list that is under way has named it.
    named: bool,
    /// Whether it was listed once.
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

    /// Takes in what is told.
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
                // Those before it do not count any more: all are told anew.
                self.crowded = self.list_crowded;
            }
        }
    }

    fn keep(&mut self, key: Box<str>, mut pod: PodObject) {
        let before = self.pods.get(&key).map_or(0, |known| known.octets());
        let room = self.memory.saturating_sub(self.octets - before);
        if let Some(what) = pod.fit(room) {
            let problem = format!("{key} is known without its {what}, for which there is no memory");
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
        // It may have been told of before the last of its pods went.
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
                    let problem = format!("{name} is known without its {what}, for which there is no memory");
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

    /// Has the namespaces of all pods followed, and no others.
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

    /// Has queries told by what is known now.
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
        let complete = self.complete && self.namespaces.values().all(|followed| followed.complete);
        self.state
            .complete
            .send_if_modified(|known| !std::mem::replace(known, *known || complete) && complete);
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
