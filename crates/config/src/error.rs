//! The mistakes in a configuration, and where they are.
//!
//! A [`Report`] holds every mistake in one file, in order of position, and renders each with its span
//! underlined. The caller chooses whether to use colour; `Display` never does.
//!
//! Rendering is bounded whatever the file contains: the number of mistakes, the text around each, and the
//! total size. miette, which draws it, panics on a column that does not fit into 16 bits.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SpanContents,
};

use crate::plain_text::is_plain;

/// Columns of a rendered report.
const WIDTH: usize = 100;

/// The most mistakes rendered; a file with more is probably the wrong file.
const MOST_RENDERED: usize = 100;

/// Bytes after which no further mistake is rendered.
const MOST_BYTES: usize = 256 << 10;

/// The most bytes of text shown before the underlined span, in it, and after it. Longer lines are cut.
const AROUND: usize = 400;

/// The most characters of a message, label or help. A list of valid words is the longest of these.
const MOST_WORDS: usize = 4000;

/// The text of a configuration and the name it is shown under; cheap to clone. Included files are appended to
/// the text, so that a [`Span`] identifies both the file and the position in it.
#[derive(Clone)]
pub struct Source(Arc<NamedText>);

struct NamedText {
    text: String,
    /// The name of each file and the offset of its text; at least one, in order.
    parts: Vec<(String, usize)>,
}

impl Source {
    /// `name` is shown in errors; usually it is the path of the file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source(Arc::new(NamedText {
            text: text.into(),
            parts: vec![(name.into(), 0)],
        }))
    }

    /// Returns a copy with another file appended, and the offset of that file's first byte.
    pub fn with(&self, name: impl Into<String>, text: &str) -> (Source, usize) {
        let start = self.text().len();
        let mut parts = self.0.parts.clone();
        parts.push((name.into(), start));
        let text = [self.text(), text].concat();
        (Source(Arc::new(NamedText { text, parts })), start)
    }

    /// The name of the first file, which errors show before line and column if nothing is included.
    pub fn name(&self) -> &str {
        &self.0.parts[0].0
    }

    /// The whole text, including that of included files.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The number of files.
    pub(crate) fn files(&self) -> usize {
        self.0.parts.len()
    }

    /// The line on which `span` begins, counted from 1 in its file.
    pub fn line(&self, span: Span) -> usize {
        let (_, part) = self.part(span.start);
        let end = span.start.clamp(part.start, part.end);
        1 + self.text().as_bytes()[part.start..end]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
    }

    /// The file that contains an offset: its name and the range of its text.
    pub fn part(&self, offset: usize) -> (&str, Range<usize>) {
        let parts = &self.0.parts;
        let index = parts.partition_point(|(_, start)| *start <= offset).max(1) - 1;
        let end = parts
            .get(index + 1)
            .map_or(self.text().len(), |(_, start)| *start);
        (&parts[index].0, parts[index].1..end)
    }
}

impl Default for Source {
    fn default() -> Source {
        Source::new("", "")
    }
}

impl SourceCode for Source {
    fn read_span<'a>(
        &'a self,
        span: &miette::SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let (name, part) = self.part(span.offset());
        let inside = span.offset().saturating_sub(part.start);
        let length = span.len().min(part.len() - inside.min(part.len()));
        let text = &self.text()[part.clone()];
        let found = text.read_span(&(inside, length).into(), lines_before, lines_after)?;
        let shown = found.span();
        let whole = shown.offset()..shown.offset() + shown.len();
        let start = text
            .floor_char_boundary(inside.saturating_sub(AROUND))
            .max(whole.start);
        let end = text
            .ceil_char_boundary(inside + length + AROUND)
            .min(whole.end)
            .max(start);
        // The text cut off before it: whole lines, or the start of one line.
        let cut = &text[whole.start..start];
        let (lines, column) = match cut.rsplit_once('\n') {
            Some((lines, begun)) => (lines.matches('\n').count() + 1, begun.len()),
            None => (0, found.column() + cut.len()),
        };
        Ok(Box::new(MietteSpanContents::new_named(
            name.to_owned(),
            &text.as_bytes()[start..end],
            (part.start + start, end - start).into(),
            found.line() + lines,
            column,
            found.line_count(),
        )))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({:?}, {} bytes)", self.name(), self.text().len())
    }
}

/// A byte range in a [`Source`]. If empty, a position between two characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Length in bytes.
    pub length: usize,
}

impl Span {
    /// Whether `other` lies within this span.
    pub(crate) fn includes(self, other: Span) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// Offset of the first byte after the span.
    pub fn end(self) -> usize {
        self.start.saturating_add(self.length)
    }

    /// The first `most` bytes of the span.
    fn cut(self, most: usize) -> Span {
        let length = self.length.min(most);
        Span { length, ..self }
    }

    /// The span limited to the length of `text`, so that rendering cannot fail.
    fn within(self, text: &str) -> Span {
        let length = text.len();
        (self.start.min(length)..self.end().min(length)).into()
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Span {
        Span {
            start: range.start,
            length: range.end.saturating_sub(range.start),
        }
    }
}

impl From<miette::SourceSpan> for Span {
    fn from(span: miette::SourceSpan) -> Span {
        Span {
            start: span.offset(),
            length: span.len(),
        }
    }
}

impl From<Span> for miette::SourceSpan {
    fn from(span: Span) -> miette::SourceSpan {
        (span.start, span.length).into()
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is underlined.
    pub span: Span,
    /// What is wrong, as a sentence without a full stop.
    pub message: String,
    /// A few words beside the underlined span; may be empty.
    pub label: String,
    /// What would be right; may be empty.
    pub help: String,
    /// A related place and its label, such as the first of two duplicates.
    pub other: Option<(Span, String)>,
    /// Whether it is in a file that other programs write for this machine, such as a resolv.conf: on another
    /// machine, there may be none.
    pub local: bool,
}

impl Diagnostic {
    /// Makes a mistake without label, help or other place.
    pub fn new(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            span,
            message: message.into(),
            label: String::new(),
            help: String::new(),
            other: None,
            local: false,
        }
    }

    /// Sets the label beside the underlined span.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Sets the help.
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = help.into();
        self
    }

    /// Marks it as in a file of this machine.
    pub(crate) fn local(mut self) -> Diagnostic {
        self.local = true;
        self
    }

    /// Sets a second place to point at.
    pub fn other(mut self, span: Span, label: impl Into<String>) -> Diagnostic {
        self.other = Some((span, label.into()));
        self
    }
}

/// Every mistake in a configuration; at least one.
#[derive(Debug, Clone)]
pub struct Report {
    source: Source,
    diagnostics: Vec<Diagnostic>,
    files: Vec<PathBuf>,
}

impl Report {
    /// Sorts `diagnostics` by position. An empty list becomes one mistake without a place: something (a
    /// filter, say) rejected the configuration without giving a reason, and the report should say so.
    pub fn new(source: Source, mut diagnostics: Vec<Diagnostic>) -> Report {
        if diagnostics.is_empty() {
            let problem = "rejected, and no reason was given";
            diagnostics.push(Diagnostic::new(Span::default(), problem));
        }
        diagnostics.sort_by_key(|diagnostic| diagnostic.span.start);
        Report {
            source,
            diagnostics,
            files: Vec::new(),
        }
    }

    /// Adds files that were read, or could not be.
    pub fn with_files(mut self, files: &[PathBuf]) -> Report {
        self.files.extend_from_slice(files);
        self
    }

    /// The files that the configuration depends on, as far as it was read: one of them has to be corrected.
    /// Mistakes that are only found after that come without them.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The text that the mistakes are in.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The mistakes, in order of position; at least one.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// The line of each mistake, counted from 1, in the order of [`diagnostics`](Self::diagnostics).
    pub fn lines(&self) -> Vec<usize> {
        let spans = self.diagnostics.iter().map(|diagnostic| diagnostic.span);
        spans.map(|span| self.source.line(span)).collect()
    }

    /// Renders the report as text that ends in a newline, with ANSI colours if `colour` is set.
    pub fn render(&self, colour: bool) -> String {
        let theme = match colour {
            true => GraphicalTheme::unicode(),
            false => GraphicalTheme::unicode_nocolor(),
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_width(WIDTH);
        let (mut out, mut rendered) = (String::new(), 0);
        for (index, diagnostic) in self.diagnostics.iter().take(MOST_RENDERED).enumerate() {
            if out.len() > MOST_BYTES {
                break;
            }
            if index > 0 {
                out.push('\n');
            }
            rendered = index + 1;
            let before = out.len();
            let shown = Shown {
                diagnostic: printable(diagnostic, &self.source),
                source: &self.source,
            };
            if handler.render_report(&mut out, &shown).is_err() {
                // Only a span outside the text can fail, which `Shown` prevents; even so, report the mistake.
                out.truncate(before);
                let (name, line) = (self.source.name(), self.source.line(diagnostic.span));
                out.push_str(&format!("  × {name}:{line}: {}\n", shown.diagnostic.message));
            }
        }
        if let Some(more @ 1..) = self.diagnostics.len().checked_sub(rendered) {
            out.push_str(&format!("\n  … and {more} more\n"));
        }
        out
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

/// A copy with control characters replaced and long texts cut. Messages may come from a filter, which must
/// not be able to send escape sequences to the operator's terminal.
fn printable(diagnostic: &Diagnostic, source: &Source) -> Diagnostic {
    let clean = |text: &str| -> String {
        let keep = |c: char| c == '\n' || is_plain(c);
        let mut rest = text.chars();
        let shown = rest.by_ref().take(MOST_WORDS);
        let mut clean: String = shown
            .map(|c| if keep(c) { c } else { char::REPLACEMENT_CHARACTER })
            .collect();
        if rest.next().is_some() {
            clean.push('…');
        }
        clean
    };
    let span = diagnostic.span.cut(AROUND);
    let mut help = clean(&diagnostic.help);
    let mut other = diagnostic
        .other
        .as_ref()
        .map(|(span, label)| (span.cut(AROUND), label.as_str()));
    // If the two places are in different files or far apart, only the one with the mistake is shown.
    if let Some((place, label)) = other
        && (source.part(place.start).1 != source.part(span.start).1
            || place.start.abs_diff(span.start) > AROUND)
    {
        let (name, line) = (source.part(place.start).0, source.line(place));
        let before = if help.is_empty() { "" } else { "; " };
        help = format!("{help}{before}{}: {name}:{line}", clean(label));
        other = None;
    }
    Diagnostic {
        span,
        message: clean(&diagnostic.message),
        label: clean(&diagnostic.label),
        help,
        other: other.map(|(span, label)| (span, clean(label))),
        local: diagnostic.local,
    }
}

/// A diagnostic and its text, in the form miette expects.
#[derive(Debug)]
struct Shown<'a> {
    diagnostic: Diagnostic,
    source: &'a Source,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let help = &self.diagnostic.help;
        (!help.is_empty()).then(|| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        // A file that could not be read has no text.
        (!self.source.text().is_empty()).then_some(self.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let text = self.source.text();
        if text.is_empty() {
            return None;
        }
        let label = Some(self.diagnostic.label.clone()).filter(|label| !label.is_empty());
        let primary = LabeledSpan::new_primary_with_span(label, self.diagnostic.span.within(text));
        let other = self.diagnostic.other.as_ref();
        let other =
            other.map(|(span, label)| LabeledSpan::new_with_span(Some(label.clone()), span.within(text)));
        Some(Box::new(std::iter::once(primary).chain(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, diagnostics: Vec<Diagnostic>) -> Report {
        Report::new(Source::new("test.kdl", text), diagnostics)
    }

    #[test]
    fn mistakes_are_shown_in_order_of_position_in_their_files() {
        let (source, start) = Source::new("main.kdl", "one\ntwo\n").with("other.kdl", "three\nfour\n");
        let four = start + 6..start + 10;
        let report = Report::new(
            source,
            vec![
                Diagnostic::new(four.into(), "fourth").other((4..7).into(), "second"),
                Diagnostic::new((4..7).into(), "second"),
                Diagnostic::new((0..3).into(), "first"),
            ],
        );
        assert_eq!(report.lines(), [1, 2, 2]);
        let shown = report.to_string();
        let in_order = ["main.kdl:1:1", "main.kdl:2:1", "other.kdl:2:1"];
        let places = in_order.map(|part| shown.find(part).unwrap_or_else(|| panic!("{part}: {shown}")));
        assert!(places.is_sorted(), "{shown}");
        let first_is_named = shown.contains("help: second: main.kdl:2");
        assert!(shown.contains("four") && first_is_named, "{shown}");
    }

    #[test]
    fn spans_outside_of_the_text_are_cut() {
        for span in [100..200, 2..usize::MAX, 4..4] {
            let shown = report("one\n", vec![Diagnostic::new(span.into(), "somewhere")]).to_string();
            assert!(shown.contains("somewhere"), "{shown}");
        }
    }

    #[test]
    fn a_rejection_without_a_reason_is_still_a_report() {
        assert_eq!(report("one\n", Vec::new()).diagnostics().len(), 1);
    }

    #[test]
    fn messages_cannot_carry_escape_sequences() {
        let hostile = Diagnostic::new((0..3).into(), "\u{1b}[2Jred")
            .label("\u{7}")
            .help("\u{9b}\u{202e}");
        let shown = report("one\n", vec![hostile]).to_string();
        let not_plain = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'];
        assert!(!shown.contains(not_plain), "{shown:?}");
    }

    #[test]
    fn a_flood_of_mistakes_is_counted_instead_of_shown() {
        let flood = |count: usize| report("one\n", vec![Diagnostic::new(Span::default(), "no"); count]);
        assert!(!flood(100).to_string().contains("more"));
        assert!(flood(103).to_string().ends_with("… and 3 more\n"));
        assert_eq!(flood(103).lines().len(), 103);
    }

    /// Columns above 65,535 once made miette panic, which ended the process.
    #[test]
    fn a_mistake_far_along_its_line_is_shown_with_what_is_around_it() {
        for fill in ["a", "é", "\t", "漢", "e\u{301}"] {
            let before = fill.repeat(200_000);
            let text = format!("first\n{before}wrong{before}\nlast\n");
            let start = text.find("wrong").unwrap();
            let shown = report(&text, vec![Diagnostic::new((start..start + 5).into(), "no")]).to_string();
            assert!(
                shown.contains("wrong") && shown.len() < 32_768,
                "{} bytes",
                shown.len()
            );
            let column = start - "first\n".len() + 1;
            assert!(shown.contains(&format!("test.kdl:2:{column}")), "{shown}");
        }
    }

    /// Two distant places on one line, and a span as long as the file.
    #[test]
    fn what_is_long_or_far_apart_is_cut() {
        let text = format!("one {} two\n", "x".repeat(300_000));
        let two = text.find("two").unwrap();
        let far = Diagnostic::new((two..two + 3).into(), "no").other((0..3).into(), "the first");
        let shown = report(&text, vec![far]).to_string();
        assert!(
            shown.contains("the first: test.kdl:1") && shown.len() < 32_768,
            "{shown}"
        );
        let long = Diagnostic::new((0..text.len()).into(), "n".repeat(1 << 20));
        let shown = report(&text, vec![long]).to_string();
        assert!(shown.len() < 65_536, "{} bytes", shown.len());
    }

    /// The log drops messages larger than 1 MiB, so the mistakes would have been lost.
    #[test]
    fn many_mistakes_of_one_line_are_a_short_report() {
        let text = format!("zone {}\n", "\"a..b\" ".repeat(10_000));
        let mistakes = (0..10_000)
            .map(|index| Diagnostic::new((5 + 7 * index..11 + 7 * index).into(), "an empty label"));
        let shown = report(&text, mistakes.collect()).to_string();
        assert!(shown.len() < 1 << 19, "{} bytes", shown.len());
        assert!(shown.ends_with(" more\n"), "{}", &shown[shown.len() - 100..]);
    }

    #[test]
    fn colour_is_only_there_when_asked_for() {
        let report = report("one\n", vec![Diagnostic::new((0..3).into(), "no")]);
        assert!(!report.render(false).contains('\u{1b}'));
        assert!(report.render(true).contains('\u{1b}'));
    }
}
