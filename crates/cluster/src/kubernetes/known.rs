//! The objects of one kind that an index is made of, as lists and changes tell of them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::api_server::{Change, Reading};

/// An object that an index has something of.
pub trait Indexed<I> {
    /// Has the index know it.
    fn enter(self: &Arc<Self>, index: &mut I);
    /// Has the index forget it.
    fn leave(self: &Arc<Self>, index: &mut I);
    /// About how many octets it takes, here and in the index.
    fn octets(&self) -> usize;
}

/// The objects of a kind by `namespace/name`.
#[derive(Debug)]
pub struct Known<T> {
    objects: HashMap<Box<str>, Arc<T>>,
    /// Those that the list which is under way has named.
    listed: Option<HashSet<Box<str>>>,
    /// About how many octets they take.
    octets: usize,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known {
            objects: HashMap::new(),
            listed: None,
            octets: 0,
        }
    }
}

impl<T> Known<T> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// About how many octets they take.
    pub fn octets(&self) -> usize {
        self.octets
    }
}

impl<T: PartialEq> Known<T> {
    /// Has the index say what a change says, unless it would take more than `room` octets; whether any answer may change.
    pub fn change<I>(&mut self, change: Change<T>, index: &mut I, room: usize) -> Result<bool, Full>
    where
        T: Indexed<I>,
    {
        match change {
            Change::ListBegins => {
                self.listed = Some(HashSet::new());
                Ok(false)
            }
            Change::Object(key, reading) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(key.clone());
                }
                match reading {
                    Reading::Unchanged => Ok(false),
                    Reading::Nothing => Ok(self.forget(&key, index)),
                    Reading::Present(object) => self.keep(key, object, index, room),
                }
            }
            Change::Gone(key) => Ok(self.forget(&key, index)),
            Change::ListEnds => {
                let Some(listed) = self.listed.take() else {
                    return Ok(false);
                };
                let gone = self.objects.keys().filter(|key| !listed.contains(*key));
                let gone: Vec<Box<str>> = gone.cloned().collect();
                for key in &gone {
                    self.forget(key, index);
                }
                Ok(!gone.is_empty())
            }
        }
    }

    fn keep<I>(&mut self, key: Box<str>, object: T, index: &mut I, room: usize) -> Result<bool, Full>
    where
        T: Indexed<I>,
    {
        let entry = self.objects.entry(key);
        let before = match &entry {
            Entry::Occupied(known) if **known.get() == object => return Ok(false),
            Entry::Occupied(known) => known.get().octets(),
            Entry::Vacant(_) => 0,
        };
        let octets = object.octets();
        if octets > room + before {
            return Err(Full(entry.key().clone()));
        }
        let object = Arc::new(object);
        if let Entry::Occupied(known) = &entry {
            known.get().leave(index);
        }
        object.enter(index);
        entry.insert_entry(object);
        self.octets = self.octets - before + octets;
        Ok(true)
    }

    fn forget<I>(&mut self, key: &str, index: &mut I) -> bool
    where
        T: Indexed<I>,
    {
        let Some(object) = self.objects.remove(key) else {
            return false;
        };
        object.leave(index);
        self.octets -= object.octets();
        true
    }
}

/// There is no room for an object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit into `memory`: its last version is kept")]
pub struct Full(pub Box<str>);
