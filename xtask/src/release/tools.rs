//! What a release is made with, and of: looked at before hours are spent on it.

use std::process::Command;

use super::options::Options;
use crate::commands::{Failure, root};
use crate::released;

/// Programs, and the packages of Debian that have them: for all, for the other processor, to sign, and to push.
const ALWAYS: [(&str, &str); 3] = [
    ("musl-gcc", "musl-tools"),
    ("xtables-nft-multi", "iptables"),
    ("nft", "nftables"),
];
const EMULATORS: &str = "qemu-user-static";
const SIGN: [(&str, &str); 1] = [("openssl", "openssl")];
const PUSH: [(&str, &str); 1] = [("skopeo", "skopeo")];

/// Whether all is there that these options want.
///
/// # Errors
/// Says what is not, and how to get it.
pub fn are_there(options: &Options) -> Result<(), Failure> {
    let mut wanted: Vec<(&str, String)> = ALWAYS.map(|(tool, package)| (tool, package.to_owned())).into();
    for processor in options.processors.iter().filter(|one| !one.is_here()) {
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
            "not everything is there: apt-get install {}",
            missing.join(" ")
        ));
    }
    nothing_changed()?;
    tag_is_the_version()?;
    released::is_kept()
}

/// Programs of the system are not in everybody's path.
fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.any(|folder| folder.join(tool).is_file())
}

/// What is built has to be what the commit says.
fn nothing_changed() -> Result<(), Failure> {
    let changes = git(&["status", "--porcelain", "--untracked-files=all"])?;
    match changes.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "a release is made of what is committed, and there is more:\n{changes}"
        )),
    }
}

/// A commit that is tagged as a version is tagged as this one.
fn tag_is_the_version() -> Result<(), Failure> {
    let wanted = concat!("v", env!("CARGO_PKG_VERSION"));
    let tags = git(&["tag", "--points-at", "HEAD", "v*"])?;
    match tags.is_empty() || tags.lines().any(|tag| tag == wanted) {
        true => Ok(()),
        false => Err(format!(
            "the commit is tagged {tags}, and Cargo.toml says {wanted}"
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

    /// What is missing there is found before a tag is, not after.
    #[test]
    fn the_workflow_installs_what_is_wanted() {
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
