//! Checks that another crate names every public item: rustc finds unused items only if they are private.
//!
//! Names are compared, not what they resolve to: a public `new` counts as used if any other crate names some
//! `new`. A type may be public without being named elsewhere if a public signature contains it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Field, Fields, FnArg, ImplItem, Item, Signature, TraitItem, Visibility};

use crate::source::{attributes, manifests, only_in_tests, parse, read, relative, root, rust_files};
use crate::tree::Tree;

#[test]
fn what_is_public_is_named_by_another_crate() {
    let mut words: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files() {
        let words = words.entry(package(&file)).or_default();
        collect(read(&file).parse().expect("Rust"), words);
    }
    let mut wrong = Vec::new();
    for manifest in manifests(&root().join("crates")) {
        let own = package(&manifest);
        let first = own.join("src/lib.rs");
        // In a program, rustc finds what is unused.
        if !first.is_file() {
            continue;
        }
        let elsewhere: BTreeSet<&String> = words
            .iter()
            .filter(|(package, _)| **package != own)
            .flat_map(|(_, words)| words)
            .collect();
        let mut shown = Shown::default();
        for file in Tree::read(&relative(&first)).files {
            shown.file = relative(&file.path);
            shown.visit_file(&parse(&file.path));
        }
        for (name, place) in shown.names {
            let known = elsewhere.contains(&name) || shown.signatures.0.contains(&name);
            if !known {
                wrong.push(format!("{place}: {name}"));
            }
        }
    }
    wrong.sort();
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "{count} are public, and only their own crate names them:\n{}",
        wrong.join("\n")
    );
}

/// Returns the folder of the package that a file belongs to: crates, filters and examples are folders of
/// packages.
fn package(file: &std::path::Path) -> PathBuf {
    let folders = file.ancestors().skip(1);
    let mut holding = folders.filter(|folder| folder.join("Cargo.toml").is_file());
    holding.next().unwrap_or(&root()).to_owned()
}

fn collect(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(words.insert(ident.to_string())),
            TokenTree::Group(group) => collect(group.stream(), words),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The public items of a crate's files.
#[derive(Default)]
struct Shown {
    file: String,
    /// Each name, with its file and line.
    names: Vec<(String, String)>,
    /// Identifiers in public signatures and in the public fields of types.
    signatures: Idents,
}

/// Every identifier in a piece of syntax.
#[derive(Default)]
struct Idents(BTreeSet<String>);

impl Idents {
    /// Collects the types in a signature, without the names of the function and its parameters.
    fn types_of(&mut self, signature: &Signature) {
        self.visit_generics(&signature.generics);
        self.visit_return_type(&signature.output);
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(_) => {}
                FnArg::Typed(typed) => self.visit_type(&typed.ty),
            }
        }
    }
}

impl Visit<'_> for Idents {
    fn visit_ident(&mut self, ident: &Ident) {
        self.0.insert(ident.to_string());
    }
}

impl Shown {
    fn name(&mut self, ident: &Ident) {
        let place = format!("{}:{}", self.file, ident.span().start().line);
        self.names.push((ident.to_string(), place));
    }

    fn function(&mut self, signature: &Signature) {
        self.name(&signature.ident);
        self.signatures.types_of(signature);
    }

    fn fields(&mut self, fields: &Fields, all: bool) {
        let is_shown = |field: &&Field| all || is_public(&field.vis);
        for field in fields.iter().filter(is_shown) {
            self.signatures.visit_type(&field.ty);
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

impl<'a> Visit<'a> for Shown {
    fn visit_item(&mut self, item: &'a Item) {
        if only_in_tests(attributes(item)) {
            return;
        }
        match item {
            Item::Fn(item) if is_public(&item.vis) => self.function(&item.sig),
            Item::Const(item) if is_public(&item.vis) => {
                self.name(&item.ident);
                self.signatures.visit_type(&item.ty);
            }
            Item::Static(item) if is_public(&item.vis) => {
                self.name(&item.ident);
                self.signatures.visit_type(&item.ty);
            }
            Item::Type(item) if is_public(&item.vis) => {
                self.name(&item.ident);
                self.signatures.visit_type(&item.ty);
            }
            Item::Struct(item) if is_public(&item.vis) => {
                self.name(&item.ident);
                self.signatures.visit_generics(&item.generics);
                self.fields(&item.fields, false);
            }
            Item::Enum(item) if is_public(&item.vis) => {
                self.name(&item.ident);
                item.variants
                    .iter()
                    .for_each(|variant| self.fields(&variant.fields, true));
            }
            Item::Trait(item) if is_public(&item.vis) => {
                self.name(&item.ident);
                item.supertraits
                    .iter()
                    .for_each(|bound| self.signatures.visit_type_param_bound(bound));
                for item in &item.items {
                    if let TraitItem::Fn(item) = item {
                        self.signatures.types_of(&item.sig);
                    }
                }
            }
            Item::Impl(item) => {
                let is_of_trait = item.trait_.is_some();
                if let Some((_, path, _)) = &item.trait_ {
                    self.signatures.visit_path(path);
                }
                for item in &item.items {
                    match item {
                        ImplItem::Fn(item) if is_of_trait => self.signatures.types_of(&item.sig),
                        ImplItem::Fn(item) if is_public(&item.vis) => self.function(&item.sig),
                        ImplItem::Const(item) if is_public(&item.vis) => self.name(&item.ident),
                        ImplItem::Type(item) => self.signatures.visit_type(&item.ty),
                        _ => {}
                    }
                }
            }
            Item::Mod(_) => visit::visit_item(self, item),
            _ => {}
        }
    }
}
