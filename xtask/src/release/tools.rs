//! Checks the tools and the source of a release, before it spends hours on it.

use std::process::Command;

use super::options::Options;
use crate::commands::{Failure, root};
use crate::released;

/// Programs that every release needs, and the Debian packages that have them.
const ALWAYS: [(&str, &str); 3] = [
    ("musl-gcc", "musl-tools"),
    ("xtables-nft-multi", "iptables"),
    ("nft", "nftables"),
];
/// The Debian package of the emulators, for the other processor.
const EMULATORS: &str = "qemu-user-static";
/// For signing.
const SIGN: [(&str, &str); 1] = [("openssl", "openssl")];
/// For pushing.
const PUSH: [(&str, &str); 1] = [("skopeo", "skopeo")];

/// Checks that a release with these options can be built: programs, committed source, tag, and a kept filter.
///
/// # Errors
/// Names what is missing or wrong, and how to fix it.
pub fn check(options: &Options) -> Result<(), Failure> {
    let mut wanted: Vec<(&str, String)> = ALWAYS.map(|(tool, package)| (tool, package.to_owned())).into();
    for processor in options.processors.iter().filter(|one| !one.is_native()) {
        wanted.push((processor.gcc, processor.gcc_package()));
        wanted.push((processor.emulator, EMULATORS.to_owned()));
    }
    let signs = options.key.iter().flat_map(|_| SIGN);
    let pushes = Some(PUSH).filter(|_| options.push).into_iter().flatten();
    wanted.extend(
        signs
            .chain(pushes)
            .map(|(tool, package)| (tool, package.to_owned())),
    );
    let missing: Vec<String> = wanted
        .into_iter()
        .filter(|(tool, _)| !is_installed(tool))
        .map(|(_, package)| package)
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "programs are missing: apt-get install {}",
            missing.join(" ")
        ));
    }
    check_committed()?;
    check_tag()?;
    released::check_kept()
}

/// Returns whether a program is installed. The folders of system programs may not be in PATH.
fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.any(|folder| folder.join(tool).is_file())
}

/// Checks that everything is committed: the artifacts name the commit that they are built from.
fn check_committed() -> Result<(), Failure> {
    let changes = git(&["status", "--porcelain", "--untracked-files=all"])?;
    match changes.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "files differ from the commit: commit or remove the changes before a release\n{changes}"
        )),
    }
}

/// Checks that the commit's version tag, if it has one, is this version.
fn check_tag() -> Result<(), Failure> {
    let wanted = concat!("v", env!("CARGO_PKG_VERSION"));
    let tags = git(&["tag", "--points-at", "HEAD", "v*"])?;
    match tags.is_empty() || tags.lines().any(|tag| tag == wanted) {
        true => Ok(()),
        false => Err(format!(
            "the commit's tag {tags} is not the version in Cargo.toml: it must be {wanted}"
        )),
    }
}

fn git(args: &[&str]) -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.args(args).current_dir(root());
    let output = git.output().map_err(|error| format!("cannot run git: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!(
            "git {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor;

    /// Finds a package missing from the workflow before a tag starts it.
    #[test]
    fn the_workflow_installs_all_tools() {
        let workflow = std::fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
        let named = ALWAYS
            .iter()
            .chain(&SIGN)
            .chain(&PUSH)
            .map(|(_, package)| (*package).to_owned());
        let other = processor::named("arm64").unwrap().gcc_package();
        for package in named.chain([EMULATORS.to_owned(), other]) {
            assert!(
                workflow.split_whitespace().any(|word| word == package),
                "{package} is not installed"
            );
        }
    }
}
