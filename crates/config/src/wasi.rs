//! `wasi`: the parts of WASI that a filter may use in addition to the defaults.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, block, fitting, text, value_span};
use super::environment::is_name;
use super::words::{Table, words};

words! {
    /// `wasi { … }`: the parts of WASI that a filter may use.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Wasi in WASI(0..=0): r#"wasi { clock; random; env "TZ"; folder "/etc/lists" }"#, then refuse_empty;

    /// The time of day, and elapsed time; without it, the clock only counts how often it is read.
    switch "clock" clock: bool = off;
    /// Random numbers; without it, always the same numbers.
    switch "random" random: bool = off;
    /// These variables of dnsweir's environment; without it, an empty environment.
    list "env"(1..=64) env: Vec<String> = ("none": "TZ" "REGION") in variable, "names";
    /// A folder whose files are readable while the filter is configured.
    tables "folder" folders: Vec<Folder> = none in FOLDER, "a path";
}

/// A folder that a filter may read while it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Its path as written, and as the filter sees it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// A hash of its contents when the configuration was read.
    pub state: u64,
}

const FOLDER: Table<Option<Folder>> = Table::of_values(1..=1, r#"folder "/etc/lists""#, read_folder);

impl Wasi {
    /// The permissions granted, in the words of the configuration.
    pub fn words(&self) -> Vec<String> {
        let switches = [("clock", self.clock), ("random", self.random)];
        let switches = switches.into_iter().filter(|(_, on)| *on);
        let mut words: Vec<String> = switches.map(|(name, _)| name.to_owned()).collect();
        words.extend(self.env.iter().map(|name| format!("env {name:?}")));
        let folders = self.folders.iter();
        words.extend(folders.map(|folder| format!("folder {:?}", folder.name)));
        words
    }
}

/// Reports a `wasi` that grants nothing.
fn refuse_empty(decoder: &mut Decoder, node: &KdlNode, _: &mut Wasi) {
    if block(node).is_empty() {
        let help = format!("{}, or remove it", WASI.shape.help());
        decoder.report(node, "`wasi` grants nothing", help);
    }
}

/// Reads the name of an environment variable.
fn variable(value: &KdlValue) -> Result<String, Wrong> {
    let help = "write its name alone: env \"TZ\"";
    fitting(value, is_name, "is not the name of an environment variable", help)
}

fn read_folder(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Option<Folder> {
    let name = decoder.argument(node, text)?;
    let path = decoder.files.at(&name);
    match state(&path) {
        Ok(state) => Some(Folder { name, path, state }),
        Err(error) => {
            let problem = format!("the folder {} cannot be read: {error}", path.display());
            let help = "name a folder that dnsweir's user may read; a relative path begins at the configuration's folder";
            decoder.report(value_span(node), problem, help);
            None
        }
    }
}

/// A hash of a folder's contents; it changes if a file in it is added, removed or written.
fn state(path: &Path) -> io::Result<u64> {
    let mut entries = fs::read_dir(path)?
        .map(|entry| {
            let entry = entry?;
            // Follow links, since mounted config maps are links to links.
            let metadata = fs::metadata(entry.path()).or_else(|_| entry.metadata())?;
            Ok((entry.file_name(), metadata.len(), metadata.modified()?))
        })
        .collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse_in;
    use super::*;

    #[test]
    fn a_folder_that_changes_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let text = "filter \"f\" { module \"builtin:log\"; wasi { folder \".\" } }\n\
            listen \"127.0.0.1\"; zone \".\" { use \"f\"; forward \"192.0.2.1\" }";
        let granted = || parse_in(folder.path(), text).unwrap().filters.remove(0).wasi;
        let before = granted();
        assert_eq!(before, granted());
        fs::write(folder.path().join("list"), "a").unwrap();
        let after = granted();
        assert_ne!(before, after);
        fs::write(folder.path().join("list"), "ab").unwrap();
        assert_ne!(after, granted());
    }
}
