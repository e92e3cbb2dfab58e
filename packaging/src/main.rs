//! Packages what cargo built: a container image, a Debian package, an archive, the interface for authors of
//! filters, and a release. `cargo xtask image`, `package`, `sdk` and `release` build and call it.
//!
//! Image and package contain the programs as the tests start them, their licences and a bill of materials; the
//! image also has what they run on a node. Builds of a commit by the same toolchain are identical.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to the person who called it"
)]

mod archive;
mod bill;
mod chart;
mod debian;
mod dependencies;
mod elf;
mod image;
mod index;
mod interface;
mod layout;
mod licences;
mod manual;
mod precompiled;
mod programs;
mod provenance;
mod push;
mod signature;
mod source;
mod sums;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use source::Source;
use system::System;

/// An error message.
type Failure = String;

#[derive(Debug, Parser)]
#[command(name = "dnsweir-packaging", about)]
struct Args {
    /// The proxy, as cargo built it; the other programs that are packed are beside it.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder that the result is written to.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Folder with the Debian system that libraries and iptables are taken from; one for the program's processor.
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    system: PathBuf,
    /// The proxy for this machine, which writes its manual pages; where it is not the one that is packed.
    #[arg(long, value_name = "FILE")]
    native: Option<PathBuf>,
    /// Where others find the source.
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
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
    /// An archive of programs that are linked statically.
    Archive,
    /// One image for several processors, of the layouts that `image` made for each.
    Index {
        /// The image's name, without a tag: that is the version.
        #[arg(long, default_value = "docker.io/library/dnsweir")]
        name: String,
        /// The layouts.
        #[arg(required = true, value_name = "FOLDER")]
        images: Vec<PathBuf>,
    },
    /// The Helm chart, as an archive and as an artifact for registries.
    Chart {
        /// The registry that its image is in, with the path before the image's name.
        #[arg(long)]
        registry: Option<String>,
    },
    /// What is in the folder that the result is written to, and where it is from.
    Provenance {
        /// The URI that stands for who builds.
        #[arg(long, value_name = "URI")]
        builder: String,
    },
    /// The checksums of what is in that folder.
    Sums,
    /// Signatures of the checksums, and of image and chart if a registry is named.
    Sign {
        /// A private key of ECDSA P-256, in PEM.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The registry that image and chart are for.
        #[arg(long)]
        registry: Option<String>,
    },
    /// Copies image and chart from that folder to a registry.
    Push {
        /// The registry, with the path before the names of image and chart.
        #[arg(long)]
        registry: String,
    },
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
    let source = Source::read(args.repository.clone())?;
    match &args.what {
        What::Index { name, images } => index::pack(&source, images, name, &args.out),
        What::Chart { registry } => chart::pack(&source, registry.as_deref(), &args.out),
        What::Provenance { builder } => provenance::pack(&source, builder, &args.out),
        What::Sums => sums::pack(&args.out),
        What::Sign { key, registry } => signature::pack(&source, key, registry.as_deref(), &args.out),
        What::Push { registry } => push::pack(&source, registry, &args.out),
        What::Image { .. } | What::Package | What::Archive | What::Interface { .. } => program(args, &source),
    }
}

/// Packs a program.
fn program(args: &Args, source: &Source) -> Result<Vec<String>, Failure> {
    let program = args.program.as_ref().ok_or("--program: name what is packed")?;
    let system = System::open(&args.system, program)?;
    let native = args.native.as_ref().unwrap_or(program);
    match &args.what {
        What::Image { name } => image::pack(source, &system, program, name, &args.out),
        What::Archive => archive::pack(source, &system, program, native, &args.out),
        _ => debian::pack(source, &system, program, native, &args.out),
    }
}

/// Writes a file and the folders above it.
fn write(path: &std::path::Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, content))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Reads a file.
fn read(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The regular files in a folder, sorted by name.
fn files(folder: &std::path::Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let wrong = |error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        if entry.path().is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// Copies a folder, except build outputs.
fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<(), Failure> {
    let failed = |error| format!("{}: {error}", from.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true if entry.file_name() == "target" => {}
            true => copy(&path, &copied)?,
            false => std::fs::copy(&path, copied).map(drop).map_err(failed)?,
        }
    }
    Ok(())
}

/// Runs a command and returns its output.
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
