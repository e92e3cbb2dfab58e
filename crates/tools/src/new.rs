//! `dnsweir filter new`: creates a folder with a filter that builds on its own.
//!
//! It contains the SDK that this program was built with, in `vendor/`, so that the folder builds with crates
//! from the public registry and uses this proxy's version of the interface. For other languages, it copies
//! the example in `examples/languages`, which the tests build.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use flate2::bufread::DeflateDecoder;

use super::Stop;

/// Paths, and compressed texts.
type Packed = &'static [(&'static str, &'static [u8])];

// Collected by `build.rs`. Pairs of path and compressed text: `SDK`, `WIT` and, by language, `EXAMPLES`.
// `DEPENDENCIES`: the SDK's dependencies, from its manifest; `INTERFACE`: the interface's
// version.
include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// A language that filters are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// With the SDK, and tests.
    Rust,
    /// With a header, without a library.
    C,
    /// With its own package.
    Go,
    /// For prototypes.
    Javascript,
    /// For prototypes.
    Python,
}

/// Paths and texts, in which placeholders `{…}` are replaced.
type Files = Vec<(String, String)>;

/// Files of a Rust filter, in its own folder.
const PACKAGE: [(&str, &str); 5] = [
    ("src/lib.rs", include_str!("template/lib.rs")),
    ("tests/verdicts.rs", include_str!("template/verdicts.rs")),
    ("{name}.test-cases.kdl", include_str!("template/test-cases.kdl")),
    ("dnsweir.kdl", include_str!("template/dnsweir.kdl")),
    ("README.md", include_str!("template/README.md")),
];

/// Files that several filters can share.
const SHARED: [(&str, &str); 4] = [
    (".cargo/config.toml", include_str!("template/cargo.toml")),
    (".gitignore", include_str!("template/gitignore")),
    (
        "rust-toolchain.toml",
        include_str!("template/rust-toolchain.toml"),
    ),
    (SDK_MANIFEST, include_str!("template/sdk.toml")),
];

/// The manifest of the SDK.
const SDK_MANIFEST: &str = "vendor/dnsweir-filter/Cargo.toml";

const MANIFEST_FILE: &str = "Cargo.toml";

const MANIFEST: &str = include_str!("template/manifest.toml");
const PROFILES: &str = include_str!("template/profiles.toml");
const ALONE: &str = include_str!("template/alone.toml");
const WORKSPACE: &str = include_str!("template/workspace.toml");

/// Files of a filter in another language, besides those of its example.
const SCRIPT: [(&str, &str); 3] = [
    ("dnsweir.kdl", include_str!("template/script.kdl")),
    ("README.md", include_str!("template/script.md")),
    (".gitignore", include_str!("template/gitignore")),
];

/// The longest name of a filter: it is a label value and a word of the configuration.
const NAME_MAXIMUM: usize = 63;

/// Rust keywords and crates, which cannot be the names of crates.
const TAKEN: [&str; 53] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "unsafe",
    "use",
    "where",
    "while",
    "yield",
];

/// Creates the folder; its last component is the filter's name. With `workspace`, the folder around it
/// becomes a Cargo workspace unless it already is one.
///
/// # Errors
/// When it exists, its name cannot be a crate's, or the folder around it belongs to something else.
pub fn new(folder: &Path, language: Language, workspace: bool) -> Result<String, Stop> {
    let name = folder
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if let Some(problem) = problem(name) {
        return Err(Stop::Refused(format!(
            "{name:?} cannot be the name of a filter: {problem}"
        )));
    }
    let around = folder.parent().unwrap_or(Path::new(""));
    let (own, shared, extended) = match (language, workspace) {
        (Language::Rust, false) => ([rust(true), sdk()?].concat(), Files::new(), None),
        (Language::Rust, true) => match with_member(around)? {
            Some(manifest) => (rust(false), Files::new(), Some(manifest)),
            None => (rust(false), new_workspace(around)?, None),
        },
        (_, true) => {
            return Err(Stop::Refused("only filters in Rust share a workspace".into()));
        }
        (language, false) => (script(language)?, Files::new(), None),
    };
    if !around.as_os_str().is_empty() {
        fs::create_dir_all(around).map_err(|error| failed(around, &error))?;
    }
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Stop::Refused(format!(
            "{} exists already; nothing was changed",
            folder.display()
        )),
        _ => failed(folder, &error),
    })?;
    let root = if workspace { "../" } else { "" };
    write(folder, own, name, root, language)?;
    write(around, shared, name, root, language)?;
    if let Some(manifest) = extended {
        let file = around.join(MANIFEST_FILE);
        fs::write(&file, fill(&manifest, name, root, language)).map_err(|error| failed(&file, &error))?;
    }
    let folder = folder.display();
    Ok(format!(
        "the filter is in {folder}. To see it answer:\n\n    cd {folder}\n    dnsweir dev\n\n\
         and in another terminal: dig @127.0.0.1 -p 15353 hello.example\n"
    ))
}

/// Adds a member to the manifest of a workspace from an earlier call; `None` if there is no manifest yet.
fn with_member(folder: &Path) -> Result<Option<String>, Stop> {
    let file = folder.join(MANIFEST_FILE);
    if !file.exists() {
        return Ok(None);
    }
    let shown = std::path::absolute(&file).unwrap_or_else(|_| file.clone());
    let refused = |what: &str| Err(Stop::Refused(format!("{} {what}", shown.display())));
    let manifest = fs::read_to_string(&file).map_err(|error| failed(&file, &error))?;
    let members = "members = [\n";
    let Ok(sdk) = fs::read_to_string(folder.join(SDK_MANIFEST)) else {
        return refused("is not from `dnsweir filter new --workspace`; choose another folder");
    };
    if !sdk.contains(concat!("version = \"", env!("CARGO_PKG_VERSION"), "\"")) {
        let version = env!("CARGO_PKG_VERSION");
        return refused(&format!(
            "is from another version of dnsweir, and this one is {version}; choose another folder"
        ));
    }
    if !manifest.contains(members) {
        return refused("has no line that ends after `members = [`, to which a filter could be added");
    }
    let more = format!("{members}    \"{{name}}\",\n");
    Ok(Some(manifest.replacen(members, &more, 1)))
}

/// The shared files of a workspace to be made in a folder, which must have none of them: they are somebody's.
fn new_workspace(folder: &Path) -> Result<Files, Stop> {
    let manifest = [WORKSPACE, PROFILES].concat();
    let files = [vec![(MANIFEST_FILE.to_owned(), manifest)], sdk()?].concat();
    let mut paths = files.iter().map(|(path, _)| folder.join(path));
    // Also a link to nowhere is somebody's.
    match paths.find(|path| path.symlink_metadata().is_ok()) {
        Some(taken) => {
            let shown = std::path::absolute(&taken).unwrap_or(taken);
            Err(Stop::Refused(format!(
                "{} exists already, and a workspace would have its own; nothing was changed: choose another folder",
                shown.display()
            )))
        }
        None => Ok(files),
    }
}

fn files(of: &[(&str, &str)]) -> Files {
    of.iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

/// Unpacks files that `host/build.rs` has compressed.
fn unpacked(files: &[(&str, &[u8])]) -> Result<Files, Stop> {
    let unpack = |(path, octets): &(&str, &[u8])| {
        let mut text = String::new();
        let read = DeflateDecoder::new(*octets).read_to_string(&mut text);
        read.map_err(|error| failed(Path::new(path), &error))?;
        Ok(((*path).to_owned(), text))
    };
    files.iter().map(unpack).collect()
}

/// The files of a Rust filter, without those it can share.
fn rust(alone: bool) -> Files {
    let manifest = if alone {
        [MANIFEST, PROFILES, ALONE].concat()
    } else {
        MANIFEST.to_owned()
    };
    [vec![(MANIFEST_FILE.to_owned(), manifest)], files(&PACKAGE)].concat()
}

/// The SDK, and the files that make cargo use it.
fn sdk() -> Result<Files, Stop> {
    let sources = unpacked(SDK)?.into_iter();
    let sources = sources.map(|(path, text)| (format!("vendor/dnsweir-filter/{path}"), text));
    Ok(files(&SHARED).into_iter().chain(sources).collect())
}

/// A filter built by `build.sh`: the language's example under the filter's own name.
fn script(language: Language) -> Result<Files, Stop> {
    let known = language.to_possible_value();
    let known = known.as_ref().map(PossibleValue::get_name).unwrap_or_default();
    let example = EXAMPLES.iter().find(|(language, _)| *language == known);
    let interface = match language {
        Language::Javascript | Language::Python => WIT,
        Language::Rust | Language::C | Language::Go => &[],
    };
    let mut example = unpacked(example.map_or(&[][..], |(_, files)| files))?;
    for (_, text) in &mut example {
        *text = text
            .replace("names.wasm", "{name}.wasm")
            .replace("../../../wit", "wit");
    }
    Ok([files(&SCRIPT), unpacked(interface)?, example].concat())
}

/// Writes files, of which none may exist.
fn write(folder: &Path, files: Files, name: &str, root: &str, language: Language) -> Result<(), Stop> {
    for (path, text) in files {
        let path = folder.join(fill(&path, name, root, language));
        let above = path.parent().unwrap_or(folder);
        if !above.as_os_str().is_empty() {
            fs::create_dir_all(above).map_err(|error| failed(above, &error))?;
        }
        let text = fill(&text, name, root, language);
        let written = File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> Stop {
    Stop::Machine(format!("{}: {error}", path.display()))
}

/// Why a text cannot be the name of a crate and a filter.
fn problem(name: &str) -> Option<&'static str> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(fits) {
        return Some("write lowercase ASCII letters, digits, `-` and `_`, a letter first");
    }
    if name.len() > NAME_MAXIMUM {
        return Some("it has more than 63 characters");
    }
    (TAKEN.contains(&name) || name == "dnsweir-filter").then_some("the name is reserved")
}

/// Fills in a template for the filter `name`; `root` is the relative path to the shared files.
fn fill(text: &str, name: &str, root: &str, language: Language) -> String {
    let type_name: String = name
        .split(['-', '_'])
        .flat_map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            [first.to_ascii_uppercase(), rest.to_owned()]
        })
        .collect();
    let limits = match language {
        Language::Rust | Language::C => "time=\"5ms\"",
        Language::Go | Language::Javascript => "time=\"50ms\"",
        Language::Python => "memory=\"64MiB\" time=\"100ms\" load-memory=\"512MiB\" load-time=\"2m\"",
    };
    text.replace("{name}", name)
        .replace("{root}", root)
        .replace("{limits}", limits)
        .replace("{crate}", &name.replace('-', "_"))
        .replace("{Type}", &type_name)
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{interface}", INTERFACE)
        .replace("{dependencies}", DEPENDENCIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/my-filter");
        new(&path, Language::Rust, false).unwrap();
        let lib = fs::read_to_string(path.join("src/lib.rs")).unwrap();
        assert!(lib.contains("pub struct MyFilter {"), "{lib}");
        fs::write(path.join("src/lib.rs"), "mine").unwrap();
        assert!(matches!(new(&path, Language::Rust, false), Err(Stop::Refused(_))));
        assert_eq!(fs::read_to_string(path.join("src/lib.rs")).unwrap(), "mine");
        for (index, language) in Language::value_variants().iter().enumerate() {
            new(&folder.path().join(format!("f{index}")), *language, false).unwrap();
        }
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        let blanks = [
            "{name}",
            "{root}",
            "{limits}",
            "{crate}",
            "{Type}",
            "{version}",
            "{interface}",
            "{dependencies}",
        ];
        for language in Language::value_variants() {
            let all = match language {
                Language::Rust => [rust(true), rust(false), sdk().unwrap()].concat(),
                other => script(*other).unwrap(),
            };
            assert!(all.len() > SCRIPT.len(), "{language:?}");
            for (path, text) in all {
                let filled = fill(&path, "x", "", *language) + &fill(&text, "x", "", *language);
                for blank in blanks {
                    // The SDK's source contains such words in braces.
                    assert!(
                        path.ends_with(".rs") || !filled.contains(blank),
                        "{path}: {blank}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_others_wrote_is_no_workspace() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        let path = folder.path().join("mine");
        assert!(matches!(new(&path, Language::Rust, true), Err(Stop::Refused(_))));
        assert!(!path.exists());
        assert!(matches!(new(&path, Language::Go, true), Err(Stop::Refused(_))));
    }

    /// A folder with files of the same names, and no workspace, keeps them.
    #[test]
    fn shared_files_of_others_are_left_alone() {
        for file in [".gitignore", "rust-toolchain.toml", ".cargo/config.toml"] {
            let folder = tempfile::tempdir().unwrap();
            let theirs = folder.path().join(file);
            fs::create_dir_all(theirs.parent().unwrap()).unwrap();
            fs::write(&theirs, "theirs").unwrap();
            let path = folder.path().join("mine");
            let refused = new(&path, Language::Rust, true);
            let Err(Stop::Refused(problem)) = refused else {
                panic!("{refused:?}")
            };
            assert!(problem.contains(file), "{problem}");
            assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{file}");
            // Alone, the filter has its own.
            new(&path, Language::Rust, false).unwrap();
        }
    }

    #[test]
    fn a_workspace_is_extended() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["first", "second"] {
            new(&folder.path().join(name), Language::Rust, true).unwrap();
        }
        let manifest = fs::read_to_string(folder.path().join(MANIFEST_FILE)).unwrap();
        assert!(
            manifest.contains("    \"second\",\n    \"first\",\n"),
            "{manifest}"
        );
    }

    #[test]
    fn names_are_those_of_crates() {
        for name in ["", "a b", "1st", "Up", "../x", "x.y", "self", "test", "é"] {
            assert!(problem(name).is_some(), "{name:?}");
        }
        for name in ["a", "block-list", "rate_2"] {
            assert_eq!(problem(name), None, "{name:?}");
        }
    }
}
