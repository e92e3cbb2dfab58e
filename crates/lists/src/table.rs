//! Many names in little memory: twelve bytes per name for 93 bits of its hash, and half a byte for the index.
//!
//! A name that is on no list is mistaken for one of a million listed names with a probability below 2^-64 if
//! it has the usual length: less than 8 / 2^61 for the first number ([`hash`](super::hash)), times 8 / 2^32
//! for half of the second, times a million names, times four labels. For the longest names, with 128 in place
//! of 8 and of 4, it is 2^-52.

use super::hash::{Hash, Names};

/// Average number of names per bucket.
const BUCKET: usize = 8;

/// Bits of each number of a hash.
const BITS: u32 = 61;

/// Which names an entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The name itself.
    Itself,
    /// All names below it.
    Below,
    /// The name and all names below it.
    Both,
}

impl Reach {
    /// Returns one bit for the name itself, and one for all names below it.
    fn bits(self) -> u64 {
        match self {
            Reach::Itself => ITSELF,
            Reach::Below => BELOW,
            Reach::Both => ITSELF | BELOW,
        }
    }
}

const ITSELF: u64 = 1;
const BELOW: u64 = 2;

/// Bits that encode a [`Reach`].
const REACH: u32 = 2;

/// An immutable set of names.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The start of each bucket, followed by the end of the last one.
    starts: Box<[u32]>,
    /// The first number of each hash, sorted, shifted left by `REACH` with the entry's reach below it.
    first: Box<[u64]>,
    /// The low half of the second number.
    second: Box<[u32]>,
}

/// The table cannot hold more names.
#[derive(Debug)]
pub(crate) struct Full;

impl Table {
    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// Returns its size in bytes.
    pub fn octets(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.first) + size_of_val(&*self.second)
    }

    /// Returns the offset in the name of the matching entry, which is the name itself or one above it.
    #[inline]
    pub fn find(&self, names: &Names) -> Option<usize> {
        self.matches(names)?.next()
    }

    /// The same for the longest matching entry.
    pub fn closest(&self, names: &Names) -> Option<usize> {
        self.matches(names)?.last()
    }

    /// Yields the offset of each matching entry, from the top down; `None` if the table is empty.
    #[inline]
    fn matches(&self, names: &Names) -> Option<impl Iterator<Item = usize>> {
        if self.first.is_empty() {
            return None;
        }
        let found = names.each().filter(move |(hash, _, is_last)| {
            let wanted = if *is_last { ITSELF } else { BELOW };
            self.reach(*hash) & wanted != 0
        });
        Some(found.map(|(_, start, _)| start))
    }

    /// Returns the reach bits of a name; 0 if it is not in the table.
    #[inline]
    fn reach(&self, Hash([first, second]): Hash) -> u64 {
        let bucket = bucket(first, self.starts.len() - 1);
        let Some(&[start, end]) = self.starts.get(bucket..bucket + 2) else {
            return 0;
        };
        let (start, end) = (start as usize, end as usize);
        let mut bits = 0;
        for (at, known) in self.first[start..end].iter().enumerate() {
            if known >> REACH == first && self.second[start + at] == second as u32 {
                bits |= known;
            }
        }
        bits
    }
}

/// Returns the bucket, out of `count`, that a number belongs to.
#[inline]
fn bucket(number: u64, count: usize) -> usize {
    ((u128::from(number) * count as u128) >> BITS) as usize
}

/// A table under construction.
#[derive(Default)]
pub(crate) struct Builder(Vec<(u64, u32)>);

impl Builder {
    /// Returns the bytes collected so far, without the table made from them.
    pub fn octets(&self) -> usize {
        self.0.len() * size_of::<(u64, u32)>()
    }

    /// Adds a name.
    pub fn push(&mut self, Hash([first, second]): Hash, reach: Reach) {
        self.0.push((first << REACH | reach.bits(), second as u32));
    }

    /// Builds the table.
    ///
    /// # Errors
    /// When there are more names than a `u32` can count.
    pub fn finish(mut self) -> Result<Table, Full> {
        u32::try_from(self.0.len()).map_err(|_| Full)?;
        self.0.sort_unstable();
        self.0.dedup();
        let count = self.0.len().div_ceil(BUCKET);
        let mut starts = Vec::with_capacity(count + 1);
        for (at, (first, _)) in self.0.iter().enumerate() {
            let bucket = bucket(first >> REACH, count);
            starts.resize((bucket + 1).max(starts.len()), at as u32);
        }
        starts.resize(count + 1, self.0.len() as u32);
        Ok(Table {
            starts: starts.into(),
            first: self.0.iter().map(|(first, _)| *first).collect(),
            second: self.0.iter().map(|(_, second)| *second).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dns::name::Name;

    fn hash(text: &str) -> Hash {
        Hash::parse(text.as_bytes()).unwrap()
    }

    /// Returns the table's entry that matches a name.
    fn find(table: &Table, text: &str) -> Option<String> {
        let name = Name::parse(text).unwrap();
        let start = table.find(&Names::of(name.as_bytes()))?;
        Some(crate::dns::name::Text(&name.as_bytes()[start..]).to_string())
    }

    fn table(names: &[(&str, Reach)]) -> Table {
        let mut builder = Builder::default();
        names
            .iter()
            .for_each(|(name, reach)| builder.push(hash(name), *reach));
        builder.finish().unwrap()
    }

    #[test]
    fn a_name_stands_for_what_it_says() {
        let names = [
            ("itself.example", Reach::Itself),
            ("below.example", Reach::Below),
            ("both.example", Reach::Both),
            ("twice.example", Reach::Itself),
            ("twice.example", Reach::Below),
            ("deep.both.example", Reach::Itself),
        ];
        let table = table(&names);
        for (name, found) in [
            ("itself.example", Some("itself.example.")),
            ("a.itself.example", None),
            ("below.example", None),
            ("a.b.below.example", Some("below.example.")),
            ("both.example", Some("both.example.")),
            ("a.b.both.example", Some("both.example.")),
            ("deep.both.example", Some("both.example.")),
            ("twice.example", Some("twice.example.")),
            ("a.twice.example", Some("twice.example.")),
            ("xboth.example", None),
            ("example", None),
            (".", None),
        ] {
            assert_eq!(find(&table, name).as_deref(), found, "{name}");
        }
        assert_eq!(find(&Table::default(), "a.example"), None);
    }

    #[test]
    fn a_name_takes_less_than_thirteen_octets() {
        let mut builder = Builder::default();
        (0..100_000).for_each(|number| builder.push(hash(&format!("name-{number}.example")), Reach::Itself));
        assert_eq!(builder.octets(), 1_600_000);
        let table = builder.finish().unwrap();
        assert_eq!(table.len(), 100_000);
        assert!(table.octets() < 13 * table.len(), "{}", table.octets());
        assert!((0..100_000).all(|number| find(&table, &format!("name-{number}.example")).is_some()));
        assert!((100_000..200_000).all(|number| find(&table, &format!("name-{number}.example")).is_none()));
    }

    proptest! {
        /// Each listed name is found, and no other.
        #[test]
        fn what_is_listed_is_found_and_nothing_else(
            listed in prop::collection::vec(("[ab]{1,2}(\\.[ab]{1,2}){0,3}", 0..3u8), 0..60),
            asked in prop::collection::vec("[ab]{1,2}(\\.[ab]{1,2}){0,4}", 1..60),
        ) {
            let reach = |which: u8| [Reach::Itself, Reach::Below, Reach::Both][usize::from(which)];
            let listed: Vec<(&str, Reach)> = listed.iter().map(|(name, which)| (&**name, reach(*which))).collect();
            let table = table(&listed);
            for name in &asked {
                let stands = |(known, reach): &(&str, Reach)| match name.strip_suffix(known) {
                    Some("") => *reach != Reach::Below,
                    Some(below) => below.ends_with('.') && *reach != Reach::Itself,
                    None => false,
                };
                prop_assert_eq!(find(&table, name).is_some(), listed.iter().any(stands), "{}", name);
            }
        }
    }
}
