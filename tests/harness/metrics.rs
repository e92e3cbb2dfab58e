//! A parser for as much of Prometheus' text format as the tests need.

use std::collections::{BTreeMap, BTreeSet};

/// All samples of one scrape.
pub struct Metrics {
    samples: Vec<Sample>,
    families: BTreeMap<String, Family>,
}

/// The metadata of a family.
#[derive(Default)]
struct Family {
    kind: String,
    described: bool,
}

/// A sample.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Including its suffix: `_total`, `_bucket`.
    pub name: String,
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl Metrics {
    /// Parses a scrape; a line that is neither comment nor sample is a failure.
    #[track_caller]
    pub fn parse(text: &str) -> Metrics {
        let mut samples = Vec::new();
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.split_whitespace();
                match (words.next(), words.next()) {
                    (Some("TYPE"), Some(name)) => {
                        families.entry(name.to_owned()).or_default().kind =
                            words.next().unwrap_or_default().to_owned();
                    }
                    (Some("HELP"), Some(name)) => {
                        families.entry(name.to_owned()).or_default().described = true
                    }
                    _ => {}
                }
            } else {
                samples.push(sample(line).unwrap_or_else(|| panic!("not a sample: {line}")));
            }
        }
        Metrics { samples, families }
    }

    /// Returns the sum of all samples with this name and these labels; 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// Whether there is a sample with this name and these labels.
    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.matching(name, labels).next().is_some()
    }

    /// Returns every value that a label has in samples of this name.
    pub fn values(&self, name: &str, label: &str) -> BTreeSet<String> {
        self.matching(name, &[])
            .filter_map(|sample| sample.labels.get(label).cloned())
            .collect()
    }

    /// Returns all samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the names of samples without a TYPE and a HELP.
    pub fn undescribed(&self) -> BTreeSet<&str> {
        let described = |name: &str| {
            self.families
                .get(name)
                .is_some_and(|family| family.described && !family.kind.is_empty())
        };
        let suffixes = ["_total", "_bucket", "_sum", "_count", "_info"];
        let known = |name: &str| {
            described(name)
                || suffixes
                    .iter()
                    .any(|suffix| name.strip_suffix(suffix).is_some_and(described))
        };
        self.samples
            .iter()
            .map(|sample| sample.name.as_str())
            .filter(|name| !known(name))
            .collect()
    }

    /// Returns the names of all families as in their samples: counters end in `_total`, infos in `_info`.
    pub fn families(&self) -> BTreeSet<String> {
        let suffix = |family: &Family| match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        self.families
            .iter()
            .map(|(name, family)| format!("{}{}", name.trim_end_matches("_total"), suffix(family)))
            .collect()
    }

    fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let equal =
                |(label, value): &(&str, &str)| sample.labels.get(*label).is_some_and(|found| found == value);
            sample.name == name && labels.iter().all(equal)
        })
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, value) = rest.rsplit_once('}')?;
            ((name, labels), value)
        }
        None => {
            let (name, value) = line.split_once(' ')?;
            ((name, ""), value)
        }
    };
    let mut labels = BTreeMap::new();
    let mut left = series.1;
    while !left.is_empty() {
        let (name, after) = left.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (_, '\\') => value.push(characters.next()?.1),
                (at, '"') => break at,
                (_, character) => value.push(character),
            }
        };
        labels.insert(name.to_owned(), value);
        left = after[end + 1..].trim_start_matches(',');
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    let well_formed = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    (well_formed(series.0) && !series.0.is_empty()).then(|| Sample {
        name: series.0.to_owned(),
        labels,
        value,
    })
}
