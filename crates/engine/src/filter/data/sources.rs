//! The files that a refresh is given.

use std::sync::Arc;

use super::published::DataView;
use crate::config::Data;
use crate::filter::bindings::exports::dnsweir::filter::refresh::Source;

/// A file that a refresh is given.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceFile {
    /// The name that the configuration has for it.
    pub name: String,
    /// What it is called in its folder; empty if the source is no folder.
    pub file: String,
    /// Its contents.
    pub data: Arc<Data>,
}

/// Shows the guest the files, and gives what it is told of them.
pub(in crate::filter) fn sources(view: &mut DataView, files: Vec<SourceFile>) -> Vec<Source> {
    let files = files.into_iter().map(|file| Source {
        name: file.name,
        file: file.file,
        data: view.add_source(file.data),
    });
    files.collect()
}
