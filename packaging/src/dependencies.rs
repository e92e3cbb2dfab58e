//! The crates linked into the programs and the built-in filters, from cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::programs::NAMES;
use crate::source::Source;
use crate::{Failure, output};

/// The crates of the built-in filters, whose dependencies are shipped with those of the programs.
const FILTERS: [&str; 4] = [
    "dnsweir-filter-hosts",
    "dnsweir-filter-log",
    "dnsweir-filter-nodecache",
    "dnsweir-filter-rewrite",
];

/// A crate.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, as an SPDX expression.
    pub licence: String,
    /// The folder with its source on this machine.
    pub folder: PathBuf,
    /// SHA-256 of its package; `None` for our own crates.
    pub checksum: Option<String>,
}

/// Returns all of them, ours included, by name and version.
pub fn of(source: &Source, target: &str) -> Result<Vec<Dependency>, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let said = output(Command::new(cargo).current_dir(&source.root).args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        target,
    ]))?;
    let metadata: Value = serde_json::from_str(&said).map_err(|error| format!("cargo metadata: {error}"))?;
    let checksums = checksums(source)?;
    let linked = linked(&metadata);
    let mut dependencies: Vec<Dependency> = items(&metadata["packages"])
        .filter(|package| linked.contains(string(&package["id"])))
        .map(|package| {
            let (name, version) = (string(&package["name"]), string(&package["version"]));
            let manifest = PathBuf::from(string(&package["manifest_path"]));
            Dependency {
                name: name.to_owned(),
                version: version.to_owned(),
                // Older manifests use `/` instead of OR.
                licence: string(&package["license"]).replace('/', " OR "),
                folder: manifest.parent().unwrap_or(&manifest).to_owned(),
                checksum: checksums.get(&(name.to_owned(), version.to_owned())).cloned(),
            }
        })
        .collect();
    dependencies.sort();
    Ok(dependencies)
}

/// The package IDs reachable through linked dependencies, without those for building and testing.
fn linked(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> = items(&metadata["resolve"]["nodes"])
        .map(|node| (string(&node["id"]), node))
        .collect();
    let mut left: Vec<&str> = items(&metadata["packages"])
        .filter(|package| {
            let name = string(&package["name"]);
            NAMES.contains(&name) || FILTERS.contains(&name)
        })
        .map(|package| string(&package["id"]))
        .collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !linked.insert(id) {
            continue;
        }
        let Some(node) = nodes.get(id) else { continue };
        let normal = items(&node["deps"])
            .filter(|dependency| items(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()));
        left.extend(normal.map(|dependency| string(&dependency["pkg"])));
    }
    linked
}

/// The checksums in `Cargo.lock`, by name and version.
fn checksums(source: &Source) -> Result<BTreeMap<(String, String), String>, Failure> {
    let path = source.root.join("Cargo.lock");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut checksums = BTreeMap::new();
    for block in text.split("[[package]]") {
        let value = |key: &str| {
            let line = block.lines().find(|line| line.starts_with(key))?;
            line.split('"').nth(1).map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(sum)) =
            (value("name ="), value("version ="), value("checksum ="))
        {
            checksums.insert((name, version), sum);
        }
    }
    Ok(checksums)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
