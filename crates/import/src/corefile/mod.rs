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

pub use document::Node;
pub use options::Options;
pub use words::table;

/// A configuration equivalent to a Corefile.
#[derive(Debug)]
pub struct Translation {
    /// The configuration in KDL.
    pub text: String,
    /// Every file read besides the Corefile itself, and the folders searched for files.
    pub files: Vec<PathBuf>,
    /// What could not be translated; the blocks concerned refuse all queries.
    pub refused: Option<Report>,
    /// The Corefile and its imports.
    source: Source,
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
            self.source.clone(),
            report.diagnostics().iter().map(retell).collect(),
        )
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
    let report = |mistakes| Report::new(corefile.source.clone(), mistakes);
    let (written, refused) = match translate::translate(&corefile, options) {
        Err(mistakes) if options.partly => {
            let refusing = refusing(&corefile, &mistakes);
            (
                translate::translate(&refusing, options).map_err(report)?,
                Some(report(mistakes)),
            )
        }
        written => (written.map_err(report)?, None),
    };
    Ok(Translation {
        text: written.text,
        files: corefile.files,
        refused,
        source: corefile.source,
        origins: written.origins,
    })
}

/// Replaces blocks with mistakes by blocks that refuse all queries.
fn refusing(corefile: &Corefile, mistakes: &[Diagnostic]) -> Corefile {
    let blocks = corefile.blocks.iter().cloned().map(|block| {
        let here = mistakes.iter().filter(|mistake| block.has(mistake.span.start));
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
