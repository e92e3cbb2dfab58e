//! The processors and C libraries that dnsweir is built for.

use std::path::PathBuf;
use std::process::Command;

use crate::build::{Build, SHIPPED, target};
use crate::commands::{Failure, built, call};
use crate::setup;

/// A processor, and its name in each tool.
#[derive(Debug)]
pub struct Processor {
    /// In Debian and OCI images.
    pub name: &'static str,
    /// Rust's target with glibc.
    glibc: &'static str,
    /// Rust's target with musl.
    musl: &'static str,
    /// The C compiler for glibc, which also links.
    pub gcc: &'static str,
    /// The C compiler for musl.
    musl_gcc: &'static str,
    /// qemu's emulator.
    pub emulator: &'static str,
}

/// All processors. Debian has no compiler for musl on AArch64, and none is needed: the C code that is
/// compiled here does not call the C library.
pub const ALL: [Processor; 2] = [
    Processor {
        name: "amd64",
        glibc: "x86_64-unknown-linux-gnu",
        musl: "x86_64-unknown-linux-musl",
        gcc: "x86_64-linux-gnu-gcc",
        musl_gcc: "musl-gcc",
        emulator: "qemu-x86_64-static",
    },
    Processor {
        name: "arm64",
        glibc: "aarch64-unknown-linux-gnu",
        musl: "aarch64-unknown-linux-musl",
        gcc: "aarch64-linux-gnu-gcc",
        musl_gcc: "aarch64-linux-gnu-gcc",
        emulator: "qemu-aarch64-static",
    },
];

/// The C library that a program is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The system's, as in the image and the package.
    Glibc,
    /// Linked statically, so that the program needs no library of the system.
    Musl,
}

/// Returns the processor of this name.
pub fn named(name: &str) -> Result<&'static Processor, Failure> {
    let found = ALL.iter().find(|processor| processor.name == name);
    found.ok_or_else(|| format!("--arch {name}: unknown processor; use amd64 or arm64"))
}

impl Processor {
    /// Returns whether it is this machine's processor.
    pub fn is_native(&self) -> bool {
        self.glibc.split('-').next() == Some(std::env::consts::ARCH)
    }

    /// Returns Rust's target.
    pub fn target(&self, library: Library) -> &'static str {
        match library {
            Library::Glibc => self.glibc,
            Library::Musl => self.musl,
        }
    }

    /// Returns the Debian package of its cross compiler.
    pub fn gcc_package(&self) -> String {
        format!("gcc-{}", self.gcc.trim_end_matches("-gcc").replace('_', "-"))
    }

    /// Builds the proxy for this processor, and the programs beside it, and returns its path. For this machine and
    /// glibc, that is the release build's.
    pub fn program(&self, library: Library) -> Result<PathBuf, Failure> {
        if self.is_native() && library == Library::Glibc {
            return Ok(built("dnsweir"));
        }
        let triple = self.target(library);
        setup::target(triple, "the packed program is compiled for")?;
        let mut build = Build::Release.cargo("build");
        build.args(SHIPPED.iter().flat_map(|name| ["--bin", *name]));
        build.args(["--target", triple]);
        self.compilers(library, &mut build);
        call(build)?;
        Ok(target().join(triple).join("release/dnsweir"))
    }

    /// Sets the C compiler and the linker.
    fn compilers(&self, library: Library, build: &mut Command) {
        let triple = self.target(library).replace('-', "_");
        let compiler = match library {
            Library::Glibc => self.gcc,
            Library::Musl => self.musl_gcc,
        };
        build.env(format!("CC_{triple}"), compiler);
        build.env(format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase()), self.gcc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_packages_are_named_as_in_debian() {
        let packages = [0, 1].map(|number| ALL[number].gcc_package());
        assert_eq!(packages, ["gcc-x86-64-linux-gnu", "gcc-aarch64-linux-gnu"]);
    }
}
