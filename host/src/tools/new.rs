//! `dnsweir filter new`: a folder with a filter that builds, and everything it needs to.
//!
//! The SDK comes with it, in `vendor/`, as this program was built with: so the folder builds with what the
//! public registry has, and against the interface that this proxy speaks.

use std::fs;
use std::io;
use std::path::Path;

use super::Stop;

// What `host/build.rs` found in `guest-sdk/` and `wit/`: `SDK`, pairs of path and text; `DEPENDENCIES`, the SDK's
// features and dependencies as its manifest has them; `INTERFACE`, the interface's version.
include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// Paths and texts of a new filter; `{…}` is filled in.
const TEMPLATE: [(&str, &str); 9] = [
    ("Cargo.toml", include_str!("template/manifest.toml")),
    (".cargo/config.toml", include_str!("template/cargo.toml")),
    (".gitignore", include_str!("template/gitignore")),
    ("src/lib.rs", include_str!("template/lib.rs")),
    ("tests/verdicts.rs", include_str!("template/verdicts.rs")),
    ("{name}.test-cases.kdl", include_str!("template/test-cases.kdl")),
    ("dnsweir.kdl", include_str!("template/dnsweir.kdl")),
    ("README.md", include_str!("template/README.md")),
    (
        "vendor/dnsweir-filter/Cargo.toml",
        include_str!("template/sdk.toml"),
    ),
];

/// Letters in the name of a filter, at most: it is a label value and a word of the configuration.
const NAME_MAXIMUM: usize = 63;

/// Rust's keywords and crates, none of which can be the name of a crate.
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

/// Makes the folder; its last part is the filter's name.
///
/// # Errors
/// When it is there already, or its name cannot be a crate's.
pub fn new(folder: &Path) -> Result<String, Stop> {
    let name = folder
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if let Some(problem) = problem(name) {
        return Err(Stop::Refused(format!(
            "{name:?} cannot be the name of a filter: {problem}"
        )));
    }
    let failed = |path: &Path, error: io::Error| Stop::Machine(format!("{}: {error}", path.display()));
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above).map_err(|error| failed(above, error))?;
    }
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Stop::Refused(format!(
            "{} exists already; nothing was changed",
            folder.display()
        )),
        _ => failed(folder, error),
    })?;
    let own = TEMPLATE.map(|(path, text)| (fill(path, name), fill(text, name)));
    let sdk = SDK
        .iter()
        .map(|(path, text)| (format!("vendor/dnsweir-filter/{path}"), (*text).to_owned()));
    for (path, text) in own.into_iter().chain(sdk) {
        let path = folder.join(path);
        let above = path.parent().unwrap_or(folder);
        fs::create_dir_all(above).map_err(|error| failed(above, error))?;
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    let folder = folder.display();
    Ok(format!(
        "a filter is in {folder}; to see it answer:\n\n    cd {folder}\n    dnsweir dev\n\n\
         and in another terminal: dig @127.0.0.1 -p 15353 hello.example\n"
    ))
}

/// Why a text cannot be the name of a crate and of a filter.
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

/// A part of the template for the filter `name`.
fn fill(text: &str, name: &str) -> String {
    let type_name: String = name
        .split(['-', '_'])
        .flat_map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            [first.to_ascii_uppercase(), rest.to_owned()]
        })
        .collect();
    text.replace("{name}", name)
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
        new(&path).unwrap();
        let lib = fs::read_to_string(path.join("src/lib.rs")).unwrap();
        assert!(lib.contains("pub struct MyFilter {"), "{lib}");
        fs::write(path.join("src/lib.rs"), "mine").unwrap();
        assert!(matches!(new(&path), Err(Stop::Refused(_))));
        assert_eq!(fs::read_to_string(path.join("src/lib.rs")).unwrap(), "mine");
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        for (path, text) in TEMPLATE {
            let filled = fill(path, "x") + &fill(text, "x");
            for blank in [
                "{name}",
                "{crate}",
                "{Type}",
                "{version}",
                "{interface}",
                "{dependencies}",
            ] {
                assert!(!filled.contains(blank), "{path}: {blank}");
            }
        }
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
