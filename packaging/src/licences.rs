//! The licences of everything that is linked into the program, with the texts that they ask to be passed on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::dependencies::Dependency;

/// Words that the names of files with licences and notices begin with.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// One text: who is under which licence, and then each different text once, with those that came with it.
pub fn text(dependencies: &[Dependency]) -> Result<String, Failure> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for dependency in dependencies
        .iter()
        .filter(|dependency| dependency.checksum.is_some())
    {
        let title = format!("{} {}", dependency.name, dependency.version);
        let found = found(&dependency.folder)?;
        let without = if found.is_empty() {
            ", whose package has no text of it"
        } else {
            ""
        };
        list += &format!("{title}: {}{without}\n", dependency.licence);
        for text in found {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    let mut blocks: Vec<(Vec<String>, String)> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    blocks.sort();
    let mut whole = format!(
        "dnsweir is under the licence in the file LICENSE beside this one. Linked into it are the standard library of Rust, under\n\
         MIT OR Apache-2.0, and these packages:\n\n{list}"
    );
    for (of, text) in blocks {
        whole += &format!("\n{}\n{}\n\n{}\n", "=".repeat(80), of.join(", "), text.trim_end());
    }
    Ok(whole)
}

/// The texts in a package's folder, without differences that only concern ends of lines.
fn found(folder: &Path) -> Result<Vec<String>, Failure> {
    let wrong = |error| format!("{}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        if path.is_file() && NAMES.iter().any(|word| name.starts_with(word)) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(String::from_utf8_lossy(&text).replace("\r\n", "\n"))
    };
    paths.iter().map(read).collect()
}
