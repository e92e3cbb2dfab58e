//! Packs the image, the package and the SDK, for this machine's processor or another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::target;
use crate::commands::{Failure, built, call, cargo, root};
use crate::processor::{self, Library};

/// Packs `what`, an `image` or a `package`. The program is the release build's, or with `--arch` one that is
/// built here for that processor. Other arguments go to the packaging program.
pub fn pack(what: &str, args: &[String]) -> Result<(), Failure> {
    let mut rest = args.to_vec();
    let arch = match rest.iter().position(|arg| arg == "--arch") {
        Some(at) if at + 1 < rest.len() => rest.drain(at..at + 2).nth(1),
        Some(_) => return Err("--arch needs a value: amd64 or arm64".to_owned()),
        None => None,
    };
    let mut command = packaging();
    let program = match arch {
        Some(arch) => processor::named(&arch)?.program(Library::Glibc)?,
        None => built("dnsweir"),
    };
    let out = root().join("target");
    command.arg("--program").arg(program);
    if !rest.iter().any(|arg| arg == "--out") {
        command.arg("--out").arg(out);
    }
    // `--name` is an option of the subcommand `image`, so it must come after it.
    let (name, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|arg| arg.starts_with("--name"));
    call(command.args(rest).arg(what).args(name))
}

/// Returns a call of the packaging program. The proxy for this machine writes the manual pages.
pub fn packaging() -> Command {
    let mut command = Command::new(built("dnsweir-packaging"));
    command.current_dir(root()).arg("--native").arg(built("dnsweir"));
    command
}

/// The crates that are published. Cargo refuses to publish the others, which have `publish = false`.
const CRATES: [&str; 1] = ["dnsweir-filter"];

/// Packs what authors of filters get from registries, as it is published: the SDK's crate, after a test build
/// from its own files, and the interface as WIT, C and Go. Publishes nothing. The crate's page shows
/// `repository`, if given.
pub fn sdk(repository: Option<&str>, out: &Path) -> Result<(), Failure> {
    let source = repository.map_or_else(|| Ok(root()), clone_with_repository)?;
    let folder = target().join("package/target");
    let call_cargo = |words: &[&str]| {
        let mut command = cargo(words.iter().copied());
        command.args(["--allow-dirty", "--target-dir"]).arg(&folder);
        command.current_dir(&source);
        call(command)
    };
    call_cargo(&["publish", "--dry-run", "--workspace"])?;
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    for name in CRATES {
        call_cargo(&["package", "--no-verify", "--package", name])?;
        let file = format!("{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        let copied = fs::copy(folder.join("package").join(&file), out.join(&file));
        copied.map_err(|error| format!("{file}: {error}"))?;
    }
    call(packaging().arg("--out").arg(out).arg("interface"))
}

/// Clones what is committed, and adds the repository's URL to the SDK's manifest there. The manifest in this
/// repository has none, because the URL is only chosen for a release.
fn clone_with_repository(url: &str) -> Result<PathBuf, Failure> {
    let clone = target().join("package/source");
    if clone.exists() {
        fs::remove_dir_all(&clone).map_err(|error| format!("{}: {error}", clone.display()))?;
    }
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--shared"]).arg(root()).arg(&clone);
    call(git)?;
    let manifest = clone.join("guest-sdk/Cargo.toml");
    let failed = |error| format!("{}: {error}", manifest.display());
    let text = fs::read_to_string(&manifest).map_err(failed)?;
    fs::write(&manifest, add_repository(&text, url)).map_err(failed)?;
    Ok(clone)
}

/// Returns the manifest with the repository's URL, unless it already has one.
fn add_repository(manifest: &str, url: &str) -> String {
    match manifest.contains("\nrepository") {
        true => manifest.to_owned(),
        false => manifest.replacen("\nreadme = ", &format!("\nrepository = {url:?}\nreadme = "), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_the_repository() {
        let manifest = fs::read_to_string(root().join("guest-sdk/Cargo.toml")).unwrap();
        let url = "https://git.example/dnsweir";
        let once = add_repository(&manifest, url);
        let line = format!("repository = {url:?}");
        assert!(once.lines().any(|other| other == line), "{once}");
        assert_eq!(
            add_repository(&once, "https://other.example"),
            once,
            "an existing URL is kept"
        );
    }
}
