//! What is in a file of test cases, and writing snapshots into it.

use std::cmp::Reverse;
use std::time::Duration;

use super::given::Given;
use super::lookups::Lookups;
use super::snapshot::Snapshot;
use crate::config::{self, ConfigNode, Source, Span};
use crate::filter::{self, SourceFile};

/// A file of test cases.
#[derive(Debug, Clone)]
pub struct TestCases {
    /// Its text.
    pub source: Source,
    /// `zones "example." …`: the zones that use the filter; the root unless written.
    pub zones: Vec<String>,
    /// `config { … }`: none, if the cases are for whatever configuration the filter has.
    pub config: Option<Vec<ConfigNode>>,
    /// `clock 1767225600000`: Unix time in milliseconds of the first case.
    pub clock: u64,
    /// `lookup "www.example" "A" { … }`: what the filter's lookups come to.
    pub lookups: Lookups,
    /// `source "list" "FILE"`: what the filter's data is made of before the first case.
    pub sources: Vec<SourceFile>,
    /// In the order in which they are run, all by the same filter instance.
    pub cases: Vec<Case>,
}

/// One call of a filter, and what it said.
#[derive(Debug, Clone)]
pub struct Case {
    /// What the filter is given.
    pub input: Input,
    /// The name in wire format, lowercased.
    pub name: Vec<u8>,
    /// `given { … }`: the response's message, and details of the query.
    pub given: Given,
    /// `after="5s"`: how long after the case before.
    pub after: Duration,
    /// What the filter said when it was last recorded; none: that is still to be done.
    pub snapshot: Option<Snapshot>,
    /// The line as it is written, without its block.
    pub title: String,
    /// Where it stands, without its block.
    pub(super) head: Span,
    /// Where it stands, with its block.
    pub(super) whole: Span,
}

/// The record that a filter is given; times that depend on the clock are filled in when it is.
#[derive(Debug, Clone, Copy)]
pub enum Input {
    /// `query`: the query phase.
    Query(filter::Query),
    /// `response`: the response phase.
    Response(filter::Response),
    /// `event`: the event phase.
    Event(filter::Event),
}

impl TestCases {
    /// The `filter` block with the configuration that the cases are for.
    pub fn configured(&self, block: &config::Filter) -> config::Filter {
        let mut block = block.clone();
        if let Some(config) = &self.config {
            block.config = config.clone();
        }
        block
    }

    /// The text with these snapshots written into these cases (indices into [`TestCases::cases`]), and all else as
    /// it was.
    pub fn with_snapshots(&self, snapshots: &[(usize, &Snapshot)]) -> String {
        let mut text = self.source.text().to_owned();
        let mut snapshots = snapshots.to_vec();
        // From the end, so that places before stay where they are.
        snapshots.sort_by_key(|(index, _)| Reverse(*index));
        for (index, snapshot) in snapshots {
            let Some(case) = self.cases.get(index) else {
                continue;
            };
            // What is given stays as it is written.
            let lines = case.given.text.iter().cloned().chain(snapshot.lines());
            let block: String = lines.map(|line| format!("    {line}\n")).collect();
            text.replace_range(case.head.end()..case.whole.end(), &format!(" {{\n{block}}}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigValue;

    fn parse(text: &str) -> TestCases {
        TestCases::parse(Source::new("test", text)).unwrap()
    }

    /// A snapshot reads back as it was, and the rest of the text stays.
    #[test]
    fn snapshots_are_written_into_their_cases() {
        let text = "// first\nquery \"a\" \"A\" {\n    pass // as before\n}\n// second\nquery \"b\" \"A\"\n\
                    query \"c\" \"A\" { pass }; query \"d\" \"A\" { drop }\n";
        let cases = parse(text);
        let node = |name: &str, parent, argument: &str| ConfigNode {
            name: name.to_owned(),
            arguments: vec![ConfigValue::Text(argument.into())],
            properties: vec![("ttl".to_owned(), ConfigValue::Integer(-3))],
            parent,
            span: Span::default(),
            argument_spans: Vec::new(),
            property_spans: Vec::new(),
        };
        let seen = Snapshot::from(vec![
            node("answer", None, "\u{1b}\"\\\n"),
            node("1 x", Some(0), "y"),
            node("log", None, "z"),
        ]);
        let written = cases.with_snapshots(&[(0, &seen), (1, &seen), (2, &seen)]);
        let again = parse(&written.replace("1 x", "record").replace("\"record\"", "record"));
        let lines = |case: usize| again.cases[case].snapshot.as_ref().unwrap().lines();
        let expected = seen.lines().join("\n").replace("\"1 x\"", "record");
        for case in 0..3 {
            assert_eq!(lines(case).join("\n"), expected);
        }
        assert_eq!(lines(3), ["drop"]);
        assert!(
            written.starts_with("// first\n") && written.contains("\n// second\nquery \"b\""),
            "{written}"
        );
    }
}
