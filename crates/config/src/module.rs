//! `module` and `sha256`: where a filter's code comes from, and the code.

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kdl::{KdlNode, KdlValue};
use sha2::{Digest, Sha256};

use super::decode::{Decoder, Wrong, block, child, head, parsed, suggestion, text, value_span};
use super::error::{Diagnostic, Span};
use super::hex;
use super::reference::Reference;
use super::words::Table;

pub(super) const MODULE: Table<()> = Table::plain(1..=1, r#"module "builtin:log""#);

/// `module "builtin:NAME"`, `module "oci://REFERENCE"` or `module "PATH"`: where a filter's code comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Module {
    /// A built-in filter, by its name without `builtin:`.
    Builtin(String),
    /// An artifact in a registry.
    Artifact(Reference),
    /// A file; a relative path is relative to the configuration file.
    File(PathBuf),
}

impl Default for Module {
    fn default() -> Module {
        Module::File(PathBuf::new())
    }
}

impl Module {
    /// Parses `text`; relative paths start at `folder`.
    ///
    /// # Errors
    /// What is wrong with an artifact's reference, phrased to follow the reference.
    pub fn parse(text: &str, folder: &Path) -> Result<Module, String> {
        if let Some(reference) = Reference::parse(text) {
            return reference.map(Module::Artifact);
        }
        Ok(match text.strip_prefix("builtin:") {
            Some(name) => Module::Builtin(name.to_owned()),
            None => Module::File(folder.join(text)),
        })
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Module::Builtin(name) => write!(f, "builtin:{name}"),
            Module::Artifact(reference) => reference.fmt(f),
            Module::File(path) => path.display().fmt(f),
        }
    }
}

/// The built-in filters: name and code.
pub type Builtins<'a> = &'a [(&'a str, &'static [u8])];

/// A `module` as written, and its span.
pub(super) struct Written {
    pub module: Module,
    text: String,
    pub span: Span,
}

/// Decodes the `module` of `filter`. By default, it is the file `beside`, if there is a `filters` folder.
pub(super) fn decode(decoder: &mut Decoder, beside: Option<PathBuf>, filter: &KdlNode) -> Option<Written> {
    let Some(node) = child(block(filter), "module") else {
        if let Some(path) = beside {
            return Some(Written {
                text: path.display().to_string(),
                module: Module::File(path),
                span: head(filter),
            });
        }
        let help = "write: module \"builtin:log\", or module \"PATH.wasm\"";
        decoder.report(filter, "this filter needs a `module`", help);
        return None;
    };
    decoder.check(node, &MODULE.shape);
    let text = decoder.argument(node, text)?;
    let span = value_span(node);
    match Module::parse(&text, decoder.files.folder()) {
        Ok(module) => Some(Written { module, text, span }),
        Err(wrong) => {
            decoder.push(Diagnostic::new(span, format!("{text:?} {wrong}")));
            None
        }
    }
}

/// Reads the code of `filter`, which must have the digest `expected` if it has a `sha256`. The code of an
/// artifact is empty until delivery.
pub(super) fn code(
    decoder: &mut Decoder,
    builtins: Builtins<'_>,
    filter: &KdlNode,
    written: &Written,
    expected: Option<[u8; 32]>,
) -> Option<Bytes> {
    let digest = child(block(filter), "sha256");
    match &written.module {
        Module::Builtin(name) => {
            if let Some(digest) = digest {
                let problem = "a built-in filter takes no `sha256`: it is part of the program";
                decoder.report(digest, problem, "remove it");
            }
            builtin(decoder, builtins, name, written.span)
        }
        Module::Artifact(_) => {
            if let Some(digest) = digest {
                let problem = "a module from a registry takes no `sha256`";
                let help = "write the digest of its manifest in the reference: oci://REGISTRY/NAME:TAG@sha256:DIGEST";
                decoder.report(digest, problem, help);
            }
            Some(Bytes::new())
        }
        Module::File(path) => {
            let code = match decoder.files.module(path) {
                Ok(code) => code,
                Err(error) => {
                    decoder.push(unreadable(path, &error, builtins, written));
                    return None;
                }
            };
            if let (Some(node), Some(expected)) = (digest, expected) {
                check_digest(decoder, path, &code, &expected, head(node), written.span);
            }
            Some(code)
        }
    }
}

fn builtin(decoder: &mut Decoder, builtins: Builtins<'_>, name: &str, span: Span) -> Option<Bytes> {
    let found = builtins.iter().find(|(known, _)| *known == name);
    if found.is_none() {
        let names: Vec<&str> = builtins.iter().map(|(name, _)| *name).collect();
        let help = suggestion(name, &names, MODULE.shape.example);
        decoder.report(span, format!("there is no built-in filter {name:?}"), help);
    }
    found.map(|(_, code)| Bytes::from_static(code))
}

fn unreadable(path: &Path, error: &str, builtins: Builtins<'_>, written: &Written) -> Diagnostic {
    let help = if builtins.iter().any(|(name, _)| *name == written.text) {
        format!("for the built-in filter, write \"builtin:{}\"", written.text)
    } else {
        unreadable_help(&written.text, path).to_owned()
    };
    let problem = format!("the module {} cannot be read: {error}", path.display());
    Diagnostic::new(written.span, problem).help(help)
}

/// The help for the module `text`, which cannot be read at `path`.
pub fn unreadable_help(text: &str, path: &Path) -> &'static str {
    if text.contains("://") {
        "this is a URL, and modules are read from files and registries: download it and name the file, or write oci://REGISTRY/NAME:TAG"
    } else if path.is_dir() {
        "this is a folder: name the .wasm file in it"
    } else if path.iter().any(|part| part == "target") && !path.exists() {
        "build it first; cargo leaves a .wasm file only for a library with `crate-type = [\"cdylib\"]` under `[lib]`"
    } else {
        "name a .wasm file; a relative path begins at the configuration's folder"
    }
}

fn check_digest(
    decoder: &mut Decoder,
    path: &Path,
    code: &[u8],
    expected: &[u8; 32],
    digest: Span,
    module: Span,
) {
    let actual = <[u8; 32]>::from(Sha256::digest(code));
    if actual != *expected {
        let problem = format!("{} does not match its `sha256`", path.display());
        let help = format!("the SHA-256 of this file is {}", hex::digits(&actual));
        let wrong = Diagnostic::new(digest, problem).label("expected digest");
        decoder.push(wrong.other(module, "this file").help(help));
    }
}

pub(super) fn sha256(value: &KdlValue) -> Result<[u8; 32], Wrong> {
    let digest = |text: &str| hex::octets(text)?.try_into().ok();
    let help = "write 64 hexadecimal digits, as sha256sum prints them";
    parsed(value, digest, "is not a SHA-256 digest", help)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{folder_with, parse_in};

    #[test]
    fn filters_with_the_same_module_share_its_bytes() {
        let folder = folder_with(&[("m.wasm", "abc")]);
        let text = "listen \"::1\"\nfilter \"a\" { module \"m.wasm\" }\nfilter \"b\" { module \"m.wasm\" }\n\
            zone \".\" { use \"a\"; use \"b\" }";
        let config = parse_in(folder.path(), text).unwrap();
        let [a, b] = [0, 1].map(|index| config.filters[index].code.as_ptr());
        assert_eq!(a, b);
        // The module and the place of its test cases, once each.
        assert_eq!(config.files.len(), 2);
    }
}
