//! The known objects of one kind, which an index is built from, kept up to date by lists and changes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::api_server::{Change, Reading};

/// An object that an index refers to.
pub trait Indexed<I> {
    /// Adds it to the index, and returns in how many places there was no room for it.
    fn enter(self: &Arc<Self>, index: &mut I) -> usize;
    /// Removes it from the index.
    fn leave(self: &Arc<Self>, index: &mut I);
    /// Approximate bytes, here and in the index.
    fn octets(&self) -> usize;
}

/// The objects of a kind by `namespace/name`.
#[derive(Debug)]
pub struct Known<T> {
    objects: HashMap<Box<str>, Held<T>>,
    /// The keys seen so far in the list in progress.
    listed: Option<HashSet<Box<str>>>,
    /// Approximate bytes of the objects.
    octets: usize,
}

/// A known object.
#[derive(Debug)]
struct Held<T> {
    object: Arc<T>,
    /// From how many places of the index it is missing.
    missing: usize,
}

impl<T> Held<T> {
    /// Enters an object again that was not entered as a whole, since there may be room now. Returns whether
    /// there is for more of it.
    fn complete<I>(&mut self, index: &mut I) -> bool
    where
        T: Indexed<I>,
    {
        if self.missing == 0 {
            return false;
        }
        self.object.leave(index);
        let before = self.missing;
        self.missing = self.object.enter(index);
        self.missing < before
    }
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

    /// Approximate bytes of the objects.
    pub fn octets(&self) -> usize {
        self.octets
    }
}

impl<T: PartialEq> Known<T> {
    /// Applies a change, unless it would take more than `room` bytes. Returns whether any answer may change.
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
        let mut entry = self.objects.entry(key);
        let before = match &mut entry {
            Entry::Occupied(known) if *known.get().object == object => {
                return Ok(known.get_mut().complete(index));
            }
            Entry::Occupied(known) => known.get().object.octets(),
            Entry::Vacant(_) => 0,
        };
        let octets = object.octets();
        if octets > room + before {
            return Err(Full(entry.key().clone()));
        }
        let object = Arc::new(object);
        if let Entry::Occupied(known) = &entry {
            known.get().object.leave(index);
        }
        let missing = object.enter(index);
        entry.insert_entry(Held { object, missing });
        self.octets = self.octets - before + octets;
        Ok(true)
    }

    fn forget<I>(&mut self, key: &str, index: &mut I) -> bool
    where
        T: Indexed<I>,
    {
        let Some(Held { object, .. }) = self.objects.remove(key) else {
            return false;
        };
        object.leave(index);
        self.octets -= object.octets();
        true
    }
}

/// There is no room for this object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit into `memory`: its last version is kept")]
pub struct Full(pub Box<str>);
