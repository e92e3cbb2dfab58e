//! Lists and maps in a pod, parsed up to a limit: their entries could take many times the review's memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The most entries of a list or map that are kept. Enough: a resolver has 3 name servers and 32 search
/// domains.
pub const ENTRIES: usize = 256;

/// A list of limited length.
#[derive(Debug)]
pub struct List<T> {
    /// The first entries.
    pub entries: Vec<T>,
    /// Whether there are more.
    pub has_more: bool,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        deserializer.deserialize_seq(OfList(PhantomData))
    }
}

struct OfList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OfList<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
        let mut entries = Vec::new();
        while entries.len() < ENTRIES {
            match list.next_element()? {
                Some(entry) => entries.push(entry),
                None => {
                    return Ok(List {
                        entries,
                        has_more: false,
                    });
                }
            }
        }
        let mut has_more = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            has_more = true;
        }
        Ok(List { entries, has_more })
    }
}

/// A map of strings with limited length.
#[derive(Debug)]
pub struct Map(List<(String, String)>);

impl Map {
    /// The value of a key, if it is among the first entries.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut entries = self.0.entries.iter();
        // As usual, the last of several equal keys counts.
        let found = entries.rfind(|(one, _)| one == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether there are more entries.
    pub fn has_more(&self) -> bool {
        self.0.has_more
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Map, D::Error> {
        deserializer.deserialize_map(OfMap)
    }
}

struct OfMap;

impl<'de> Visitor<'de> for OfMap {
    type Value = Map;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Map, A::Error> {
        let mut entries = Vec::new();
        while entries.len() < ENTRIES {
            match map.next_entry()? {
                Some(entry) => entries.push(entry),
                None => {
                    return Ok(Map(List {
                        entries,
                        has_more: false,
                    }));
                }
            }
        }
        let mut has_more = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            has_more = true;
        }
        Ok(Map(List { entries, has_more }))
    }
}
