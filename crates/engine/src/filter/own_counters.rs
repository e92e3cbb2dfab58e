//! Counters that a filter defines itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// Counters by name and labels.
#[derive(Debug, Default)]
pub struct OwnCounters(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Keyed by the name, followed by each label as ` name=LENGTH value`. The key of a counter without labels
    /// is its name.
    series: BTreeMap<Box<str>, AtomicU64>,
    /// Bytes of all keys.
    octets: usize,
}

/// Label names with their values, ordered by name.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// A counter and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCount {
    /// Its name.
    pub name: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub count: u64,
}

/// Maximum counters of one filter: each is a time series, which monitoring keeps for good.
const SERIES: usize = 1000;

/// Maximum bytes of all their names, labels and values.
const OCTETS: usize = 128 << 10;

/// Maximum bytes of a name.
const NAME: usize = 64;

/// Maximum labels of a counter.
const LABELS: usize = 8;

/// Maximum bytes of a label's value.
const VALUE: usize = 128;

/// Labels that the metrics themselves add to each counter.
const TAKEN: [&str; 2] = ["filter", "name"];

impl OwnCounters {
    /// Adds to a counter. Returns false if a name is not valid in metrics (`[a-zA-Z_][a-zA-Z0-9_]*`),
    /// duplicate or reserved, something is too long, or there are too many.
    pub(super) fn add(&self, name: &str, labels: &[(String, String)], by: u64) -> bool {
        let key = match labels {
            [] => None,
            _ => match checked(labels) {
                Some(labels) => Some(key(name, &labels)),
                None => return false,
            },
        };
        let key = key.as_deref().unwrap_or(name);
        if let Some(count) = self.0.read().series.get(key) {
            count.fetch_add(by, Ordering::Relaxed);
            return true;
        }
        if !is_name(name) {
            return false;
        }
        let mut table = self.0.write();
        if let Some(count) = table.series.get(key) {
            count.fetch_add(by, Ordering::Relaxed);
            return true;
        }
        let octets = table.octets + key.len();
        if table.series.len() >= SERIES || octets > OCTETS {
            return false;
        }
        table.octets = octets;
        table.series.insert(key.into(), by.into());
        true
    }

    /// All counters, in order.
    pub fn snapshot(&self) -> Vec<OwnCount> {
        let table = self.0.read();
        let counts = table.series.iter().map(|(key, count)| {
            let (name, labels) = parts(key);
            let count = count.load(Ordering::Relaxed);
            OwnCount { name, labels, count }
        });
        counts.collect()
    }
}

/// The labels in order, so that their order does not matter; none: they are invalid.
fn checked(labels: &[(String, String)]) -> Option<Labels> {
    let sound = |(name, value): &(String, String)| {
        is_name(name) && !TAKEN.contains(&name.as_str()) && value.len() <= VALUE
    };
    if labels.len() > LABELS || !labels.iter().all(sound) {
        return None;
    }
    let mut labels: Labels = labels
        .iter()
        .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
        .collect();
    labels.sort_unstable();
    let twice = labels.windows(2).any(|pair| pair[0].0 == pair[1].0);
    (!twice).then_some(labels)
}

fn key(name: &str, labels: &Labels) -> String {
    let mut key = name.to_owned();
    for (name, value) in labels {
        key.push_str(&format!(" {name}={} {value}", value.len()));
    }
    key
}

/// The name and the labels that a key was made of.
fn parts(key: &str) -> (Box<str>, Labels) {
    let (name, mut rest) = key.split_once(' ').unwrap_or((key, ""));
    let mut labels = Vec::new();
    while let Some((label, value)) = rest.split_once('=')
        && let Some((length, value)) = value.split_once(' ')
        && let Some((value, others)) = length
            .parse()
            .ok()
            .and_then(|length| value.split_at_checked(length))
    {
        labels.push((label.into(), value.into()));
        rest = others.strip_prefix(' ').unwrap_or_default();
    }
    (name.into(), labels.into())
}

/// Whether a name is valid in metrics.
fn is_name(text: &str) -> bool {
    let mut characters = text.bytes();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == b'_')
        && text.len() <= NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn own_names_are_checked_and_bounded() {
        let own = OwnCounters::default();
        assert!(own.add("hits_total", &[], 2));
        assert!(own.add("hits_total", &[], 3));
        for bad in ["", "1st", "a-b", "a b", "é", "a\"", &"a".repeat(65)] {
            assert!(!own.add(bad, &[], 1), "{bad:?}");
            assert!(!own.add("hits_total", &labels(&[(bad, "x")]), 1), "{bad:?}");
        }
        for i in 1..SERIES {
            assert!(own.add(&format!("c{i}"), &[], 1));
        }
        assert!(!own.add("one_too_many", &[], 1));
        assert!(!own.add("hits_total", &labels(&[("one", "more")]), 1));
        assert!(own.add("hits_total", &[], 1), "known names go on counting");
        let snapshot = own.snapshot();
        assert_eq!(snapshot.len(), SERIES);
        assert!(
            snapshot
                .iter()
                .any(|own| (&*own.name, own.count) == ("hits_total", 6))
        );
    }

    #[test]
    fn labels_tell_counters_apart_in_any_order() {
        let own = OwnCounters::default();
        let (ab, ba) = ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]);
        assert!(own.add("n", &labels(&ab), 1) && own.add("n", &labels(&ba), 1));
        assert!(own.add("n", &[], 1) && own.add("n", &labels(&[("a", "1")]), 1));
        // A value cannot pose as another label.
        assert!(own.add("n", &labels(&[("a", "1 b=1 2")]), 1));
        let counts: Vec<_> = own
            .snapshot()
            .into_iter()
            .map(|own| (String::from(own.name), own.labels, own.count))
            .collect();
        let expected = [
            (&[][..], 1),
            (&[("a", "1")][..], 1),
            (&ab, 2),
            (&[("a", "1 b=1 2")], 1),
        ];
        let boxed = |(name, value): &(&str, &str)| ((*name).into(), (*value).into());
        let expected = expected.map(|(labels, count)| {
            let labels: Labels = labels.iter().map(boxed).collect();
            ("n".to_owned(), labels, count)
        });
        assert_eq!(counts, expected);
        for bad in [
            &[("a", "1"), ("a", "2")][..],
            &[("name", "x")],
            &[("filter", "x")],
            &[("a", &"v".repeat(VALUE + 1))],
        ] {
            assert!(!own.add("n", &labels(bad), 1), "{bad:?}");
        }
        let many: Vec<_> = (0..=LABELS).map(|i| (format!("l{i}"), String::new())).collect();
        assert!(!own.add("n", &many, 1) && own.add("n", &many[1..], 1));
    }

    #[test]
    fn octets_are_bounded() {
        let own = OwnCounters::default();
        let added = (0..SERIES).filter(|i| {
            let value = format!("{i:0>128}");
            let many: Vec<_> = (0..LABELS).map(|i| (format!("l{i}"), value.clone())).collect();
            own.add("n", &many, 1)
        });
        let added = added.count();
        assert!((100..OCTETS / (LABELS * VALUE)).contains(&added), "{added}");
    }
}
