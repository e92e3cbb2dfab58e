//! `include "PATH"` inserts other files. A folder stands for every `.kdl` file in it, in order of name.
//!
//! Allowed at the top level and in any block but a filter's `config`, whose words belong to the filter. Paths
//! in an included file start at the folder of the main configuration, because any file may include it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kdl::{KdlDocument, KdlEntry, KdlIdentifier, KdlNode};

use super::decode::{Decoder, arguments, finish, text};
use super::error::{Report, Source};
use super::files::read_source;
use super::syntax;
use super::words::Table;

/// Its word.
pub(super) const NAME: &str = "include";

pub(super) const INCLUDE: Table<()> = Table::plain(1..=64, r#"include "/etc/dnsweir/conf.d""#);

/// The most files that a configuration may include, and the most bytes in all of them.
const MOST: (usize, usize) = (256, 4 * 1024 * 1024);

/// A configuration that is being put together.
struct Whole {
    /// The texts of all files; spans are offsets in it.
    source: Source,
    decoder: Decoder,
    /// The files being read, which must not be included again.
    open: Vec<PathBuf>,
    /// Whether the limits are exceeded, so that no more files are read.
    full: bool,
}

/// Decodes `source` with everything it includes; relative paths start at `folder`. `decode` also gets the
/// joined text.
///
/// # Errors
/// Every mistake found, or a syntax error in a text.
pub(super) fn document<T>(
    source: &Source,
    folder: &Path,
    decode: impl FnOnce(&mut Decoder, &Source, &[KdlNode]) -> T,
) -> Result<T, Report> {
    let parsed = syntax::document(source.text());
    let parsed = parsed.map_err(|mistakes| Report::new(source.clone(), mistakes))?;
    let mut whole = Whole {
        source: source.clone(),
        decoder: Decoder::new(folder),
        open: Vec::new(),
        full: false,
    };
    let nodes = whole.expanded(parsed);
    let nodes = nodes.map_err(|report| report.with_files(whole.decoder.files.order()))?;
    let mut expanded = KdlDocument::new();
    *expanded.nodes_mut() = nodes;
    let Whole { source, decoder, .. } = whole;
    finish(&source, expanded, decoder, |decoder, nodes| {
        decode(decoder, &source, nodes)
    })
}

impl Whole {
    /// Returns the nodes of a document with each `include` replaced by the nodes of its files.
    fn expanded(&mut self, mut document: KdlDocument) -> Result<Vec<KdlNode>, Report> {
        let mut nodes = Vec::new();
        for mut node in document.nodes_mut().drain(..) {
            if node.name().value() == NAME {
                nodes.extend(self.included(&node)?);
                continue;
            }
            if node.name().value() != "config"
                && let Some(block) = node.children_mut()
            {
                let inside = std::mem::replace(block, KdlDocument::new());
                *block.nodes_mut() = self.expanded(inside)?;
            }
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// The nodes of the files that an `include` names.
    fn included(&mut self, node: &KdlNode) -> Result<Vec<KdlNode>, Report> {
        self.decoder.check(node, &INCLUDE.shape);
        let mut nodes = Vec::new();
        if self.full {
            return Ok(nodes);
        }
        for entry in arguments(node) {
            let Some(name) = self.decoder.value(NAME, entry, text) else {
                continue;
            };
            for file in self.files_at(name, entry) {
                if self.open.contains(&file) {
                    let problem = format!("{} includes itself", file.display());
                    let help = "remove one of the `include`s on the way to it";
                    self.decoder.report(entry, problem, help);
                    continue;
                }
                let Some(mut document) = self.document_at(&file, node)? else {
                    return Ok(nodes);
                };
                self.open.push(file);
                for node in document.nodes_mut() {
                    move_by(node, self.start());
                }
                nodes.extend(self.expanded(document)?);
                self.open.pop();
            }
        }
        Ok(nodes)
    }

    /// The offset of the last file's text.
    fn start(&self) -> usize {
        self.source.part(self.source.text().len()).1.start
    }

    /// Returns the file `name`, or the files in that folder.
    fn files_at(&mut self, name: String, entry: &KdlEntry) -> Vec<PathBuf> {
        let path = self.decoder.files.at(name);
        self.decoder.files.note(&path);
        match in_folder(&path) {
            Ok(Some(files)) => files,
            Ok(None) => vec![path],
            Err(error) => {
                let problem = format!("{} cannot be included: {error}", path.display());
                let help = "name a file, or a folder with .kdl files";
                self.decoder.report(entry, problem, help);
                Vec::new()
            }
        }
    }

    /// Reads a file and appends its text to the others; `None` if the limits are exceeded.
    fn document_at(&mut self, file: &Path, include: &KdlNode) -> Result<Option<KdlDocument>, Report> {
        if self.full {
            return Ok(None);
        }
        self.decoder.files.note(file);
        let read = read_source(file)?;
        if self.source.files() > MOST.0 || self.source.text().len() + read.text().len() > MOST.1 {
            let (files, octets) = MOST;
            let problem = format!("a configuration has at most {files} files and {octets} bytes");
            self.decoder.report(include, problem, "include less");
            self.full = true;
            return Ok(None);
        }
        let document =
            syntax::document(read.text()).map_err(|mistakes| Report::new(read.clone(), mistakes))?;
        (self.source, _) = self.source.with(read.name(), read.text());
        Ok(Some(document))
    }
}

/// The `.kdl` files in the folder at `path`, by name; `None` if it is not a folder. Hidden files are skipped:
/// mounted config maps have some.
fn in_folder(path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(None);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let hidden = file
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && file.extension().is_some_and(|extension| extension == "kdl") {
            files.push(file);
        }
    }
    files.sort();
    Ok(Some(files))
}

/// Shifts the spans of a node and everything in it by `octets` bytes.
fn move_by(node: &mut KdlNode, octets: usize) {
    let later = |span: miette::SourceSpan| (span.offset() + octets, span.len());
    let identifier = |name: &mut KdlIdentifier| {
        let span = name.span();
        name.set_span(later(span));
    };
    node.set_span(later(node.span()));
    identifier(node.name_mut());
    node.ty_mut().as_mut().map(identifier);
    for entry in node.entries_mut() {
        entry.set_span(later(entry.span()));
        entry.name_mut().map(identifier);
        entry.ty_mut().map(identifier);
    }
    if let Some(block) = node.children_mut() {
        block.set_span(later(block.span()));
        for node in block.nodes_mut() {
            move_by(node, octets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{folder_with, in_zone, problems};

    #[test]
    fn a_configuration_has_limits() {
        let folder = folder_with(&[("empty.kdl", &"// nothing\n".repeat(2000))]);
        let one = format!("include {:?}\n", folder.path().join("empty.kdl"));
        let text = one.repeat(300) + &in_zone("forward \"192.0.2.1\"");
        let expected = "a configuration has at most 256 files and 4194304 bytes";
        // Once: nothing is read beyond it.
        assert_eq!(problems(&text), [expected]);
    }
}
