//! Checks the names of files, their module comments and their lints.

use std::path::Path;

use crate::source::{manifests, read, relative, root, rust_files};

/// Names that a file or module must not have: a name that says nothing attracts everything.
const EMPTY_NAMES: &[&str] = &[
    "util", "utils", "helper", "helpers", "common", "misc", "manager", "shared", "stuff",
];

#[test]
fn names_say_something() {
    let mut wrong = Vec::new();
    for file in rust_files() {
        let relative = relative(&file);
        let empty = Path::new(&relative).iter().any(|name| {
            let name = Path::new(name).file_stem().and_then(|stem| stem.to_str());
            EMPTY_NAMES.contains(&name.unwrap_or_default())
        });
        if empty {
            wrong.push(relative);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Every module must start with a comment on its purpose, except test modules in files of their own.
#[test]
fn modules_say_what_they_are_for() {
    let silent: Vec<String> = rust_files()
        .iter()
        .filter(|file| !file.ends_with("tests.rs"))
        .filter(|file| {
            let text = read(file);
            let first = text
                .lines()
                .find(|line| !line.is_empty() && !line.starts_with("#!["));
            !first.is_some_and(|line| line.starts_with("//!"))
        })
        .map(|file| relative(file))
        .collect();
    assert!(silent.is_empty(), "no `//!` at the top of {silent:#?}");
}

/// Every package of the workspace must use the workspace's lints, one of which requires the reasons of unsafe
/// code.
#[test]
fn every_package_takes_the_lints() {
    let free: Vec<String> = manifests(&root())
        .iter()
        .map(|file| (file, read(file)))
        .filter(|(_, text)| text.contains("version.workspace = true"))
        .filter(|(_, text)| !text.contains("[lints]\nworkspace = true"))
        .map(|(file, _)| relative(file))
        .collect();
    assert!(free.is_empty(), "without the workspace's lints: {free:?}");
}
