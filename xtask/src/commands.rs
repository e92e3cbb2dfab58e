//! Calls of cargo and other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An error message. The failed program has already printed the details.
pub type Failure = String;

/// Returns the workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Returns the folder of the release build's programs. This program is in it, too, even if `CARGO_TARGET_DIR`
/// or a configuration file has moved it.
pub fn release_folder() -> PathBuf {
    let this = std::env::current_exe().ok();
    let folder = this.as_deref().and_then(Path::parent);
    folder.map_or_else(|| root().join("target/release"), Path::to_owned)
}

/// Returns the path of a program of the release build.
pub fn built(name: &str) -> PathBuf {
    release_folder().join(name)
}

/// Returns a call of the cargo that started this program, in the workspace's root.
pub fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    with_version(without_package_variables(command))
}

/// Removes cargo's variables about this package from a command's environment. Otherwise another cargo would
/// see them as a change: ring's build script, which reads them, would run again, and everything that depends
/// on ring would be compiled again.
pub fn without_package_variables(mut command: Command) -> Command {
    let is_ours = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in std::env::vars().map(|(name, _)| name).filter(is_ours) {
        command.env_remove(name);
    }
    command
}

/// Sets what `dnsweir --version` will print in the programs that a command builds: the version, the commit,
/// whether files were changed since, and the compiler.
pub fn with_version(mut command: Command) -> Command {
    let output_of = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .current_dir(root())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = output_of(
        "git",
        &["describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"],
    );
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    let compiler = output_of("rustc", &["--version"]).unwrap_or_else(|| "rustc, version unknown".to_owned());
    let version = env!("CARGO_PKG_VERSION");
    command.env(
        "DNSWEIR_BUILT",
        format!("{version}\ncommit: {commit}\ncompiler: {compiler}"),
    );
    command
}

/// Runs a command to its end. It shares our output.
pub fn call(mut command: impl std::borrow::BorrowMut<Command>) -> Result<(), Failure> {
    let command = command.borrow_mut();
    let shown = shown(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("cannot run `{shown}`: {error}")),
    }
}

/// Returns whether a command runs and succeeds. Its output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Returns a command as it would be typed.
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

/// Returns whether a skipped test or check fails the run (`CI=true`).
pub fn strict() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
