//! Collects the licences of everything linked into the program, with the texts that must be included.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::dependencies::Dependency;

/// Prefixes of the names of licence and notice files.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Returns one text: the crates with their licences, then each different text once, with its crates.
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

/// The texts in a package's folder, with line endings normalized.
fn found(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut found = crate::files(folder)?;
    found.retain(|(name, _)| {
        let name = name.to_uppercase();
        NAMES.iter().any(|word| name.starts_with(word))
    });
    let text = |(_, path): &(String, PathBuf)| {
        let text = crate::read(path)?;
        Ok(String::from_utf8_lossy(&text).replace("\r\n", "\n"))
    };
    found.iter().map(text).collect()
}
