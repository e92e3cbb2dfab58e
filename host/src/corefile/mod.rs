//! CoreDNS's configuration, in ours: a Corefile is read as CoreDNS reads it, and written as KDL.
//!
//! [`blocks`] reads server blocks, [`words`] says of each plugin and option what becomes of it, [`translate`](fn@translate)
//! writes the configuration. Whatever cannot be said in it is an error that points at the word: nothing is left out
//! without a word.

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
mod rewrite;
mod sites;
mod template;
mod tokens;
mod transfer;
mod translate;
mod values;
mod view;
mod words;

use std::path::{Path, PathBuf};

use crate::config::{Report, Source, read_source};

pub use document::Node;
pub use translate::Options;
pub use words::table;

/// A configuration that means what a Corefile meant.
#[derive(Debug)]
pub struct Translation {
    /// In KDL.
    pub text: String,
    /// What was read beside the Corefile itself: files, and folders that files were looked for in.
    pub files: Vec<PathBuf>,
}

/// Reads the Corefile at `path` and translates it.
///
/// # Errors
/// When it cannot be read, or for everything in it that cannot be said in our configuration.
pub fn import(path: &Path, options: &Options) -> Result<Translation, Report> {
    let folder = path.parent().unwrap_or(Path::new(""));
    translate(read_source(path)?, folder, options)
}

/// Translates a Corefile whose relative imports begin at `folder`.
///
/// # Errors
/// For everything in it that cannot be said in our configuration.
pub fn translate(source: Source, folder: &Path, options: &Options) -> Result<Translation, Report> {
    let variable = |name: &str| std::env::var(name).ok();
    let read = blocks::read(source, folder, &variable);
    let corefile = read.map_err(|(source, mistake)| Report::new(source, vec![mistake]))?;
    let text = translate::translate(&corefile, options)
        .map_err(|mistakes| Report::new(corefile.source.clone(), mistakes))?;
    Ok(Translation {
        text,
        files: corefile.files,
    })
}
