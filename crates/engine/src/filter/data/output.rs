//! The data that a refresh writes, before it is published.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::config::{Data, DataWriter};

/// Maximum names published by one refresh.
const NAMES: usize = 64;

/// Maximum bytes of a name.
pub(super) const NAME: usize = 255;

/// All published data at one time, by name.
pub(in crate::filter) type Snapshot = BTreeMap<String, Arc<Data>>;

/// Data being written.
pub(in crate::filter) struct Output {
    /// Bytes that may still be written.
    left: usize,
    parts: BTreeMap<String, Part>,
    /// The first error of a write that was within the limits.
    failed: Option<io::Error>,
}

enum Part {
    Written(DataWriter),
    Taken(Arc<Data>),
}

impl Output {
    pub(super) fn new(limit: usize) -> Output {
        Output {
            left: limit,
            parts: BTreeMap::new(),
            failed: None,
        }
    }

    fn has_room_for(&self, name: &str) -> bool {
        self.parts.contains_key(name) || self.parts.len() < NAMES && name.len() <= NAME
    }

    /// Appends to the data of a name. Returns whether that was within the limits and succeeded.
    pub(super) fn append(&mut self, name: &str, octets: &[u8]) -> bool {
        let Some(left) = self.left.checked_sub(octets.len()) else {
            return false;
        };
        if !self.has_room_for(name) {
            return false;
        }
        let written = match self.parts.get_mut(name) {
            Some(Part::Written(writer)) => writer.append(octets),
            Some(Part::Taken(_)) => return false,
            None => DataWriter::new().and_then(|mut writer| {
                writer.append(octets)?;
                self.parts.insert(name.to_owned(), Part::Written(writer));
                Ok(())
            }),
        };
        self.left = left;
        match written {
            Ok(()) => true,
            Err(error) => {
                self.failed.get_or_insert(error);
                false
            }
        }
    }

    /// Publishes existing data under a new name. Returns whether there was room for it.
    pub(super) fn publish(&mut self, name: &str, data: Arc<Data>) -> bool {
        let Some(left) = self.left.checked_sub(data.len()) else {
            return false;
        };
        if self.parts.contains_key(name) || !self.has_room_for(name) {
            return false;
        }
        self.left = left;
        self.parts.insert(name.to_owned(), Part::Taken(data));
        true
    }

    /// All of it, immutable from now on.
    pub(in crate::filter) fn finish(self) -> io::Result<Snapshot> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let parts = self.parts.into_iter().map(|(name, part)| {
            let data = match part {
                Part::Written(writer) => writer.finish()?,
                Part::Taken(data) => data,
            };
            Ok((name, data))
        });
        parts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_octets_and_names() {
        let mut output = Output::new(5);
        assert!(output.append("a", b"abc"));
        assert!(!output.append("b", b"def"));
        assert!(output.append("a", b"d"));
        let mut writer = DataWriter::new().unwrap();
        writer.append(b"x").unwrap();
        let data = writer.finish().unwrap();
        assert!(!output.publish("a", Arc::clone(&data)));
        assert!(output.publish("c", Arc::clone(&data)));
        assert!(!output.append("c", b""));
        assert!(!output.publish("d", data));
        let snapshot = output.finish().unwrap();
        let all: Vec<_> = snapshot
            .iter()
            .map(|(name, data)| (name.as_str(), &data[..]))
            .collect();
        assert_eq!(all, [("a", &b"abcd"[..]), ("c", b"x")]);
    }

    #[test]
    fn names_are_bounded() {
        let mut output = Output::new(5);
        assert!(!output.append(&"x".repeat(NAME + 1), b""));
        for number in 0..NAMES {
            assert!(output.append(&number.to_string(), b""));
        }
        assert!(!output.append("more", b""));
        assert!(output.append("7", b"a"));
    }
}
