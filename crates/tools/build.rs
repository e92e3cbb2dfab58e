//! Collects what `dnsweir filter new` copies: the SDK, the interface, and examples in other languages.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::{env, fs};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Folders in `examples/languages/` that `dnsweir filter new --lang` copies.
const LANGUAGES: [&str; 4] = ["c", "go", "javascript", "python"];

fn main() {
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    for input in ["guest-sdk", "wit", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    write_sdk(&workspace);
}

/// Writes `sdk.rs`, which `src/new.rs` includes: everything here that a filter's author needs.
fn write_sdk(workspace: &Path) {
    let sdk = texts(&workspace.join("guest-sdk/src"), "src/");
    let wit = texts(&workspace.join("wit"), "wit/");
    let examples: Vec<_> = LANGUAGES
        .iter()
        .map(|language| {
            (
                language,
                texts(&workspace.join("examples/languages").join(language), ""),
            )
        })
        .collect();
    let manifest = read(&workspace.join("Cargo.toml"));
    let bindgen = manifest.lines().find(|line| line.starts_with("wit-bindgen = "));
    let bindgen = bindgen.unwrap_or_else(|| fail("the workspace's Cargo.toml names no wit-bindgen"));
    let manifest = read(&workspace.join("guest-sdk/Cargo.toml"));
    let dependencies = manifest
        .split_once("[dependencies]")
        .and_then(|(_, rest)| rest.split_once("\n["));
    let Some((dependencies, _)) = dependencies else {
        fail("guest-sdk/Cargo.toml has no `[dependencies]` before another section");
    };
    let dependencies = dependencies
        .trim()
        .replace("wit-bindgen.workspace = true", bindgen);
    let interface = read(&workspace.join("wit/types.wit"));
    let interface = interface
        .lines()
        .find_map(|line| line.strip_prefix("package dnsweir:filter@")?.strip_suffix(';'));
    let interface = interface.unwrap_or_else(|| fail("wit/types.wit has no `package dnsweir:filter@…;`"));
    let mut text = format!(
        "const SDK: Packed = {};\nconst DEPENDENCIES: &str = {dependencies:?};\n\
         const INTERFACE: &str = {interface:?};\nconst WIT: Packed = {};\n\
         const EXAMPLES: &[(&str, Packed)] = &[",
        packed(&sdk),
        packed(&wit)
    );
    for (language, files) in examples {
        text.push_str(&format!("({language:?}, {}),", packed(&files)));
    }
    text.push_str("];\n");
    let path = PathBuf::from(variable("OUT_DIR")).join("sdk.rs");
    if let Err(error) = fs::write(&path, text) {
        fail(&format!("cannot write {}: {error}", path.display()));
    }
}

/// Returns the files as Rust, each compressed: a megabyte of text would be a part of the program that hardly anybody
/// needs.
fn packed(files: &[(String, String)]) -> String {
    let mut packed = String::from("&[");
    for (name, text) in files {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        let octets = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        let octets = octets.unwrap_or_else(|error| fail(&format!("cannot compress {name}: {error}")));
        packed.push_str(&format!("({name:?}, b\"{}\"),", octets.escape_ascii()));
    }
    packed + "]"
}

/// Returns the files below a folder in order, except build outputs, and makes cargo watch them.
fn texts(folder: &Path, prefix: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| fail(&format!("{}: {error}", folder.display())));
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = format!("{prefix}{}", name.to_string_lossy());
        if name == "target" {
            continue;
        }
        if path.is_dir() {
            files.extend(texts(&path, &format!("{name}/")));
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push((name, read(&path)));
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", path.display())))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| fail(&format!("cargo did not set {name}: {error}")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
