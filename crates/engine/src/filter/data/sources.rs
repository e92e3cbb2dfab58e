//! The files given to a refresh.

use std::sync::Arc;

use super::published::DataView;
use crate::config::Data;
use crate::filter::bindings::exports::dnsweir::filter::refresh::Source;

/// A file given to a refresh.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceFile {
    /// The source's name in the configuration.
    pub name: String,
    /// The file's name in its folder; empty if the source is not a folder.
    pub file: String,
    /// Its contents.
    pub data: Arc<Data>,
}

/// Makes the files visible to the guest, and returns their description for it.
pub(in crate::filter) fn sources(view: &mut DataView, files: Vec<SourceFile>) -> Vec<Source> {
    let files = files.into_iter().map(|file| Source {
        name: file.name,
        file: file.file,
        data: view.add_source(file.data),
    });
    files.collect()
}
