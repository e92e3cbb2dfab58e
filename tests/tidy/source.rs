//! Finding and parsing source files.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, Meta};

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Returns a path relative to the root, as messages show it.
pub fn relative(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

/// Returns the files below a folder that have one of these extensions, sorted.
pub fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                found.extend(files(&path, extensions));
            }
        } else if path
            .extension()
            .is_some_and(|found| extensions.iter().any(|extension| found == *extension))
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the manifests of the packages below a folder.
pub fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut found = files(folder, &["toml"]);
    found.retain(|file| file.ends_with("Cargo.toml"));
    found
}

/// Returns all handwritten Rust files of the workspace, without the templates of `dnsweir filter new`, which
/// are not valid Rust yet.
pub fn rust_files() -> Vec<PathBuf> {
    let mut all = files(&root(), &["rs"]);
    all.retain(|file| {
        !file.starts_with(root().join("crates/tools/src/template"))
            && *file != root().join("guest-sdk/src/bindings.rs")
    });
    all
}

pub fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

pub fn parse(file: &Path) -> syn::File {
    syn::parse_file(&read(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Whether an item with these attributes exists only in tests.
pub fn only_in_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

/// Returns the attributes of an item of any kind.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether a line has code: it is not blank, and not only a comment or an attribute.
pub fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !(line.is_empty() || line.starts_with("//") || line.starts_with("#[") || line.starts_with("#!["))
}
