//! Packs what cargo built: an image for containers, and a Debian package; and what authors of filters get, the interface.
//! `cargo xtask image`, `package` and `sdk` build and call it.
//!
//! Image and package hold the program as the tests start it, its licences and a bill of materials; the image has what the program calls on a
//! node besides. Made twice of the same commit by the same toolchain, they are equal to the octet.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to the person who called it"
)]

mod bill;
mod debian;
mod dependencies;
mod elf;
mod image;
mod interface;
mod licences;
mod source;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use source::Source;
use system::System;

/// What went wrong, for a person to read.
type Failure = String;

#[derive(Debug, Parser)]
#[command(name = "dnsweir-packaging", about)]
struct Args {
    /// The program, as cargo built it.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder that the result is written to.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Folder with the Debian system that libraries and iptables are taken from; one for the program's processor.
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    system: PathBuf,
    /// The program for this machine, which writes its manual pages; where it is not the one that is packed.
    #[arg(long, value_name = "FILE")]
    native: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// An OCI layout, and the same in a file that `ctr images import`, `docker load` and `podman load` take.
    Image {
        /// The image's name, without a tag: that is the version.
        #[arg(long, default_value = "docker.io/library/dnsweir")]
        name: String,
    },
    /// A package for Debian and its descendants.
    Package,
    /// The interface of filters as a WIT package, in C and in Go; it needs no program.
    Interface {
        /// The folder with its WIT files.
        #[arg(long, value_name = "FOLDER", default_value = "wit")]
        wit: PathBuf,
        /// The folder with those of the languages.
        #[arg(long, value_name = "FOLDER", default_value = "examples/languages")]
        languages: PathBuf,
    },
}

fn main() -> ExitCode {
    match pack(&Args::parse()) {
        Ok(made) => {
            for line in made {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("packaging: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn pack(args: &Args) -> Result<Vec<String>, Failure> {
    std::fs::create_dir_all(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
    if let What::Interface { wit, languages } = &args.what {
        return interface::pack(wit, languages, &args.out);
    }
    let program = args.program.as_ref().ok_or("--program: name what is packed")?;
    let source = Source::read()?;
    let system = System::open(&args.system, program)?;
    let native = args.native.as_ref().unwrap_or(program);
    match &args.what {
        What::Image { name } => image::pack(&source, &system, program, name, &args.out),
        What::Package | What::Interface { .. } => debian::pack(&source, &system, program, native, &args.out),
    }
}

/// Writes a file and the folders above it.
fn write(path: &std::path::Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, content))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// What a command prints.
fn output(command: &mut std::process::Command) -> Result<String, Failure> {
    let shown = format!("{command:?}");
    let output = command
        .output()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown} failed, {}: {}", output.status, said.trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{shown}: {error}"))
}
