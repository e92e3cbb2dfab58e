//! Many names in little memory: twelve octets each for 93 bits of their hashes, and half of one for where to look.
//!
//! A name that is on no list is taken for one of a million that are with a probability of less than 2^-64 if it has the length of most:
//! less than 8 / 2^61 for the first number ([`hash`](super::hash)), 8 / 2^32 for half of the second, a million times, for four labels. Of
//! the longest names, with 128 in the place of 8 and of 4, it is 2^-52.

use super::hash::{Hash, Names};

/// Names of a bucket, on average.
const BUCKET: usize = 8;

/// Bits of a hash's numbers.
const BITS: u32 = 61;

/// What a name of a list stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Itself.
    Itself,
    /// All below it.
    Below,
    /// Both.
    Both,
}

impl Reach {
    /// A bit for itself, and one for all below.
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

/// Bits of what a name stands for.
const REACH: u32 = 2;

/// Names that do not change any more.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Where each bucket begins, and where the last one ends.
    starts: Box<[u32]>,
    /// The first number of each name's hash, sorted, and behind it what the name stands for.
    first: Box<[u64]>,
    /// The low half of the second.
    second: Box<[u32]>,
}

/// There is no room for more.
#[derive(Debug)]
pub(crate) struct Full;

impl Table {
    /// How many names it has.
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// Octets that it takes.
    pub fn octets(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.first) + size_of_val(&*self.second)
    }

    /// Where the name begins within another one that stands for it: itself, or one above it; none: no name does.
    #[inline]
    pub fn find(&self, names: &Names) -> Option<usize> {
        if self.first.is_empty() {
            return None;
        }
        let mut found = names.each().filter(|(hash, _, is_last)| {
            let wanted = if *is_last { ITSELF } else { BELOW };
            self.reach(*hash) & wanted != 0
        });
        found.next().map(|(_, start, _)| start)
    }

    /// What a name stands for.
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

/// The bucket of a number, of so many.
#[inline]
fn bucket(number: u64, count: usize) -> usize {
    ((u128::from(number) * count as u128) >> BITS) as usize
}

/// A table that is being made.
#[derive(Default)]
pub(crate) struct Builder(Vec<(u64, u32)>);

impl Builder {
    /// Octets that it takes, without its table.
    pub fn octets(&self) -> usize {
        self.0.len() * size_of::<(u64, u32)>()
    }

    /// Adds a name.
    pub fn push(&mut self, Hash([first, second]): Hash, reach: Reach) {
        self.0.push((first << REACH | reach.bits(), second as u32));
    }

    /// The table.
    ///
    /// # Errors
    /// When there are more names than it can count.
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

    /// What of a name a table has.
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
        /// Each name that is listed is found, and no other.
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
