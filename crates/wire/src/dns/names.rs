//! The names in a message. Each position is examined once, however many pointers lead there.
//!
//! Compression can make 64 KiB stand for megabytes: thousands of records with the same long owner name, each
//! through a chain of pointers. What is learned at a position where a name or its rest begins is recorded, so
//! that checking all names of a message costs time in proportion to its length.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::name::{self, BadName, LABEL_MAXIMUM, NAME_MAXIMUM, POINTERS_MAXIMUM};

/// The names of one message.
pub struct Names<'m> {
    message: &'m [u8],
    known: SmallVec<[Known; FEW]>,
    /// For each byte of the message, the index in `known` of the name that begins there, plus one; 0: not
    /// examined. Empty while few names are known: scanning those is cheaper.
    places: Vec<u16>,
    /// The offsets of the parts of the name being examined.
    parts: [u16; PARTS],
}

/// A name that was examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Equal for names that differ only in ASCII case (RFC 4343 section 3). Collisions are unlikely unless
    /// forced; an attacker would only lower the TTLs of its own answer.
    pub hash: u64,
    /// Its length uncompressed, in bytes.
    pub octets: u8,
    /// Its offset.
    at: u16,
    /// The number of pointers in it.
    pointers: u8,
    /// The target of the first pointer.
    target: u16,
    /// The end of its first part, after the root label or the pointer.
    end: u16,
}

/// The most parts of a name: labels of at least two bytes each, plus its pointers.
const PARTS: usize = NAME_MAXIMUM / 2 + POINTERS_MAXIMUM as usize + 1;

/// Enough for the names of most messages.
const FEW: usize = 8;

/// The root label.
const ROOT: Known = Known {
    hash: 0,
    octets: 1,
    at: 0,
    pointers: 0,
    target: 0,
    end: 0,
};

impl<'m> Names<'m> {
    /// No name is known yet. The message has at most 65 535 bytes.
    pub fn new(message: &'m [u8]) -> Names<'m> {
        Names {
            message,
            known: SmallVec::new(),
            places: Vec::new(),
            parts: [0; PARTS],
        }
    }

    /// Examines the name that starts at `start`.
    ///
    /// # Errors
    /// It breaks RFC 1035 sections 2.3.4 or 4.1.4, or has more pointers than [`POINTERS_MAXIMUM`].
    pub fn at(&mut self, start: usize) -> Result<Known, BadName> {
        // Collect labels and pointers from the start up to a position that is known already.
        let mut count = 0;
        let (mut at, mut segment) = (start, start);
        // Where this part has to end: before the part with the pointer that led here.
        let mut limit = self.message.len();
        let mut name = loop {
            if let Some(known) = self.known_at(at).ok_or(BadName)? {
                // The known name was checked from its own start and limit, which may have allowed more.
                let leads_on = known.pointers > 0 && !self.ends_by(known.target, segment);
                if usize::from(known.end) > limit || leads_on {
                    return Err(BadName);
                }
                break known;
            }
            let length = self.message[at];
            if length == 0 {
                break Known {
                    end: Some(at + 1).filter(|end| *end <= limit).ok_or(BadName)? as u16,
                    ..ROOT
                };
            }
            *self.parts.get_mut(count).ok_or(BadName)? = at as u16;
            count += 1;
            if name::is_pointer(length) {
                if at + 2 > limit {
                    return Err(BadName);
                }
                limit = segment;
                segment = name::target(self.message, at, segment)?;
                at = segment;
            } else if length <= LABEL_MAXIMUM {
                at += 1 + usize::from(length);
            } else {
                return Err(BadName);
            }
        };
        for part in (0..count).rev() {
            name = self.prepend(usize::from(self.parts[part]), name)?;
        }
        Ok(name)
    }

    /// What is known of the name at a position; the outer `None` means beyond the message.
    fn known_at(&self, at: usize) -> Option<Option<Known>> {
        if at >= self.message.len() {
            return None;
        }
        let known = match self.places.get(at) {
            None => self.known.iter().find(|known| usize::from(known.at) == at),
            Some(&place) => usize::from(place).checked_sub(1).map(|place| &self.known[place]),
        };
        Some(known.copied())
    }

    /// Whether the first part of an examined name ends by `limit`.
    fn ends_by(&self, at: u16, limit: usize) -> bool {
        let known = self.known_at(usize::from(at)).flatten();
        // The root label is not recorded.
        known.map_or(usize::from(at) + 1, |known| usize::from(known.end)) <= limit
    }

    /// Records the name that begins with the label or pointer at `at` and continues as `rest`.
    fn prepend(&mut self, at: usize, rest: Known) -> Result<Known, BadName> {
        let length = self.message[at];
        let name = if name::is_pointer(length) {
            if rest.pointers == POINTERS_MAXIMUM {
                return Err(BadName);
            }
            Known {
                pointers: rest.pointers + 1,
                target: u16::from(length & 0x3f) << 8 | u16::from(self.message[at + 1]),
                end: at as u16 + 2,
                at: at as u16,
                ..rest
            }
        } else {
            let label = self
                .message
                .get(at..at + 1 + usize::from(length))
                .ok_or(BadName)?;
            Known {
                hash: extend(rest.hash, label),
                octets: rest.octets.checked_add(label.len() as u8).ok_or(BadName)?,
                at: at as u16,
                ..rest
            }
        };
        self.known.push(name);
        match self.places.get_mut(at) {
            Some(place) => *place = self.known.len() as u16,
            None if self.known.len() > FEW => self.index(),
            None => {}
        }
        Ok(name)
    }

    /// Builds the index by position: too many names are known for scanning.
    #[cold]
    fn index(&mut self) {
        self.places = vec![0; self.message.len()];
        for (place, known) in (1..).zip(&self.known) {
            self.places[usize::from(known.at)] = place;
        }
    }
}

/// The hash of a name that begins with `label`, its length octet included, followed by one whose hash is
/// `rest`.
fn extend(rest: u64, label: &[u8]) -> u64 {
    let mut lower = [0; 1 + LABEL_MAXIMUM as usize];
    let lower = &mut lower[..label.len()];
    lower.copy_from_slice(label);
    // Length octets are below 64 and ASCII capitals are above.
    lower.make_ascii_lowercase();
    let mut hasher = FixedState::with_seed(rest).build_hasher();
    hasher.write(lower);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::name::{Name, expand};
    use super::*;

    #[test]
    fn the_same_name_is_the_same_wherever_it_stands() {
        let message = b"............\x01a\x04test\0\x01A\xc0\x0e\xc0\x0c\x01b\xc0\x0e\xc0\x14";
        let mut names = Names::new(message);
        let mut at = |place| names.at(place).unwrap();
        let name = at(12);
        assert_eq!((name.octets, name.pointers), (8, 0));
        for same in [20, 24, 30] {
            assert_eq!((at(same).hash, at(same).octets), (name.hash, 8), "{same}");
        }
        assert_ne!(at(26).hash, name.hash, "another name");
        assert_ne!(at(14).hash, name.hash, "the rest of it");
        assert_eq!((at(30).pointers, at(20).pointers), (2, 1));
    }

    /// At 12 is a label that contains a zero, followed by a pointer into it: a name from 14, but none from
    /// 12, whether or not the name from 14 is known.
    #[test]
    fn what_is_known_does_not_make_a_wrong_name_right() {
        let message = b"............\x01\0\xc0\x0d";
        for known in [false, true] {
            let mut names = Names::new(message);
            assert!(!known || names.at(14).is_ok());
            assert_eq!(names.at(12), Err(BadName), "{known}");
            assert!(names.at(14).is_ok());
        }
    }

    /// A pointer leads to a label that extends over the pointer itself, and so to what follows it.
    #[test]
    fn what_a_pointer_leads_to_lies_before_it() {
        let whole = b"............\x01a\0\xc0\x0c\0\0";
        let reaching = b"............\x01a\x01\xc0\x0efourteen octet\0";
        for (message, known) in [(&whole[..], true), (reaching, false)] {
            let mut name = Name::ROOT;
            assert_eq!(expand(message, 15, &mut name).is_ok(), known);
            assert_eq!(Names::new(message).at(15).is_ok(), known);
            // Whether or not the target is known already.
            let mut names = Names::new(message);
            let _ = names.at(14);
            assert_eq!(names.at(15).is_ok(), known);
        }
    }

    proptest! {
        /// It accepts exactly the names that can be expanded, in whatever order they are examined, and two
        /// have the same hash if they expand to the same.
        #[test]
        fn names_are_those_that_expand(
            message in prop::collection::vec(prop_oneof![Just(0), Just(1), Just(2), Just(0xc0), 12_u8..40, any::<u8>()], 12..80),
            places in prop::collection::vec(0_usize..90, 1..40),
        ) {
            let mut names = Names::new(&message);
            let mut seen = std::collections::HashMap::new();
            for place in places {
                let mut name = Name::ROOT;
                let expanded = expand(&message, place, &mut name);
                let known = names.at(place);
                prop_assert_eq!(known.is_ok(), expanded.is_ok(), "at {}", place);
                if let Ok(known) = known {
                    prop_assert_eq!(usize::from(known.octets), name.as_bytes().len());
                    let text = name.to_string();
                    prop_assert_eq!(&*seen.entry(known.hash).or_insert_with(|| text.clone()), &text);
                }
            }
        }
    }
}
