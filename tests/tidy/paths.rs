//! Collects the paths that a file names, outside test code.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

use crate::source::{attributes, only_in_tests};

/// A path named in code.
pub struct Mention {
    /// The module inside the file that names it; nearly always the file's own, which is empty.
    pub module: Vec<String>,
    /// The path as written; a glob ends with `*`.
    pub path: Vec<String>,
}

/// A name that a `use` brings into a module.
pub struct Binding {
    pub name: String,
    pub mention: Mention,
    /// Whether it is exported: a re-export alone is not a use.
    pub exported: bool,
}

/// The paths named in one file.
#[derive(Default)]
pub struct Paths {
    pub mentions: Vec<Mention>,
    pub bindings: Vec<Binding>,
    /// Modules declared here that have files of their own.
    pub declared: Vec<Vec<String>>,
    /// Modules defined inline in this file.
    pub inline: Vec<Vec<String>>,
    module: Vec<String>,
}

impl Paths {
    pub fn of(file: &syn::File) -> Paths {
        let mut paths = Paths::default();
        paths.visit_file(file);
        paths
    }

    fn mention(&self, path: Vec<String>) -> Mention {
        Mention {
            module: self.module.clone(),
            path,
        }
    }

    fn import(&mut self, tree: &UseTree, before: &[String], exported: bool) {
        let with = |name: String| [before, &[name]].concat();
        let (name, path) = match tree {
            UseTree::Path(path) => {
                self.import(&path.tree, &with(path.ident.to_string()), exported);
                return;
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, exported);
                }
                return;
            }
            UseTree::Glob(_) => ("*".to_owned(), with("*".to_owned())),
            UseTree::Name(name) if name.ident == "self" => {
                (before.last().cloned().unwrap_or_default(), before.to_vec())
            }
            UseTree::Name(name) => (name.ident.to_string(), with(name.ident.to_string())),
            UseTree::Rename(rename) => (rename.rename.to_string(), with(rename.ident.to_string())),
        };
        let mention = self.mention(path);
        self.bindings.push(Binding {
            name,
            mention,
            exported,
        });
    }

    /// Finds paths in macro arguments by their tokens, because the arguments are not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.end(&mut path);
                    colons = 0;
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            let mention = self.mention(std::mem::take(path));
            self.mentions.push(mention);
        }
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item(&mut self, item: &'a Item) {
        if !only_in_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            _ => &[],
        };
        if !only_in_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        self.module.push(item.ident.to_string());
        if item.content.is_some() {
            self.inline.push(self.module.clone());
            visit::visit_item_mod(self, item);
        } else {
            self.declared.push(self.module.clone());
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let exported = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &[], exported);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        let mention = self.mention(names.collect());
        self.mentions.push(mention);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a Macro) {
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'a Attribute) {}

    /// `pub(in crate::x)` only restricts visibility; it is not a use.
    fn visit_visibility(&mut self, _: &'a Visibility) {}
}
