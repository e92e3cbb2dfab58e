//! Checks the length of files and functions, tests included. Only lines with code count.

use std::collections::BTreeMap;
use std::path::Path;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemFn, ItemImpl, TraitItemFn, Type};

use crate::source::{attributes, files, is_code, only_in_tests, parse, read, relative, root, rust_files};

/// The longest that a function may be, from its signature to its closing brace.
const FUNCTION: usize = 60;

/// Longer functions that are tolerated, with their greatest length. The list may only shrink.
const LONG: &[(&str, &str, usize)] = &[
    ("filters/rewrite/tests/rules.rs", "mistakes_are_told", 92),
    (
        "guest-sdk/tests/configuration.rs",
        "every_mistake_is_reported_with_its_place",
        81,
    ),
    (
        "crates/serve/src/cache/flight/tests.rs",
        "over_threads_and_runtimes_one_leads_and_nobody_is_forgotten",
        71,
    ),
    ("crates/wire/src/dns/records.rs", "Answer::read", 65),
    (
        "crates/engine/src/filter/tests/boundaries.rs",
        "preview_1_is_an_empty_world",
        75,
    ),
    ("crates/engine/src/filter/tests/guests.rs", "with_configure", 110),
    (
        "tests/checking.rs",
        "every_kind_of_mistake_is_found_in_its_line",
        90,
    ),
    (
        "tests/conformance/messages.rs",
        "malformed_messages_are_answered_with_the_right_rcode",
        253,
    ),
    ("tests/filters/garbage/src/lib.rs", "verdicts_for", 86),
];

/// The longest that a file may be, without its tests.
const FILE: usize = 600;

/// Filters that must be possible in few lines, and the limit.
const GALLERY: [&str; 12] = [
    "examples/cname-uncloak",
    "examples/country",
    "examples/dns-lists",
    "examples/fetched-block-list",
    "examples/maintenance",
    "examples/policy-zones",
    "examples/rate-limit",
    "examples/tenants",
    "examples/traffic",
    "filters/dns64",
    "filters/rebinding",
    "filters/rotation",
];
const FILTER: usize = 150;

/// Also prints the figures, for reference.
#[test]
fn functions_are_short() {
    let mut found = BTreeMap::new();
    for path in rust_files() {
        let text = read(&path);
        let mut functions = Functions {
            lines: text.lines().map(is_code).collect(),
            ..Functions::default()
        };
        functions.visit_file(&parse(&path));
        for (name, length) in functions.found {
            // If several functions share a name, the longest counts.
            let longest = found.entry((relative(&path), name)).or_insert(0);
            *longest = length.max(*longest);
        }
    }
    let long = found.values().filter(|length| **length > FUNCTION).count();
    println!("{} functions, {long} above {FUNCTION} lines", found.len());
    let mut wrong = Vec::new();
    for ((file, name), length) in &found {
        let listed = LONG.iter().find(|entry| (entry.0, entry.1) == (file, name));
        match listed.map(|entry| entry.2) {
            None if *length > FUNCTION => {
                wrong.push(format!(
                    "(\"{file}\", \"{name}\", {length}), // too long: tell it in parts"
                ));
            }
            Some(before) if *length > before => {
                wrong.push(format!(
                    "{file}: {name} has grown from {before} lines to {length}"
                ));
            }
            Some(_) if *length <= FUNCTION => {
                wrong.push(format!("{file}: {name} is short now, take it off the list"));
            }
            _ => {}
        }
    }
    for (file, name, _) in LONG {
        if !found.contains_key(&((*file).to_owned(), (*name).to_owned())) {
            wrong.push(format!("{file}: {name} is gone, take it off the list"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn files_are_short() {
    let mut lengths: Vec<(usize, String)> = rust_files()
        .iter()
        .map(|path| (code_lines(path), relative(path)))
        .collect();
    lengths.sort_unstable();
    let at = |part: f64| lengths[((lengths.len() - 1) as f64 * part) as usize].0;
    println!(
        "{} files, median {} lines of code, nine of ten at most {}",
        lengths.len(),
        at(0.5),
        at(0.9)
    );
    for (length, file) in lengths.iter().rev().take(10) {
        println!("{length:6} {file}");
    }
    let (longest, file) = lengths.last().expect("files");
    assert!(
        *longest <= FILE,
        "{file} has {longest} lines of code: cut it along a seam"
    );
}

/// The interface and the SDK must keep typical filters short.
#[test]
fn filters_of_the_gallery_are_short() {
    for filter in GALLERY {
        let sources = files(&root().join(filter).join("src"), &["rs"]);
        assert!(!sources.is_empty(), "{filter} is gone");
        let length: usize = sources.iter().map(|path| code_lines(path)).sum();
        println!("{length:6} {filter}");
        assert!(length < FILTER, "{filter} has {length} lines of code");
    }
}

/// Returns the number of lines with code in a file, without its tests.
fn code_lines(path: &Path) -> usize {
    let text = read(path);
    let tests = Tests::of(&parse(path));
    (1..)
        .zip(text.lines())
        .filter(|(line, text)| is_code(text) && !tests.hold(*line))
        .count()
}

/// Every function of a file, with its length.
#[derive(Default)]
struct Functions {
    /// Whether each line is code.
    lines: Vec<bool>,
    found: Vec<(String, usize)>,
    /// The type whose `impl` is being visited, as a prefix.
    of: String,
}

impl Functions {
    fn add(&mut self, name: &dyn ToString, signature: Span, block: Span) {
        let lines = signature.start().line - 1..block.end().line;
        let length = self.lines[lines].iter().filter(|code| **code).count();
        self.found
            .push((format!("{}{}", self.of, name.to_string()), length));
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.add(&function.sig.ident, function.sig.span(), function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.add(&function.sig.ident, function.sig.span(), function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig.ident, function.sig.span(), block.span());
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| format!("{}::", last.ident)),
            _ => None,
        };
        let outer = std::mem::replace(&mut self.of, name.unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.of = outer;
    }
}

/// Line ranges of items that are compiled only for tests.
struct Tests(Vec<(usize, usize)>);

impl Tests {
    fn of(file: &syn::File) -> Tests {
        let mut tests = Tests(Vec::new());
        tests.visit_file(file);
        tests
    }

    fn hold(&self, line: usize) -> bool {
        self.0
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&line))
    }
}

impl<'a> Visit<'a> for Tests {
    fn visit_item(&mut self, item: &'a Item) {
        if only_in_tests(attributes(item)) {
            self.0.push((item.span().start().line, item.span().end().line));
        } else {
            visit::visit_item(self, item);
        }
    }
}
