//! Builds the artifacts of a release from a clone without changes: `docs/packaging.md` lists them.
//!
//! The publisher and the registry are named only on the command line. Nothing leaves this machine without
//! `--push`.

mod compare;
mod options;
mod tools;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{Build, target};
use crate::commands::{Failure, call, cargo, root};
use crate::pack::{packaging, sdk};
use crate::processor::{self, Library, Processor};
use options::Options;

/// Builds the artifacts; then, as the options say, builds them again, signs them, and pushes them.
pub fn release(args: &[String]) -> Result<(), Failure> {
    let options = Options::read(args)?;
    tools::check(&options)?;
    artifacts(&options)?;
    if options.twice {
        rebuild(&options)?;
    }
    if let Some(key) = &options.key {
        let mut sign = into(&options.out);
        sign.arg("sign").arg("--key").arg(key);
        call(with_option("--registry", options.registry.as_deref(), &mut sign))?;
    }
    if let (Some(registry), true) = (&options.registry, options.push) {
        call(into(&options.out).args(["push", "--registry", registry]))?;
    }
    println!("the release is in {}", options.out.display());
    Ok(())
}

/// Builds everything that needs no key: the artifacts, their provenance and their checksums.
fn artifacts(options: &Options) -> Result<(), Failure> {
    let out = &options.out;
    let own = ["artifacts", "second"]
        .map(|name| target().join(name))
        .contains(out);
    if !own && fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!(
            "{}: the folder is not empty: empty it, or name another with --out",
            out.display()
        ));
    }
    remove(out).map_err(|error| format!("{}: {error}", out.display()))?;
    Build::Release.programs(&[])?;
    let mut images = Vec::new();
    for processor in &options.processors {
        images.push(packed(options, processor)?);
    }
    let [mut index, mut chart, mut provenance] = std::array::from_fn(|_| described(options, out));
    index.arg("index").args(&images);
    call(with_option("--name", options.image().as_deref(), &mut index))?;
    chart.arg("chart");
    call(with_option("--registry", options.registry.as_deref(), &mut chart))?;
    sdk(options.repository.as_deref(), out)?;
    match &options.builder {
        Some(builder) => call(provenance.args(["provenance", "--builder", builder]))?,
        None => println!("no provenance: it needs --builder and --repository"),
    }
    call(into(out).arg("sums"))
}

/// Packs the artifacts for one processor. Returns the folder of the image's layout.
fn packed(options: &Options, processor: &Processor) -> Result<PathBuf, Failure> {
    let pack = |program: &Path, what: &str| {
        let mut command = described(options, &options.out);
        call(command.arg("--program").arg(program).arg(what))
    };
    let musl = processor.program(Library::Musl)?;
    trial::run(&musl, processor)?;
    pack(&musl, "archive")?;
    let program = processor.program(Library::Glibc)?;
    pack(&program, "package")?;
    let parts = target().join("parts").join(processor.name);
    let mut image = described(options, &parts);
    image.arg("--program").arg(&program);
    if !processor.is_native() {
        image.arg("--system").arg(system(processor)?);
    }
    let name = options.image();
    call(with_option("--name", name.as_deref(), image.arg("image")))?;
    let file = format!("dnsweir-{}-{}.tar", env!("CARGO_PKG_VERSION"), processor.name);
    let copied = fs::copy(parts.join(&file), options.out.join(&file));
    copied.map_err(|error| format!("{file}: {error}"))?;
    Ok(parts.join("image"))
}

/// Fetches the Debian system for another processor, in its current version. Returns its folder.
fn system(processor: &Processor) -> Result<PathBuf, Failure> {
    let folder = target().join("system").join(processor.name);
    remove(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut fetch = Command::new("sh");
    fetch
        .arg(root().join("packaging/image/system.sh"))
        .arg(processor.name);
    call(fetch.arg(&folder))?;
    Ok(folder)
}

/// Builds everything again from scratch, and compares the results. It builds in the same folders, since
/// compilers write their paths into what they compile.
fn rebuild(options: &Options) -> Result<(), Failure> {
    let target = target();
    let triples = processor::ALL
        .iter()
        .flat_map(|one| [Library::Glibc, Library::Musl].map(|library| one.target(library)));
    for folder in triples.chain(["release", "package", "parts"]) {
        let folder = target.join(folder);
        remove(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let second = target.join("second");
    let mut command = cargo(["xtask", "release", "--out"]);
    call(command.arg(&second).args(options.rebuild_flags()))?;
    compare::folders(&options.out, &second)?;
    println!("both builds are identical");
    remove(&second).map_err(|error| format!("{}: {error}", second.display()))
}

/// Removes a folder that an earlier run may have left.
fn remove(folder: &Path) -> std::io::Result<()> {
    match folder.exists() {
        true => fs::remove_dir_all(folder),
        false => Ok(()),
    }
}

/// Returns a call of the packaging program that writes into this folder.
fn into(out: &Path) -> Command {
    let mut command = packaging();
    command.arg("--out").arg(out);
    command
}

/// Returns a call of the packaging program with the URL of the source, if it is given.
fn described(options: &Options, out: &Path) -> Command {
    let mut command = into(out);
    if let Some(repository) = &options.repository {
        command.args(["--repository", repository]);
    }
    command
}

/// Adds an option to a command if there is a value for it.
fn with_option<'c>(option: &str, value: Option<&str>, command: &'c mut Command) -> &'c mut Command {
    match value {
        Some(value) => command.args([option, value]),
        None => command,
    }
}
