//! Cargo and other programs, called as a person would call them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What went wrong, for a person to read. The commands themselves have already said more.
pub type Failure = String;

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Where cargo leaves the release's programs. This one was built by cargo, too, so they stand in one folder, wherever
/// `CARGO_TARGET_DIR` or a configuration file put that.
pub fn release_folder() -> PathBuf {
    let this = std::env::current_exe().ok();
    let folder = this.as_deref().and_then(Path::parent);
    folder.map_or_else(|| root().join("target/release"), Path::to_owned)
}

/// A program of the release.
pub fn built(name: &str) -> PathBuf {
    release_folder().join(name)
}

/// The cargo that runs us, at the workspace's root.
pub fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    told_what_is_built(as_typed(command))
}

/// A command without what cargo said of this program. Another cargo would take that for something that changed: a build
/// script that looks at it, ring's, runs again, and all that depends on it is compiled again.
pub fn as_typed(mut command: Command) -> Command {
    let of_this = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in std::env::vars().map(|(name, _)| name).filter(of_this) {
        command.env_remove(name);
    }
    command
}

/// A command that builds, or has another one build, told what `dnsweir --version` shall say: the commit, and whether
/// something was changed since, and the compiler.
pub fn told_what_is_built(mut command: Command) -> Command {
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .current_dir(root())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = said(
        "git",
        &["describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"],
    );
    let commit = commit.unwrap_or_else(|| "not known".to_owned());
    let compiler = said("rustc", &["--version"]).unwrap_or_else(|| "rustc, version not known".to_owned());
    let version = env!("CARGO_PKG_VERSION");
    command.env(
        "DNSWEIR_BUILT",
        format!("{version}\ncommit: {commit}\ncompiler: {compiler}"),
    );
    command
}

/// Runs a command to its end, its output going where ours goes.
pub fn call(mut command: impl std::borrow::BorrowMut<Command>) -> Result<(), Failure> {
    let command = command.borrow_mut();
    let shown = shown(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("cannot run `{shown}`: {error}")),
    }
}

/// Whether a command runs and succeeds; its output is dropped.
pub fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether what skips itself fails the run.
pub fn strict() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
