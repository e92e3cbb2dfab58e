//! A file of test cases, and writing snapshots into it.

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
    /// `zones "example." …`: the zones that use the filter; by default the root.
    pub zones: Vec<String>,
    /// `config { … }`: none if the cases suit any configuration of the filter.
    pub config: Option<Vec<ConfigNode>>,
    /// `clock 1767225600000`: Unix time in milliseconds of the first case.
    pub clock: u64,
    /// `lookup "www.example" "A" { … }`: the answers to the filter's lookups.
    pub lookups: Lookups,
    /// `source "list" "FILE"`: the files for the filter's refresh before the first case.
    pub sources: Vec<SourceFile>,
    /// In the order in which one filter instance runs them all.
    pub cases: Vec<Case>,
}

/// One call of a filter, and its recorded result.
#[derive(Debug, Clone)]
pub struct Case {
    /// The filter's input.
    pub input: Input,
    /// The name in lowercase wire format.
    pub name: Vec<u8>,
    /// `given { … }`: the response's message, and details of the query.
    pub given: Given,
    /// `after="5s"`: the time since the previous case.
    pub after: Duration,
    /// The recorded result; none: not recorded yet.
    pub snapshot: Option<Snapshot>,
    /// The line as written, without its block.
    pub title: String,
    /// Its span, without its block.
    pub(super) head: Span,
    /// Its span, including its block.
    pub(super) whole: Span,
}

/// The record passed to a filter; times that depend on the clock are filled in when it runs.
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
    /// The `filter` block with the configuration of these cases.
    pub fn configured(&self, block: &config::Filter) -> config::Filter {
        let mut block = block.clone();
        if let Some(config) = &self.config {
            block.config = config.clone();
        }
        block
    }

    /// The text with these snapshots written into these cases (indices into [`TestCases::cases`]); all other
    /// text is unchanged.
    pub fn with_snapshots(&self, snapshots: &[(usize, &Snapshot)]) -> String {
        let mut text = self.source.text().to_owned();
        let mut snapshots = snapshots.to_vec();
        // From the end, so that earlier spans stay valid.
        snapshots.sort_by_key(|(index, _)| Reverse(*index));
        for (index, snapshot) in snapshots {
            let Some(case) = self.cases.get(index) else {
                continue;
            };
            // The `given` node stays as written.
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

    /// A snapshot reads back unchanged, and so does the rest of the text.
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
