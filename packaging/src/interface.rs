//! The interface of filters: as a WIT package in WebAssembly for `wkg publish` and other component tools, and
//! in C and Go, each with a filter that builds.

use std::path::Path;

use wit_parser::Resolve;

use super::{Failure, copy, image, write};

/// Folders in `examples/languages`; Rust has a crate instead.
const LANGUAGES: [&str; 2] = ["c", "go"];

/// Packs the interface in a folder of WIT files, and its versions in the folders of languages.
pub fn pack(wit: &Path, languages: &Path, out: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error:#}", wit.display());
    let mut resolve = Resolve::new();
    let (package, _) = resolve.push_dir(wit).map_err(|error| failed(&error))?;
    let octets = wit_component::encode(&resolve, package).map_err(|error| failed(&error))?;
    let name = &resolve.packages[package].name;
    let version = name.version.as_ref().map(|version| format!("-{version}"));
    let version = version.unwrap_or_default();
    let base = format!("{}-{}", name.namespace, name.name);
    let file = out.join(format!("{base}{version}.wasm"));
    write(&file, octets)?;
    let mut made = vec![format!("{}: {name}", file.display())];
    for language in LANGUAGES {
        let folder = format!("{base}-{language}{version}");
        let staged = tempfile::tempdir().map_err(|error| error.to_string())?;
        copy(&languages.join(language), &staged.path().join(&folder))?;
        let file = out.join(format!("{folder}.tar"));
        write(&file, image::layer(staged.path(), 0)?)?;
        made.push(file.display().to_string());
    }
    Ok(made)
}
