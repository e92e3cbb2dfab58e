//! Packs the statically linked programs into an archive, with its manual pages, completions and licences.

use std::fs;
use std::path::Path;

use crate::source::Source;
use crate::system::System;
use crate::{Failure, bill, dependencies, image, layout, licences, manual, programs, read, write};

/// The terms of what is linked in besides crates: the C library of Rust's musl targets. Debian has them.
const LIBRARY: &str = "/usr/share/doc/musl/copyright";

/// Writes the archive, and returns its path.
pub fn pack(
    source: &Source,
    system: &System,
    program: &Path,
    native: &Path,
    out: &Path,
) -> Result<Vec<String>, Failure> {
    let needs = &system.programs;
    if needs.linker.is_some() || !needs.libraries.is_empty() {
        let libraries = needs.libraries.join(", ");
        return Err(format!(
            "{}: its programs need {libraries} of the system, and an archive is for programs that need nothing",
            program.parent().unwrap_or(program).display()
        ));
    }
    let target = needs.processor.static_target();
    let name = format!("dnsweir-{}-{target}", source.version);
    let staged = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    fill(source, system, program, native, &staged.path().join(&name))?;
    let file = out.join(format!("{name}.tar.gz"));
    write(
        &file,
        layout::compressed(&image::layer(staged.path(), source.time)?)?,
    )?;
    Ok(vec![format!("{}: programs for an empty system", file.display())])
}

fn fill(source: &Source, system: &System, program: &Path, native: &Path, root: &Path) -> Result<(), Failure> {
    programs::install(program, root)?;
    for shell in manual::SHELLS {
        manual::completions(native, shell, &root.join(format!("completions/dnsweir.{shell}")))?;
    }
    manual::pages(native, &root.join("man/man1"))?;
    write(&root.join("LICENSE"), read(&source.root.join("LICENSE"))?)?;
    let processor = system.processor();
    let dependencies = dependencies::of(source, processor.static_target())?;
    let library = fs::read_to_string(LIBRARY)
        .map_err(|error| format!("the licence of musl: {LIBRARY}: {error}; install Debian's musl"))?;
    let rule = "=".repeat(80);
    let licences = format!("{}\n{rule}\nmusl\n\n{library}", licences::text(&dependencies)?);
    write(&root.join("THIRD-PARTY-LICENSES"), licences)?;
    let bill = bill::spdx(source, processor, &dependencies, std::iter::empty())?;
    write(&root.join("sbom.spdx.json"), bill)
}
