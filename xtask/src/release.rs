//! What a release consists of, from a clone without changes: `docs/packaging.md` lists it.
//!
//! Where it is published and by whom is said on the command line, and nowhere else. Nothing leaves this machine without `--push`.

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

/// Makes it, a second time if that is wanted, signs it, and pushes it.
pub fn release(args: &[String]) -> Result<(), Failure> {
    let options = Options::read(args)?;
    tools::are_there(&options)?;
    artifacts(&options)?;
    if options.twice {
        again(&options)?;
    }
    if let Some(key) = &options.key {
        let mut sign = into(&options.out);
        sign.arg("sign").arg("--key").arg(key);
        call(named("--registry", options.registry.as_deref(), &mut sign))?;
    }
    if let (Some(registry), true) = (&options.registry, options.push) {
        call(into(&options.out).args(["push", "--registry", registry]))?;
    }
    println!("{}: the release", options.out.display());
    Ok(())
}

/// Everything that is the same whoever makes it.
fn artifacts(options: &Options) -> Result<(), Failure> {
    let out = &options.out;
    let own = ["artifacts", "second"]
        .map(|name| target().join(name))
        .contains(out);
    if !own && fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{}: there is something in this folder", out.display()));
    }
    replaced(out).map_err(|error| format!("{}: {error}", out.display()))?;
    Build::Release.programs(None)?;
    let mut images = Vec::new();
    for processor in &options.processors {
        images.push(packed(options, processor)?);
    }
    let [mut index, mut chart, mut provenance] = std::array::from_fn(|_| described(options, out));
    index.arg("index").args(&images);
    call(named("--name", options.image().as_deref(), &mut index))?;
    chart.arg("chart");
    call(named("--registry", options.registry.as_deref(), &mut chart))?;
    sdk(options.repository.as_deref(), out)?;
    match &options.builder {
        Some(builder) => call(provenance.args(["provenance", "--builder", builder]))?,
        None => println!("no provenance: --builder and --repository say what it names"),
    }
    call(into(out).arg("sums"))
}

/// Packs what is for one processor, and says where the image's layout is.
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
    if !processor.is_here() {
        image.arg("--system").arg(system(processor)?);
    }
    let name = options.image();
    call(named("--name", name.as_deref(), image.arg("image")))?;
    let file = format!("dnsweir-{}-{}.tar", env!("CARGO_PKG_VERSION"), processor.name);
    let copied = fs::copy(parts.join(&file), options.out.join(&file));
    copied.map_err(|error| format!("{file}: {error}"))?;
    Ok(parts.join("image"))
}

/// The Debian system for another processor, as it is now.
fn system(processor: &Processor) -> Result<PathBuf, Failure> {
    let folder = target().join("system").join(processor.name);
    replaced(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut fetch = Command::new("sh");
    fetch
        .arg(root().join("packaging/image/system.sh"))
        .arg(processor.name);
    call(fetch.arg(&folder))?;
    Ok(folder)
}

/// Builds all of it once more, from nothing and in the same place, since compilers write where they were; and compares.
fn again(options: &Options) -> Result<(), Failure> {
    let target = target();
    let triples = processor::ALL
        .iter()
        .flat_map(|one| [Library::Glibc, Library::Musl].map(|library| one.target(library)));
    for folder in triples.chain(["release", "package", "parts"]) {
        let folder = target.join(folder);
        replaced(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let second = target.join("second");
    let mut command = cargo(["xtask", "release", "--out"]);
    call(command.arg(&second).args(options.what_is_made()))?;
    compare::folders(&options.out, &second)?;
    println!("built twice, and equal");
    replaced(&second).map_err(|error| format!("{}: {error}", second.display()))
}

/// Removes what an earlier run left.
fn replaced(folder: &Path) -> std::io::Result<()> {
    match folder.exists() {
        true => fs::remove_dir_all(folder),
        false => Ok(()),
    }
}

/// The packaging program, for this folder.
fn into(out: &Path) -> Command {
    let mut command = packaging();
    command.arg("--out").arg(out);
    command
}

/// The same, told where the source is.
fn described(options: &Options, out: &Path) -> Command {
    let mut command = into(out);
    if let Some(repository) = &options.repository {
        command.args(["--repository", repository]);
    }
    command
}

/// With an option, if there is a value for it.
fn named<'c>(option: &str, value: Option<&str>, command: &'c mut Command) -> &'c mut Command {
    match value {
        Some(value) => command.args([option, value]),
        None => command,
    }
}
