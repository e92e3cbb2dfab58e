//! Parses the subset of Prometheus's text format that our metrics use.

use std::collections::{BTreeSet, HashMap};

/// Samples by name.
#[derive(Debug, Default)]
pub struct Samples(HashMap<String, Vec<Sample>>);

/// The labels and value of a sample.
type Sample = (Vec<(String, String)>, f64);

impl Samples {
    /// Parses a page. Lines in another form are skipped.
    pub fn parse(page: &str) -> Samples {
        let mut samples = Samples::default();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, sample)) = sample(line) {
                samples.0.entry(name.to_owned()).or_default().push(sample);
            }
        }
        samples
    }

    /// The samples of this name with at least these labels.
    pub fn matching<'a>(
        &'a self,
        name: &str,
        wanted: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        let all = self.0.get(name).map_or(&[][..], Vec::as_slice);
        all.iter().filter(move |(labels, _)| {
            wanted
                .iter()
                .all(|(key, value)| labels.iter().any(|(k, v)| k == key && v == value))
        })
    }

    /// All values of a label in samples of this name.
    pub fn values(&self, name: &str, label: &str) -> BTreeSet<&str> {
        let samples = self.0.get(name).map_or(&[][..], Vec::as_slice).iter();
        let labels = samples.flat_map(|(labels, _)| labels);
        labels
            .filter(|(key, _)| key == label)
            .map(|(_, value)| &**value)
            .collect()
    }

    /// The sum of the matching samples.
    pub fn sum(&self, name: &str, wanted: &[(&str, &str)]) -> f64 {
        self.matching(name, wanted).map(|(_, value)| value).sum()
    }
}

fn sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, (labels, value)))
}

/// Splits labels up to the closing brace from the rest.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut octets = rest.char_indices();
        let end = loop {
            match octets.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match octets.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((key.to_owned(), value));
        text = rest[end..].trim_start_matches(',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let samples = Samples::parse(
            "# HELP a b\n# TYPE a counter\na{zone=\".\",server=\"[::1]:53\"} 3\na{zone=\"x\\\\032\\\"}, y\"} 4.5\nb 1e3\nbroken{\n\nc",
        );
        assert!((samples.sum("a", &[]) - 7.5).abs() < 1e-9);
        assert!((samples.sum("a", &[("zone", ".")]) - 3.0).abs() < 1e-9);
        assert!((samples.sum("a", &[("zone", "x\\032\"}, y")]) - 4.5).abs() < 1e-9);
        assert!((samples.sum("b", &[]) - 1000.0).abs() < 1e-9);
        assert!(samples.sum("c", &[]).abs() < 1e-9);
    }
}
