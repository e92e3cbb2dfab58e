//! The image, the package and the SDK, for this machine's processor or another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::target;
use crate::commands::{Failure, built, call, cargo, root};
use crate::processor::{self, Library};

/// Packs what `build` left, or what is built here for another processor. `what` is `image` or `package`; of `args`,
/// `--arch` is looked at here, and the rest is the packaging program's.
pub fn pack(what: &str, args: &[String]) -> Result<(), Failure> {
    let mut rest = args.to_vec();
    let arch = match rest.iter().position(|arg| arg == "--arch") {
        Some(at) if at + 1 < rest.len() => rest.drain(at..at + 2).nth(1),
        Some(_) => return Err("--arch: say which, amd64 or arm64".to_owned()),
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
    // What the image alone takes stands behind its name.
    let (name, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|arg| arg.starts_with("--name"));
    call(command.args(rest).arg(what).args(name))
}

/// The packaging program, which has manual pages written by the program for this machine.
pub fn packaging() -> Command {
    let mut command = Command::new(built("dnsweir-packaging"));
    command.current_dir(root()).arg("--native").arg(built("dnsweir"));
    command
}

/// What is published as crates; cargo refuses others by itself, since their manifests say so.
const CRATES: [&str; 1] = ["dnsweir-filter"];

/// Packs what authors of filters get from registries, as it would be published: the SDK's crate, built once from what is in it, and
/// the interface, also in C and in Go. Publishes nothing. With a `repository`, the crate's page says where the source is.
pub fn sdk(repository: Option<&str>, out: &Path) -> Result<(), Failure> {
    let source = repository.map_or_else(|| Ok(root()), with_repository)?;
    let folder = target().join("package/target");
    let of_crates = |words: &[&str]| {
        let mut command = cargo(words.iter().copied());
        command.args(["--allow-dirty", "--target-dir"]).arg(&folder);
        command.current_dir(&source);
        call(command)
    };
    of_crates(&["publish", "--dry-run", "--workspace"])?;
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    for name in CRATES {
        of_crates(&["package", "--no-verify", "--package", name])?;
        let file = format!("{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        let copied = fs::copy(folder.join("package").join(&file), out.join(&file));
        copied.map_err(|error| format!("{file}: {error}"))?;
    }
    call(packaging().arg("--out").arg(out).arg("interface"))
}

/// A clone of what is committed, in which the manifests of what is published say where the source is: there is no place for that in the
/// repository until somebody has chosen one.
fn with_repository(url: &str) -> Result<PathBuf, Failure> {
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
    fs::write(&manifest, said(&text, url)).map_err(failed)?;
    Ok(clone)
}

/// A manifest that says where the source is, if it did not.
fn said(manifest: &str, url: &str) -> String {
    match manifest.contains("\nrepository") {
        true => manifest.to_owned(),
        false => manifest.replacen("\nreadme = ", &format!("\nrepository = {url:?}\nreadme = "), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_says_where_the_source_is() {
        let manifest = fs::read_to_string(root().join("guest-sdk/Cargo.toml")).unwrap();
        let url = "https://git.example/dnsweir";
        let once = said(&manifest, url);
        let line = format!("repository = {url:?}");
        assert!(once.lines().any(|other| other == line), "{once}");
        assert_eq!(
            said(&once, "https://other.example"),
            once,
            "what it says itself is left"
        );
    }
}
