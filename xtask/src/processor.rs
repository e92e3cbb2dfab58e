//! The processors that dnsweir is built for, and the C libraries.

use std::path::PathBuf;
use std::process::Command;

use crate::build::{Build, target};
use crate::commands::{Failure, built, call};
use crate::setup;

/// A processor, as each of those who build calls it.
#[derive(Debug)]
pub struct Processor {
    /// By Debian and OCI images.
    pub name: &'static str,
    /// By Rust, with each library.
    glibc: &'static str,
    musl: &'static str,
    /// By the compilers of C.
    pub gcc: &'static str,
    musl_gcc: &'static str,
    /// By qemu.
    pub emulator: &'static str,
}

/// All of them. There is no compiler for musl on AArch64 in Debian, and none is needed: no C that is compiled here calls a library.
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

/// What a program is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The system's, as in image and package.
    Glibc,
    /// None of the system's: it is in the program.
    Musl,
}

/// The processor with this name.
pub fn named(name: &str) -> Result<&'static Processor, Failure> {
    let found = ALL.iter().find(|processor| processor.name == name);
    found.ok_or_else(|| format!("--arch {name}: there are amd64 and arm64"))
}

impl Processor {
    /// Whether it is this machine's.
    pub fn is_here(&self) -> bool {
        self.glibc.split('-').next() == Some(std::env::consts::ARCH)
    }

    /// Rust's target.
    pub fn target(&self, library: Library) -> &'static str {
        match library {
            Library::Glibc => self.glibc,
            Library::Musl => self.musl,
        }
    }

    /// The package of Debian that has its compiler for others' machines.
    pub fn gcc_package(&self) -> String {
        format!("gcc-{}", self.gcc.trim_end_matches("-gcc").replace('_', "-"))
    }

    /// Builds the program, and says where it is. What `build` leaves for this machine is not built again.
    pub fn program(&self, library: Library) -> Result<PathBuf, Failure> {
        if self.is_here() && library == Library::Glibc {
            return Ok(built("dnsweir"));
        }
        let triple = self.target(library);
        setup::target(triple, "what is packed is compiled for")?;
        let mut build = Build::Release.cargo("build");
        build.args(["--bin", "dnsweir", "--target", triple]);
        self.compilers(library, &mut build);
        call(build)?;
        Ok(target().join(triple).join("release/dnsweir"))
    }

    /// Names the compiler of C and what links.
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
    fn packages_are_debians() {
        let packages = [0, 1].map(|number| ALL[number].gcc_package());
        assert_eq!(packages, ["gcc-x86-64-linux-gnu", "gcc-aarch64-linux-gnu"]);
    }
}
