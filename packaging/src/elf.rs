//! Reads from ELF headers what a program needs of the system.

use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

use crate::Failure;

/// Processors that dnsweir is packaged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// x86-64.
    Amd64,
    /// AArch64.
    Arm64,
}

impl Processor {
    /// The name in Debian and OCI images.
    pub fn name(self) -> &'static str {
        match self {
            Processor::Amd64 => "amd64",
            Processor::Arm64 => "arm64",
        }
    }

    /// The folder of its libraries in Debian.
    pub fn libraries(self) -> &'static str {
        match self {
            Processor::Amd64 => "x86_64-linux-gnu",
            Processor::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// The Rust target.
    pub fn target(self) -> &'static str {
        match self {
            Processor::Amd64 => "x86_64-unknown-linux-gnu",
            Processor::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The Rust target for static programs, which need no C library of the system.
    pub fn static_target(self) -> &'static str {
        match self {
            Processor::Amd64 => "x86_64-unknown-linux-musl",
            Processor::Arm64 => "aarch64-unknown-linux-musl",
        }
    }
}

/// The requirements of a program or library.
#[derive(Debug, PartialEq, Eq)]
pub struct Needs {
    /// Its processor.
    pub processor: Processor,
    /// The path of the dynamic linker; libraries have none.
    pub linker: Option<String>,
    /// The names of libraries.
    pub libraries: Vec<String>,
    /// The newest version of glibc's symbols that it uses, such as `2.34`.
    pub glibc: Option<(u32, u32)>,
}

/// Reads the headers of a file.
///
/// # Errors
/// When it is not a Linux program or library for one of these processors.
pub fn needs(path: &Path) -> Result<Needs, Failure> {
    let bytes = crate::read(path)?;
    parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the headers of several programs. Returns what they need together.
///
/// # Errors
/// When one of them is not a Linux program for one of these processors, or they are for different ones.
pub fn needs_of_all(paths: &[PathBuf]) -> Result<Needs, Failure> {
    let (first, others) = paths.split_first().ok_or("there is no program")?;
    let mut all = needs(first)?;
    for path in others {
        let one = needs(path)?;
        if one.processor != all.processor {
            let (path, first) = (path.display(), first.display());
            return Err(format!("{path}: for another processor than {first}"));
        }
        all.linker = all.linker.or(one.linker);
        all.libraries.extend(one.libraries);
        all.glibc = all.glibc.max(one.glibc);
    }
    all.libraries.sort();
    all.libraries.dedup();
    Ok(all)
}

fn parse(bytes: &[u8]) -> Result<Needs, Failure> {
    let wrong = |error: object::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    let processor = match header.e_machine(endian) {
        EM_X86_64 => Processor::Amd64,
        EM_AARCH64 => Processor::Arm64,
        other => return Err(format!("built for another processor, ELF machine {other}")),
    };
    let mut linker = None;
    for segment in header.program_headers(endian, bytes).map_err(wrong)? {
        if segment.p_type(endian) == PT_INTERP {
            let path = segment.data(endian, bytes).unwrap_or_default();
            linker = Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned());
        }
    }
    let sections = header.sections(endian, bytes).map_err(wrong)?;
    let mut libraries = Vec::new();
    if let Some((dynamic, strings)) = sections.dynamic(endian, bytes).map_err(wrong)? {
        let strings = sections.strings(endian, bytes, strings).map_err(wrong)?;
        for entry in dynamic.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            let name = entry.string(endian, strings).map_err(wrong)?;
            libraries.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(Needs {
        processor,
        linker,
        libraries,
        glibc: glibc(bytes)?,
    })
}

/// The newest version of glibc's symbols that a file uses.
fn glibc(bytes: &[u8]) -> Result<Option<(u32, u32)>, Failure> {
    let file = object::read::elf::ElfFile64::<Endianness>::parse(bytes).map_err(|error| error.to_string())?;
    let table = file.elf_section_table();
    let versions = table
        .versions(file.endian(), bytes)
        .map_err(|error| error.to_string())?;
    let Some(versions) = versions else { return Ok(None) };
    let wanted = file.dynamic_symbols().filter_map(|symbol| {
        let index = versions.version_index(file.endian(), symbol.index());
        let name = versions.version(index).ok()??.name();
        let version = str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    Ok(wanted.max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let needs = needs(&std::env::current_exe().unwrap()).unwrap();
        assert!(
            needs.libraries.iter().any(|name| name == "libc.so.6"),
            "{needs:?}"
        );
        assert!(
            needs
                .linker
                .as_ref()
                .is_some_and(|path| path.contains("ld-linux")),
            "{needs:?}"
        );
        assert!(needs.glibc.is_some_and(|version| version >= (2, 17)), "{needs:?}");
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(parse(b"#!/bin/sh\n").is_err());
        assert!(parse(b"").is_err());
    }
}
