//! Compares two folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::commands::Failure;

/// Compares all files byte by byte.
///
/// # Errors
/// Lists files that differ, and files that only one folder has.
pub fn folders(first: &Path, second: &Path) -> Result<(), Failure> {
    let (left, mut right) = (files(first)?, files(second)?);
    let mut differences = Vec::new();
    for (name, path) in left {
        match right.remove(&name) {
            None => differences.push(format!("{}: only in the first", name.display())),
            Some(other) if read(&path)? != read(&other)? => {
                differences.push(format!("{}: differs", name.display()));
            }
            Some(_) => {}
        }
    }
    differences.extend(
        right
            .keys()
            .map(|name| format!("{}: only in the second", name.display())),
    );
    match differences.is_empty() {
        true => Ok(()),
        false => Err(format!("the two builds differ:\n{}", differences.join("\n"))),
    }
}

/// Returns all files below a folder by their relative paths.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, Failure> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        let entries = fs::read_dir(&next).map_err(|error| format!("{}: {error}", next.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                left.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap_or(&path).to_owned(), path);
            }
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates two equal folders for this process.
    fn two() -> [PathBuf; 2] {
        let folder = std::env::temp_dir().join(format!("dnsweir-compare-{}", std::process::id()));
        ["first", "second"].map(|name| {
            let one = folder.join(name);
            fs::create_dir_all(one.join("oci")).unwrap();
            fs::write(one.join("a"), "a").unwrap();
            fs::write(one.join("oci/b"), "b").unwrap();
            one
        })
    }

    #[test]
    fn differences_are_listed() {
        let [first, second] = two();
        assert_eq!(folders(&first, &second), Ok(()));
        fs::write(first.join("oci/b"), "c").unwrap();
        fs::write(first.join("c"), "").unwrap();
        fs::write(second.join("d"), "").unwrap();
        let wrong = folders(&first, &second).unwrap_err();
        assert_eq!(
            wrong.lines().skip(1).collect::<Vec<_>>(),
            ["c: only in the first", "oci/b: differs", "d: only in the second"]
        );
        fs::remove_dir_all(first.parent().unwrap()).unwrap();
    }
}
