//! `dnsweir filter info`: shows a module's imports and exports, and which queries it asks to see.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::Stop;
use super::artifacts::{Access, fetch};
use super::modules::{configured, of_artifact, refusal};
use crate::config::{self, Source};
use crate::dns::text::type_text;
use crate::filter::{self, Anatomy, Cost, Declared, Engine, Interface, Standing, Trial};

/// The output; the keys in JSON are stable.
#[derive(Serialize)]
struct Info {
    file: String,
    kind: &'static str,
    bytes: usize,
    sha256: String,
    /// For a module from a registry: the digest of its manifest, and the number of its signatures.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signatures: Option<usize>,
    interface: String,
    imports: Vec<Face>,
    exports: Vec<Face>,
    /// Absent if it cannot be configured; `refusal` says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<Manifest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
}

#[derive(Serialize)]
struct Face {
    name: String,
    functions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

#[derive(Serialize)]
struct Manifest {
    phases: Vec<&'static str>,
    types: Vec<String>,
    suffixes: Vec<String>,
    messages: bool,
    asks: bool,
    details: Vec<String>,
    sources: Vec<String>,
    /// Empty: all outcomes.
    outcomes: Vec<&'static str>,
    tables: Vec<Table>,
    configure_instructions: Option<u64>,
    memory_bytes: usize,
}

#[derive(Serialize)]
struct Table {
    name: String,
    bytes: u32,
    /// Whether the metrics include its contents.
    shown: bool,
}

/// Describes a module, as text or JSON. `config` is a file with the contents of a `config` block.
///
/// # Errors
/// When the file is not a module, or the configuration is invalid.
pub fn info(file: &str, config: Option<&Path>, json: bool, access: &Access) -> Result<String, Stop> {
    let engine = Engine::metered()
        .map_err(|error| Stop::Machine(error.to_string()))?
        .compiling_aside();
    let (source, nodes) = match config {
        Some(path) => config::load_block(path)?,
        None => (Source::new("the empty configuration", ""), Vec::new()),
    };
    let artifact = match file.starts_with("oci://") {
        true => Some(fetch(file, access)?),
        false => None,
    };
    let block = match &artifact {
        Some((reference, artifact)) => of_artifact(reference, artifact, nodes),
        None => configured(file, nodes)?,
    };
    let anatomy = filter::inspect(&engine, &block.code, &block.limits)
        .map_err(|error| Stop::Refused(format!("{file}: {error}")))?;
    let (manifest, refused) = match Trial::load(&engine, &block, &[".".to_owned()]) {
        Ok(trial) => {
            let manifest = manifest(trial.declared(), trial.configured());
            (Some(manifest), None)
        }
        Err(error) => (None, Some(refusal(&source, &block, &error))),
    };
    let mut info = describe(file, anatomy, manifest, refused);
    if let Some((_, artifact)) = artifact {
        info.signatures = Some(artifact.signatures.len());
        info.artifact = Some(artifact.digest);
    }
    if json {
        let text = serde_json::to_string_pretty(&info).map_err(|error| Stop::Machine(error.to_string()))?;
        return Ok(text + "\n");
    }
    Ok(show(&info))
}

fn manifest(declared: Declared, cost: Cost) -> Manifest {
    let tables = declared.tables.into_iter().map(|table| Table {
        name: table.name,
        bytes: table.octets,
        shown: table.shown,
    });
    Manifest {
        phases: declared.phases,
        types: declared.qtypes.iter().map(|&qtype| type_text(qtype)).collect(),
        suffixes: declared.suffixes,
        messages: declared.messages,
        asks: declared.asks,
        details: declared.details,
        sources: declared.sources,
        outcomes: declared.outcomes,
        tables: tables.collect(),
        configure_instructions: cost.instructions,
        memory_bytes: cost.memory,
    }
}

fn describe(file: &str, anatomy: Anatomy, manifest: Option<Manifest>, refusal: Option<String>) -> Info {
    let face = |import: bool| {
        move |interface: Interface| Face {
            name: interface.name,
            functions: interface.functions,
            note: match interface.standing {
                Standing::Known => None,
                Standing::Wasi(part) if import => part.without(),
                Standing::Foreign if import => Some("is not given to filters: the proxy refuses this module"),
                Standing::Wasi(_) | Standing::Foreign => Some("is not used"),
            },
        }
    };
    Info {
        file: file.to_owned(),
        kind: if anatomy.component { "component" } else { "module" },
        bytes: anatomy.size,
        sha256: anatomy.digest,
        artifact: None,
        signatures: None,
        interface: filter::INTERFACE.to_owned(),
        imports: anatomy.imports.into_iter().map(face(true)).collect(),
        exports: anatomy.exports.into_iter().map(face(false)).collect(),
        manifest,
        refusal,
    }
}

fn show_manifest(manifest: &Manifest, out: &mut String) {
    let all = |list: &[String]| {
        if list.is_empty() {
            "all".to_owned()
        } else {
            list.join(" ")
        }
    };
    let _ = writeln!(out, "wants");
    let _ = writeln!(out, "    phases    {}", manifest.phases.join(", "));
    let _ = writeln!(out, "    types     {}", all(&manifest.types));
    let _ = writeln!(out, "    names     {}", all(&manifest.suffixes));
    if manifest.messages {
        let _ = writeln!(out, "    messages  whole responses");
    }
    if manifest.asks {
        let _ = writeln!(out, "    asks      for any name, before it decides");
    }
    if !manifest.outcomes.is_empty() {
        let _ = writeln!(out, "    events    of {}", manifest.outcomes.join(", "));
    }
    if !manifest.details.is_empty() {
        let _ = writeln!(out, "    details   {}", manifest.details.join(", "));
    }
    if !manifest.sources.is_empty() {
        let _ = writeln!(out, "    sources   {}", manifest.sources.join(" "));
    }
    for Table { name, bytes, shown } in &manifest.tables {
        let shown = if *shown { ", shown in the metrics" } else { "" };
        let _ = writeln!(out, "    table     {name}, up to {bytes} bytes{shown}");
    }
    let instructions = manifest.configure_instructions.unwrap_or(0);
    let _ = writeln!(
        out,
        "configuring it took {instructions} instructions and {} KiB of memory",
        manifest.memory_bytes / 1024
    );
}

fn show(info: &Info) -> String {
    let mut out = String::new();
    let kind = match info.kind {
        "component" => "a component",
        _ => "a core module, which the proxy makes a component",
    };
    // Infallible for String.
    let _ = writeln!(
        out,
        "{}: {kind}, {} bytes\nsha256  {}",
        info.file, info.bytes, info.sha256
    );
    if let (Some(artifact), Some(signatures)) = (&info.artifact, info.signatures) {
        let _ = writeln!(
            out,
            "artifact  {artifact}, {signatures} signatures, which `dnsweir filter verify` checks"
        );
    }
    for (title, faces) in [("imports", &info.imports), ("exports", &info.exports)] {
        let _ = writeln!(out, "{title}");
        if faces.is_empty() {
            let _ = writeln!(out, "    nothing");
        }
        for face in faces {
            let _ = write!(out, "    {}", face.name);
            if !face.functions.is_empty() {
                let _ = write!(out, ": {}", face.functions.join(", "));
            }
            let _ = writeln!(
                out,
                "{}",
                face.note.map(|note| format!(" ({note})")).unwrap_or_default()
            );
        }
    }
    if let Some(manifest) = &info.manifest {
        show_manifest(manifest, &mut out);
    }
    if let Some(refusal) = &info.refusal {
        let _ = writeln!(
            out,
            "with this configuration it does not start:\n{}",
            refusal.trim_end()
        );
    }
    out
}
