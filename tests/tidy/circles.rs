//! Checks that files do not use each other in a cycle: each can be read after those that it depends on.
//!
//! Only code outside tests counts, where it names an item of another file by path or import. Declaring a
//! module or re-exporting its items is not a use, and a name that a parent re-exports belongs to the child.
//! So a parent may use its children, or children may use items of their parent, but not both. Method calls
//! are not seen: only names are.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{files, relative, root};
use crate::tree::{Tree, Use};

/// The root file of each crate that must follow the rule.
fn crates() -> Vec<String> {
    let mut all: Vec<String> = ["host/src/lib.rs", "bench/src/main.rs", "xtask/src/main.rs"]
        .map(str::to_owned)
        .into();
    let below = files(&root().join("crates"), &["rs"]);
    all.extend(
        below
            .iter()
            .map(|file| relative(file))
            .filter(|file| file.ends_with("/src/lib.rs") || file.ends_with("/src/main.rs")),
    );
    all
}

#[test]
fn files_use_each_other_in_no_circle() {
    let mut wrong = Vec::new();
    for first in crates() {
        let tree = Tree::read(&first);
        let uses = tree.uses();
        for circle in circles(tree.files.len(), &uses) {
            wrong.push(format!("a circle of files:\n{}", told(&tree, &uses, &circle)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the sets of more than one file that use each other, directly or through other files.
fn circles(files: usize, uses: &[Use]) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..files).map(|file| reached(file, uses)).collect();
    let mut circles = Vec::new();
    for file in 0..files {
        let circle: Vec<usize> = reach[file]
            .iter()
            .copied()
            .filter(|other| reach[*other].contains(&file))
            .collect();
        if circle.len() > 1 && circle[0] == file {
            circles.push(circle);
        }
    }
    circles
}

fn reached(file: usize, uses: &[Use]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![file];
    while let Some(from) = open.pop() {
        let next = uses.iter().filter(|used| used.from == from).map(|used| used.to);
        open.extend(next.filter(|to| found.insert(*to)));
    }
    found
}

/// Describes a cycle: its files, and which names each file uses of the others.
fn told(tree: &Tree, uses: &[Use], circle: &[usize]) -> String {
    let mut between: BTreeMap<(usize, usize), BTreeSet<&str>> = BTreeMap::new();
    for used in uses {
        if circle.contains(&used.from) && circle.contains(&used.to) {
            let names = between.entry((used.from, used.to)).or_default();
            names.insert(used.path.rsplit("::").next().unwrap_or_default());
        }
    }
    let mut told = String::new();
    for file in circle {
        told += &format!("    {}\n", tree.name(*file));
    }
    for ((from, to), names) in between {
        let names: Vec<&str> = names.into_iter().collect();
        told += &format!(
            "  {} uses {}: {}\n",
            tree.name(from),
            tree.name(to),
            names.join(", ")
        );
    }
    told
}
