//! Plays histories of the proxy in a simulated world (tests/box/README.md): of the proxy itself, of a build
//! whose filters count fuel, and of copies with a planted fault each, to measure how soon it is found.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::build::{Build, target};
use crate::commands::{Failure, call, root};
use crate::setup;

/// The folder of patches, each of which plants a fault in the source.
const PLANTED: &str = "tests/box/planted";

/// The feature with which the proxy's filters count fuel. No release has it.
const FUEL: &str = "dnsweir/box-fuel";

/// A setting that distinguishes the copies' crates from ours. Cargo names compiled files by their settings:
/// both are in one build folder and share the dependencies, and neither is taken for the other.
const APART: &str = "debug=\"line-tables-only\"";

/// Plays histories, as the words say.
pub fn simulate(mut words: Vec<String>) -> Result<(), Failure> {
    if let Some(at) = words.iter().position(|word| word == "--planted") {
        words.remove(at);
        return planted(&words);
    }
    let build = Build::chosen(&mut words);
    if let Some((word, kinds)) = words.split_first()
        && word == "--takeover"
    {
        return takeover(build, kinds);
    }
    let fuel = words.iter().any(|word| word == "--fuel");
    let programs = match fuel {
        true => with_fuel(build)?,
        false => {
            build.programs(&["dnsweir"])?;
            build.folder()
        }
    };
    call(histories(&programs).args(words))
}

/// Fails each call of a takeover in turn, and kills the process there: calls of a start beside another
/// process, of a stop with a successor, and of the last process's stop. It runs in the kernel's namespaces in
/// real time, and needs root. `kinds` selects kinds of calls; if empty, it means all.
fn takeover(build: Build, kinds: &[String]) -> Result<(), Failure> {
    build.programs(&[])?;
    let mut command = Build::Quick.cargo("test");
    command.args([
        "--test",
        "node",
        "--",
        "--nocapture",
        "--test-threads",
        "1",
        "taking_over::",
    ]);
    command
        .env("DNSWEIR_PROGRAMS", build.folder())
        .env("DNSWEIR_BUILD", build.name());
    let kinds = match kinds {
        [] => "all".to_owned(),
        kinds => kinds.join(","),
    };
    call(command.env("DNSWEIR_EVERY_CALL", kinds))
}

/// Returns a call of the runner, with the folder of the programs that it starts.
fn histories(programs: &Path) -> Command {
    let mut command = Build::Quick.cargo("test");
    command.args(["--quiet", "--test", "histories", "--", "simulate"]);
    command.env("DNSWEIR_PROGRAMS", programs);
    command
}

/// Builds the proxy whose filters count fuel. Returns the folder of the program.
fn with_fuel(build: Build) -> Result<PathBuf, Failure> {
    setup::wasm_target()?;
    let folder = target().join("fuel");
    let mut command = build.cargo_into("build", &folder);
    call(command.args(["--bin", "dnsweir", "--features", FUEL]))?;
    Ok(folder.join("release"))
}

/// Plants all faults, or those whose names contain one of the words, one after the other, and searches for
/// each.
fn planted(words: &[String]) -> Result<(), Failure> {
    let mut minutes = "5".to_owned();
    let mut names = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--minutes" => minutes.clone_from(rest.next().ok_or("--minutes needs a value")?),
            name => names.push(name),
        }
    }
    let patches = patches(&names).map_err(|error| format!("{PLANTED}: {error}"))?;
    let tree = target().join("planted/tree");
    copy(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    let mut missed = Vec::new();
    for patch in patches {
        let name = patch
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match find(&tree, &patch, &minutes) {
            Ok(found) => println!("| {name} | {found} |"),
            Err(failure) => {
                println!("| {name} | {failure} |");
                missed.push(name);
            }
        }
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("planted faults not found: {}", missed.join(", "))),
    }
}

fn patches(names: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(root().join(PLANTED))? {
        patches.push(entry?.path());
    }
    patches.retain(|patch| {
        let name = patch.to_string_lossy();
        patch.extension().is_some_and(|extension| extension == "patch")
            && (names.is_empty() || names.iter().any(|wanted| name.contains(wanted)))
    });
    patches.sort();
    Ok(patches)
}

/// Plants a fault, builds the proxy, searches for the fault, and removes it again. Returns how it was found.
fn find(tree: &Path, patch: &Path, minutes: &str) -> Result<String, Failure> {
    let text = fs::read_to_string(patch).map_err(|error| format!("{}: {error}", patch.display()))?;
    if text
        .lines()
        .any(|line| line.starts_with("+++ ") && !line.starts_with("+++ b/crates/"))
    {
        // Other packages' compiled files are shared with the real sources: see [`APART`].
        return Err("the patch changes files outside crates/".to_owned());
    }
    apply(tree, patch, &[])?;
    let found = build(tree, text.contains("\nbuild: fuel\n")).and_then(|programs| {
        let mut command = histories(&programs);
        command.arg("--planted").arg(patch).args(["--minutes", minutes]);
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let output = output.map_err(|error| format!("cannot run the histories: {error}"))?;
        let (found, why) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        match output.status.success() {
            true => Ok(found.trim().to_owned()),
            false => Err(why
                .lines()
                .next()
                .unwrap_or("failed without a message")
                .to_owned()),
        }
    });
    apply(tree, patch, &["--reverse"])?;
    found
}

/// Runs `git apply`. GIT_CEILING_DIRECTORIES keeps it from finding our repository, which the folder would
/// seem to belong to.
fn apply(tree: &Path, patch: &Path, options: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("git");
    command.arg("apply").args(options).arg(patch).current_dir(tree);
    let above = tree.parent().unwrap_or(tree);
    command.env("GIT_CEILING_DIRECTORIES", above);
    match command.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("the patch no longer applies".to_owned()),
    }
}

/// Builds the proxy from the copied sources. Returns the folder of the program.
fn build(tree: &Path, fuel: bool) -> Result<PathBuf, Failure> {
    let folder = target().join(if fuel { "planted/fuel" } else { "planted/built" });
    let mut command = Build::Quick.cargo_into("build", &folder);
    command.args(["--quiet", "--bin", "dnsweir"]);
    for name in crates().map_err(|error| format!("crates: {error}"))? {
        command.args(["--config", &format!("profile.release.package.{name}.{APART}")]);
    }
    if fuel {
        command.args(["--features", FUEL]);
    }
    call(command.current_dir(tree))?;
    Ok(folder.join("release"))
}

/// Returns the names of the proxy's own crates.
fn crates() -> io::Result<Vec<String>> {
    let mut names = vec!["dnsweir".to_owned()];
    for entry in fs::read_dir(root().join("crates"))? {
        names.push(format!("dnsweir-{}", entry?.file_name().to_string_lossy()));
    }
    Ok(names)
}

/// Copies the sources with their modification times, so that only changed crates are compiled again.
fn copy(tree: &Path) -> io::Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()?;
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    for name in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        let (from, to) = (root().join(name), tree.join(name));
        if !from.is_file() {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(tree))?;
        fs::copy(&from, &to)?;
        let written = fs::metadata(&from)?.modified()?;
        fs::File::options().write(true).open(&to)?.set_modified(written)?;
    }
    Ok(())
}
