//! The interface of filters as a WIT package in WebAssembly, as `wkg publish` and other tools of components take it.

use std::path::{Path, PathBuf};

use wit_parser::Resolve;

use super::{Failure, write};

/// Packs the interface in a folder of WIT files.
pub fn pack(wit: &Path, out: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error:#}", wit.display());
    let mut resolve = Resolve::new();
    let (package, _) = resolve.push_dir(wit).map_err(|error| failed(&error))?;
    let octets = wit_component::encode(&resolve, package).map_err(|error| failed(&error))?;
    let name = &resolve.packages[package].name;
    let version = name.version.as_ref().map(|version| format!("-{version}"));
    let file: PathBuf = out.join(format!(
        "{}-{}{}.wasm",
        name.namespace,
        name.name,
        version.unwrap_or_default()
    ));
    write(&file, octets)?;
    Ok(vec![format!("{}: {name}", file.display())])
}
