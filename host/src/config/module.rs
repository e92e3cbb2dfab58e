//! `module` and `sha256`, the code of a filter, and `(file)`, texts for it that are files of their own.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kdl::{KdlEntry, KdlNode, KdlValue};
use sha2::{Digest, Sha256};

use super::Module;
use super::decode::{Mistakes, Shape, Wrong, arguments, block, child, head, suggestion, text};
use super::error::{Diagnostic, Span};
use super::questions::{self, Questions};

const MODULE: Shape = Shape::plain(1..=1, r#"module "builtin:log""#);

/// The largest module that is read, in bytes.
const LARGEST_MODULE: u64 = 64 * 1024 * 1024;

/// The largest file that is read as a value, in bytes.
const LARGEST_VALUE: u64 = 16 * 1024 * 1024;

/// Where modules and texts come from.
pub(super) struct Modules<'a> {
    /// Relative paths begin here.
    folder: &'a Path,
    /// What may follow `builtin:`.
    builtins: &'a [&'a str],
    /// What was read, or why not: two filters with the same path get the same bytes.
    read: HashMap<PathBuf, Result<Arc<[u8]>, String>>,
    /// The paths, in the order they were met.
    pub files: Vec<PathBuf>,
}

impl<'a> Modules<'a> {
    pub fn new(folder: &'a Path, builtins: &'a [&'a str]) -> Modules<'a> {
        Modules {
            folder,
            builtins,
            read: HashMap::new(),
            files: Vec::new(),
        }
    }

    /// What the `module` of `filter` names, and where it is written.
    pub fn decode(&mut self, mistakes: &mut Mistakes, filter: &KdlNode) -> Option<(Module, Span)> {
        let nodes = block(filter);
        let digest = child(nodes, "sha256");
        let expected = mistakes.scalar(nodes, "sha256 \"64 HEX DIGITS\"", sha256);
        let Some(node) = child(nodes, "module") else {
            let missing = Diagnostic::new(head(filter), "this filter has no `module`");
            mistakes.push(missing.help("write: module \"builtin:log\", or module \"PATH.wasm\""));
            return None;
        };
        mistakes.check(node, &MODULE);
        let name = mistakes.argument(node, text)?;
        let span = arguments(node)
            .next()
            .map_or(head(node), |entry| entry.span().into());

        if let Some(builtin) = name.strip_prefix("builtin:") {
            if let Some(digest) = digest {
                let problem = "a built-in filter has no `sha256`: it is part of the program";
                mistakes.push(Diagnostic::new(head(digest), problem).help("remove it"));
            }
            if !self.builtins.contains(&builtin) {
                let unknown = Diagnostic::new(span, format!("there is no built-in filter {builtin:?}"));
                mistakes.push(unknown.help(suggestion(builtin, self.builtins, MODULE.example)));
                return None;
            }
            return Some((Module::Builtin(builtin.to_owned()), span));
        }

        let path = self.folder.join(&name);
        self.note(&path);
        let read = self.read.entry(path.clone()).or_insert_with(|| {
            read(&path, LARGEST_MODULE)
                .map(Arc::from)
                .map_err(|error| error.to_string())
        });
        let bytes = match read {
            Ok(bytes) => bytes.clone(),
            Err(error) => {
                let problem = format!("the module {} cannot be read: {error}", path.display());
                let mut help =
                    "name a .wasm file; a relative path begins at the configuration's folder".to_owned();
                if self.builtins.contains(&name.as_str()) {
                    help = format!("for the built-in filter, write \"builtin:{name}\"");
                }
                mistakes.push(Diagnostic::new(span, problem).help(help));
                return None;
            }
        };
        if let (Some(node), Some(expected)) = (digest, expected) {
            let actual = <[u8; 32]>::from(Sha256::digest(&bytes));
            if actual != expected {
                let problem = format!("{} is not the module that was pinned", path.display());
                mistakes.push(
                    Diagnostic::new(head(node), problem)
                        .label("not its digest")
                        .other(span, "this module")
                        .help(format!("its SHA-256 is {}", hex(&actual))),
                );
            }
        }
        Some((Module::File { path, bytes }, span))
    }

    /// The recorded questions that `filter` names, or that lie beside its module.
    pub fn questions(
        &mut self,
        mistakes: &mut Mistakes,
        filter: &KdlNode,
        module: Option<&(Module, Span)>,
    ) -> Option<Arc<Questions>> {
        let nodes = block(filter);
        let named = mistakes.scalar(nodes, "questions \"PATH.questions.kdl\"", text);
        let span = match (child(nodes, "questions"), module) {
            (Some(node), _) => head(node),
            (None, Some((_, span))) => *span,
            (None, None) => head(filter),
        };
        let path = match (&named, module) {
            (Some(name), _) => self.folder.join(name),
            (None, Some((Module::File { path, .. }, _))) => questions_beside(path),
            (None, _) => return None,
        };
        self.note(&path);
        if named.is_none() && !path.exists() {
            return None;
        }
        match questions::load(&path) {
            Ok(questions) => Some(Arc::new(questions)),
            Err(report) => {
                let first = &report.diagnostics()[0];
                let line = report.lines()[0];
                let problem = format!("the recorded questions {} are not valid", path.display());
                let help = format!("line {line}: {}", first.message);
                mistakes.push(Diagnostic::new(span, problem).help(help));
                None
            }
        }
    }

    /// What is in the file that `entry`, which is annotated `(file)`, names.
    pub fn text(&mut self, mistakes: &mut Mistakes, name: &str, entry: &KdlEntry) -> Option<Arc<str>> {
        let path = self.folder.join(mistakes.value(name, entry, text)?);
        self.note(&path);
        let read = read(&path, LARGEST_VALUE).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|error| {
                let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
                io::Error::other(format!("line {line} is not UTF-8"))
            })
        });
        match read {
            Ok(text) => Some(text.into()),
            Err(error) => {
                let problem = format!("the file {} cannot be read: {error}", path.display());
                let help = "name a text file; a relative path begins at the configuration's folder";
                mistakes.push(Diagnostic::new(entry.span().into(), problem).help(help));
                None
            }
        }
    }

    /// Remembers a file that matters. Also one that cannot be read: that it appears is a change.
    fn note(&mut self, path: &Path) {
        if !self.files.iter().any(|known| known == path) {
            self.files.push(path.to_owned());
        }
    }
}

/// Where the recorded questions of a module are looked for: `FILE.questions.kdl` beside `FILE.wasm`.
pub fn questions_beside(module: &Path) -> PathBuf {
    module.with_extension("questions.kdl")
}

fn sha256(value: &KdlValue) -> Result<[u8; 32], Wrong> {
    let text = text(value)?;
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let bytes = digits.and_then(|digits| {
        let pairs: Vec<u8> = digits
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect();
        <[u8; 32]>::try_from(pairs).ok().filter(|_| digits.len() == 64)
    });
    bytes.ok_or_else(|| {
        Wrong::new(
            "is not a SHA-256 digest",
            "write 64 hexadecimal digits, as sha256sum prints them",
        )
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The whole file. What is not a regular file is refused: a pipe would block, a device never end.
fn read(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        return Err(io::Error::other(format!(
            "it is larger than {}MiB",
            largest >> 20
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse_in, problems};
    use super::*;

    const USED: &str = "listen \"127.0.0.1\"\nzone \".\" { use \"f\"; forward \"192.0.2.1\" }\n";

    #[test]
    fn mistakes_are_found() {
        let digest = "0".repeat(64);
        for (block, expected) in [
            ("", "this filter has no `module`"),
            ("module", "`module` needs a value"),
            ("module 1", "`module`: 1 is not a text"),
            ("module \"builtin:lgo\"", "there is no built-in filter \"lgo\""),
            (
                &format!("module \"builtin:log\"; sha256 \"{digest}\""),
                "a built-in filter has no `sha256`: it is part of the program",
            ),
        ] {
            assert_eq!(
                problems(&format!("{USED}filter \"f\" {{ {block} }}")),
                [expected],
                "{block}"
            );
        }
    }

    #[test]
    fn a_module_is_read_and_held_to_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.wasm");
        fs::write(&path, b"abc").unwrap();
        let parse = |digest: &str| {
            let text = format!("{USED}filter \"f\" {{ module \"f.wasm\"; {digest} }}");
            parse_in(folder.path(), &text)
        };
        // FIPS 180-4's example.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for digest in [
            "".to_owned(),
            format!("sha256 \"{abc}\""),
            format!("sha256 \"{}\"", abc.to_uppercase()),
        ] {
            let config = parse(&digest).unwrap();
            let Module::File { path: read, bytes } = &config.filters[0].module else {
                panic!("{config:?}")
            };
            assert_eq!((read, &bytes[..]), (&path, &b"abc"[..]));
            // And where its recorded questions would be.
            let questions = folder.path().join("f.questions.kdl");
            assert_eq!(config.files, [path.clone(), questions]);
        }
        for (digest, expected) in [
            (
                format!("sha256 \"{}\"", "0".repeat(64)),
                "is not the module that was pinned",
            ),
            (format!("sha256 \"{}\"", &abc[1..]), "is not a SHA-256 digest"),
            (format!("sha256 \"{abc}00\""), "is not a SHA-256 digest"),
            (format!("sha256 \"{}g\"", &abc[1..]), "is not a SHA-256 digest"),
        ] {
            let report = parse(&digest).unwrap_err();
            assert_eq!(report.diagnostics().len(), 1, "{report}");
            assert!(report.diagnostics()[0].message.contains(expected), "{report}");
        }
        let report = parse(&format!("sha256 \"{}\"", "0".repeat(64))).unwrap_err();
        assert!(report.diagnostics()[0].help.contains(abc), "{report}");

        fs::remove_file(&path).unwrap();
        for what in ["missing", "folder"] {
            if what == "folder" {
                fs::create_dir(&path).unwrap();
            }
            let report = parse("").unwrap_err();
            assert!(
                report.diagnostics()[0].message.contains("cannot be read"),
                "{report}"
            );
        }
    }

    #[test]
    fn filters_with_the_same_module_share_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("m.wasm"), b"abc").unwrap();
        let text = "listen \"::1\"\nfilter \"a\" { module \"m.wasm\" }\nfilter \"b\" { module \"m.wasm\" }\n\
            zone \".\" { use \"a\"; use \"b\" }";
        let config = parse_in(folder.path(), text).unwrap();
        let [Module::File { bytes: a, .. }, Module::File { bytes: b, .. }] =
            [&config.filters[0].module, &config.filters[1].module]
        else {
            panic!("{config:?}")
        };
        assert!(Arc::ptr_eq(a, b));
        // The module and where its questions would be, once.
        assert_eq!(config.files.len(), 2);
    }
}
