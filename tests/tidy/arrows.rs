//! Crates have a README and use the dependencies in their Cargo.toml, and filters do not name the host.

use std::collections::BTreeSet;

use crate::source::{files, manifests, read, relative, root};

/// At most one page.
const README: usize = 50;

#[test]
fn every_crate_says_what_it_is_for() {
    let mut wrong = Vec::new();
    for manifest in manifests(&root().join("crates")) {
        let readme = manifest.with_file_name("README.md");
        let lines = if readme.is_file() {
            read(&readme).lines().count()
        } else {
            0
        };
        if !(1..=README).contains(&lines) {
            wrong.push(format!("{}: {lines} lines", relative(&readme)));
        }
    }
    assert!(wrong.is_empty(), "1 to {README} are asked for: {wrong:#?}");
}

/// Cargo builds every dependency in a manifest, whether or not anything uses it.
#[test]
fn every_dependency_is_named_in_the_source() {
    let mut wrong = Vec::new();
    for manifest in manifests(&root()) {
        let folder = manifest.parent().expect("a folder");
        let mut words = BTreeSet::new();
        for file in files(folder, &["rs"]) {
            let text = read(&file);
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let ends = |letter: char| !letter.is_alphanumeric() && letter != '_';
            words.extend(code.flat_map(|line| line.split(ends)).map(str::to_owned));
        }
        let mut lists_them = false;
        for line in read(&manifest).lines() {
            if line.starts_with('[') {
                lists_them = line.ends_with("dependencies]") && !line.contains("workspace");
            }
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            // The library of that package is called `harness`.
            let name = if name == "dnsweir-tests" { "harness" } else { name };
            let is_one = lists_them && name.starts_with(|letter: char| letter.is_ascii_lowercase());
            if is_one && !words.contains(&name.replace('-', "_")) {
                wrong.push(format!("{}: {name}", relative(&manifest)));
            }
        }
    }
    assert!(wrong.is_empty(), "nothing uses them: {wrong:#?}");
}

/// A crate that has no `unsafe` must not get any unnoticed.
#[test]
fn a_crate_without_unsafe_code_forbids_it() {
    let mut wrong = Vec::new();
    for manifest in manifests(&root().join("crates")) {
        let folder = manifest.with_file_name("src");
        let sources = files(&folder, &["rs"]);
        let has_some = sources.iter().any(|file| {
            let lines = read(file);
            let mut code = lines
                .lines()
                .map(|line| line.split("//").next().unwrap_or_default());
            code.any(|line| {
                line.contains("unsafe {") || line.contains("unsafe impl") || line.contains("unsafe fn")
            })
        });
        let roots = ["lib.rs", "main.rs"].map(|name| folder.join(name));
        let mut roots = roots.iter().filter(|root| root.is_file());
        if !has_some && !roots.all(|root| read(root).contains("#![forbid(unsafe_code)]")) {
            wrong.push(relative(&folder));
        }
    }
    assert!(wrong.is_empty(), "write #![forbid(unsafe_code)]: {wrong:#?}");
}

/// Filters and their SDK must not depend on the host, in code or in Cargo.toml.
#[test]
fn filters_do_not_know_the_host() {
    let mut wrong = Vec::new();
    for folder in ["filters", "guest-sdk", "examples"] {
        for file in files(&root().join(folder), &["rs", "toml"]) {
            for (number, line) in (1..).zip(read(&file).lines()) {
                let line = line.split("//").next().unwrap_or_default();
                let names = [
                    "../host",
                    "../crates",
                    "dnsweir.workspace",
                    "dnsweir =",
                    "use dnsweir::",
                ];
                if names.iter().any(|name| line.contains(name)) {
                    wrong.push(format!("{}:{number}: {line}", relative(&file)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
