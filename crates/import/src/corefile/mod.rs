//! Translates CoreDNS's configuration: reads a Corefile as CoreDNS does, and writes KDL.
//!
//! [`blocks`] reads server blocks, [`words`] maps each plugin and option, and [`translate`](fn@translate)
//! writes the configuration. What cannot be translated is an error that points at the word; nothing is
//! dropped.

#![allow(
    clippy::result_large_err,
    reason = "a mistake is made once for each word, while a file is read"
)]

mod blocks;
mod document;
mod draft;
mod file;
mod filters;
mod forward;
mod key;
mod kubernetes;
mod options;
mod rewrite;
mod sites;
mod template;
mod tokens;
mod transfer;
mod translate;
mod values;
mod view;
mod words;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::config::{Diagnostic, Report, Source, Span, read_source};

use blocks::Corefile;
use document::write_comment;

pub use document::Node;
pub use options::Options;
pub use words::table;

/// A configuration equivalent to a Corefile.
#[derive(Debug)]
pub struct Translation {
    /// The configuration in KDL.
    pub text: String,
    /// Every file read besides the Corefile itself, the folders searched for files, and the files awaited.
    pub files: Vec<PathBuf>,
    /// What could not be translated; the blocks concerned refuse all queries.
    pub refused: Option<Report>,
    /// The text to check: `text`, as it would be read without the files that are set aside.
    pub checked: String,
    /// Mistakes in files of this machine, which are set aside.
    aside: Vec<Diagnostic>,
    /// The Corefile and its imports.
    corefile: Corefile,
    /// Ranges of the text, and the spans they come from.
    origins: Vec<(Range<usize>, Span)>,
}

impl Translation {
    /// Maps mistakes in the configuration to the words of the Corefile that caused them.
    pub fn retold(&self, report: &Report) -> Report {
        let retell = |diagnostic: &Diagnostic| {
            let at = diagnostic.span.start;
            let origin = self.origins.iter().find(|(part, _)| part.contains(&at));
            let line = self.text[..at.min(self.text.len())].lines().count().max(1) - 1;
            let written = self.text.lines().nth(line).unwrap_or_default().trim();
            Diagnostic {
                span: origin.map_or(Span::default(), |(_, span)| *span),
                label: format!("in dnsweir's words: {written}"),
                other: None,
                ..diagnostic.clone()
            }
        };
        Report::new(
            self.corefile.source.clone(),
            report.diagnostics().iter().map(retell).collect(),
        )
    }

    /// Sets aside the mistakes in files of this machine, such as a resolv.conf, which the machine where the
    /// configuration is for may not have. Returns whether there are new ones; then there is more to check.
    pub fn set_aside(&mut self, report: &Report) -> bool {
        let known: Vec<Span> = self.aside.iter().map(|known| known.span).collect();
        let is_new = |found: &&Diagnostic| found.local && !known.contains(&found.span);
        let new: Vec<Diagnostic> = report.diagnostics().iter().filter(is_new).cloned().collect();
        for diagnostic in &new {
            hide(&mut self.checked, diagnostic.span);
        }
        self.aside.extend(new.iter().cloned());
        !new.is_empty()
    }

    /// The text, with a comment above each line with a file that is set aside.
    pub fn noted(&self) -> String {
        let (mut noted, mut start) = (String::new(), 0);
        for line in self.text.split_inclusive('\n') {
            let here = start..start + line.len();
            let indent = &line[..line.len() - line.trim_start().len()];
            let mut found = self
                .aside
                .iter()
                .filter(|found| here.contains(&found.span.start))
                .peekable();
            if found.peek().is_some() {
                let why = "dnsweir does not start where this file is as it was when this was imported:";
                write_comment(indent, why, &mut noted);
            }
            for diagnostic in found {
                write_comment(indent, &format!("{}.", diagnostic.message), &mut noted);
            }
            noted.push_str(line);
            start = here.end;
        }
        noted
    }

    /// Translates once more, with the blocks that have mistakes in this [retold](Self::retold) report refusing
    /// all queries. `None` if they do already, or must not.
    ///
    /// # Errors
    /// Everything that cannot be translated even then.
    pub fn without(&self, report: &Report, options: &Options) -> Option<Result<Translation, Report>> {
        let known = self.refused.iter().flat_map(Report::diagnostics);
        let known: Vec<Diagnostic> = known.cloned().collect();
        let all = [known.as_slice(), report.diagnostics()].concat();
        let concerned = |mistakes: &[Diagnostic]| {
            let blocks = self.corefile.blocks.iter();
            let concerned = blocks.filter(|block| mistakes.iter().any(|mistake| block.has(mistake)));
            concerned.count()
        };
        let more = options.partly && concerned(&all) > concerned(&known);
        more.then(|| translate_without(&self.corefile, all, options))
    }
}

/// Replaces the path at a span by one that is as long, so that nothing moves, and that no machine has.
fn hide(text: &mut String, span: Span) {
    let Some(written) = text.get(span.start..span.end()) else {
        return;
    };
    let (Some(open), Some(close)) = (written.find('"'), written.rfind('"')) else {
        return;
    };
    let path = span.start + open + 1..span.start + close;
    if path.start < path.end {
        let none: String = "/-".chars().cycle().take(path.len()).collect();
        text.replace_range(path, &none);
    }
}

/// Reads and translates the Corefile at `path`.
///
/// # Errors
/// When it cannot be read, or everything in it that cannot be translated.
pub fn import(path: &Path, options: &Options) -> Result<Translation, Report> {
    let folder = path.parent().unwrap_or(Path::new(""));
    translate(read_source(path)?, folder, options)
}

/// Translates a Corefile; relative imports start at `folder`.
///
/// # Errors
/// Everything in it that cannot be translated.
pub fn translate(source: Source, folder: &Path, options: &Options) -> Result<Translation, Report> {
    let variable = |name: &str| std::env::var(name).ok();
    let read = blocks::read(source, folder, &variable);
    let corefile = read.map_err(|(source, mistake)| Report::new(source, vec![mistake]))?;
    match translate_without(&corefile, Vec::new(), options) {
        Err(report) if options.partly => translate_without(&corefile, report.diagnostics().to_vec(), options),
        translated => translated,
    }
}

/// Translates a Corefile, with blocks that refuse all queries in place of those with these mistakes.
fn translate_without(
    corefile: &Corefile,
    mistakes: Vec<Diagnostic>,
    options: &Options,
) -> Result<Translation, Report> {
    let report = |mistakes| Report::new(corefile.source.clone(), mistakes).with_files(&corefile.files);
    let translated = translate::translate(&refusing(corefile, &mistakes), options);
    let (document, awaited) = translated.map_err(report)?;
    Ok(Translation {
        checked: document.text.clone(),
        text: document.text,
        files: [corefile.files.clone(), awaited].concat(),
        refused: (!mistakes.is_empty()).then(|| report(mistakes)),
        aside: Vec::new(),
        corefile: corefile.clone(),
        origins: document.origins,
    })
}

/// Replaces blocks with mistakes by blocks that refuse all queries.
fn refusing(corefile: &Corefile, mistakes: &[Diagnostic]) -> Corefile {
    let blocks = corefile.blocks.iter().cloned().map(|block| {
        let here = mistakes.iter().filter(|mistake| block.has(mistake));
        let reason = |mistake: &Diagnostic| {
            format!(
                "Line {}: {}.",
                corefile.source.line(mistake.span),
                mistake.message
            )
        };
        let reasons: Vec<String> = here.map(reason).collect();
        match reasons.is_empty() {
            true => block,
            false => block.refusing(reasons),
        }
    });
    Corefile {
        source: corefile.source.clone(),
        blocks: blocks.collect(),
        files: corefile.files.clone(),
    }
}
