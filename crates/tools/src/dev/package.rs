//! A filter's package, built by cargo or by a `build.sh`: finds it and builds it.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use super::view::View;

/// The target that filters are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

/// The script that builds a package without cargo.
const SCRIPT: &str = "build.sh";

/// The result of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Built {
    /// It failed, and the error has been shown.
    Failed,
    /// The same modules as before.
    Unchanged,
    /// Different modules.
    Changed,
}

/// How a package is built.
#[derive(Debug, PartialEq, Eq)]
enum Builder {
    /// By cargo, with the profile `dev`, `release`, or a custom one.
    Cargo(String),
    /// By `build.sh FOLDER`, which writes modules into that folder.
    Script,
}

/// A folder whose source is built into a module.
pub struct Package {
    pub(super) folder: PathBuf,
    builder: Builder,
    /// The modules of the configuration; build outputs replace those of the same file name.
    modules: Vec<PathBuf>,
}

impl Package {
    /// Returns the package whose target folder contains a module; `None` if the module is elsewhere.
    pub(super) fn of_module(module: &Path) -> Option<Package> {
        let folder = |target: &Path, with: &str| {
            let folder = target.parent().filter(|_| target.ends_with("target"))?;
            let folder = folder.join(with).is_file().then(|| fs::canonicalize(folder).ok());
            folder.flatten()
        };
        let package = |folder, builder| Package {
            folder,
            builder,
            modules: Vec::new(),
        };
        // FOLDER/target/NAME.wasm
        let above = module.parent()?;
        if let Some(folder) = folder(above, SCRIPT) {
            return Some(package(folder, Builder::Script));
        }
        // FOLDER/target/wasm32-unknown-unknown/PROFILE/NAME.wasm
        let profile = match above.file_name()?.to_string_lossy().into_owned() {
            debug if debug == "debug" => "dev".to_owned(),
            other => other,
        };
        let triple = above.parent().filter(|triple| triple.ends_with(TARGET))?;
        let folder = folder(triple.parent()?, "Cargo.toml")?;
        Some(package(folder, Builder::Cargo(profile)))
    }

    /// Returns the package in a folder; cargo builds it with the profile `release`.
    ///
    /// # Errors
    /// When there is none.
    pub fn in_folder(folder: &Path) -> Result<Package, String> {
        let builder = if folder.join("Cargo.toml").is_file() {
            Builder::Cargo("release".into())
        } else if folder.join(SCRIPT).is_file() {
            Builder::Script
        } else {
            return Err(format!(
                "there is neither a Cargo.toml nor a {SCRIPT} in {}",
                folder.display()
            ));
        };
        let folder = fs::canonicalize(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Package {
            folder,
            builder,
            modules: Vec::new(),
        })
    }

    /// Whether both are in the same folder.
    pub fn is(&self, other: &Package) -> bool {
        self.folder == other.folder
    }

    /// Sets the modules of the configuration.
    pub(super) fn feeds(&mut self, modules: &[PathBuf]) {
        self.modules = modules.to_vec();
    }

    fn name(&self) -> String {
        self.folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// The contents of its modules; `None` for those that cannot be read.
    fn contents(&self) -> Vec<Option<Vec<u8>>> {
        self.modules.iter().map(|module| fs::read(module).ok()).collect()
    }

    /// Checks that cargo can build it.
    ///
    /// # Errors
    /// What is missing, and how to install it. Scripts check this themselves.
    pub(super) fn check_tools(&self) -> Result<(), String> {
        if self.builder == Builder::Script {
            return Ok(());
        }
        let printed = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", TARGET])
            .current_dir(&self.folder)
            .output();
        match printed {
            Ok(printed) if printed.status.success() => {
                let folder = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
                if Path::new(&folder).is_dir() {
                    return Ok(());
                }
                Err(format!(
                    "Rust has no {TARGET} on this machine; add it with `rustup target add {TARGET}` \
                     (without rustup, Debian's package is libstd-rust-dev-wasm32)"
                ))
            }
            Ok(printed) => Err(format!(
                "Rust does not work in {}: {}",
                self.folder.display(),
                String::from_utf8_lossy(&printed.stderr).trim()
            )),
            Err(error) => Err(format!(
                "filters in Rust need its compiler: rustc cannot be run ({error}); install Rust from https://rustup.rs"
            )),
        }
    }

    /// Builds it, and copies the result to where the configuration expects it.
    pub fn build(&self, view: &View) -> Built {
        let before = self.contents();
        let name = self.name();
        view.note(&format!("building {name}"));
        let begun = Instant::now();
        let (success, said, artifacts) = match self.run(view) {
            Ok(done) => done,
            Err(error) => {
                view.failed(&format!("{name} cannot be built"), &error.to_string());
                return Built::Failed;
            }
        };
        if !success {
            view.failed(
                &format!("{name} does not build: the previous module stays in use"),
                &said,
            );
            return Built::Failed;
        }
        if said.contains("warning") {
            view.quote(&said);
        }
        let took = begun.elapsed().as_secs_f64();
        for artifact in artifacts {
            for module in self
                .modules
                .iter()
                .filter(|module| module.file_name() == artifact.file_name())
            {
                if let Err(error) = place(&artifact, module) {
                    let failed = format!("cannot replace {}", module.display());
                    view.failed(&failed, &error.to_string());
                    return Built::Failed;
                }
            }
        }
        view.done(&format!("built {name} in {took:.2} s"));
        match self.contents() == before {
            true => Built::Unchanged,
            false => Built::Changed,
        }
    }

    /// Runs the build and shows its progress. Returns whether it succeeded, its other output, and its
    /// modules.
    fn run(&self, view: &View) -> io::Result<(bool, String, Vec<PathBuf>)> {
        let left = self.folder.join("target/dev");
        let mut command = match &self.builder {
            Builder::Cargo(profile) => {
                let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                cargo.args(["build", "--target", TARGET, "--profile", profile]);
                cargo.arg("--message-format=json-render-diagnostics");
                cargo.args(["--color", if view.colour { "always" } else { "never" }]);
                cargo
            }
            Builder::Script => {
                let mut script = Command::new("sh");
                script.arg(SCRIPT).arg(&left);
                script
            }
        };
        command.current_dir(&self.folder).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut printed = String::new();
        let said = thread::scope(|scope| {
            let said = scope.spawn(|| {
                let mut said = String::new();
                for line in stderr
                    .into_iter()
                    .flat_map(|stderr| BufReader::new(stderr).lines())
                {
                    let Ok(line) = line else { break };
                    match progress(&line) {
                        Some(step) => view.note(&step),
                        None => said = said + &line + "\n",
                    }
                }
                said
            });
            let read = stdout.map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut printed));
            read.map(|_| said.join().unwrap_or_default())
        })?;
        let success = child.wait()?.success();
        let artifacts = match self.builder {
            Builder::Cargo(_) => artifacts(&printed),
            Builder::Script => {
                let names = self.modules.iter().filter_map(|module| module.file_name());
                let left = names.map(|name| left.join(name));
                left.filter(|file| file.is_file()).collect()
            }
        };
        Ok((success, said, artifacts))
    }
}

/// Returns a progress message of cargo without colours; `None` for any other line.
fn progress(line: &str) -> Option<String> {
    let mut plain = String::new();
    for (index, piece) in line.split("\x1b[").enumerate() {
        // Each piece after an escape starts with parameters and an `m`.
        plain += match piece.split_once('m') {
            Some((_, text)) if index > 0 => text,
            _ => piece,
        };
    }
    let plain = plain.trim();
    let steps = ["Compiling", "Downloading", "Downloaded", "Updating", "Blocking"];
    steps
        .contains(&plain.split(' ').next()?)
        .then(|| plain.to_owned())
}

/// The modules named in cargo's messages.
fn artifacts(messages: &str) -> Vec<PathBuf> {
    let files = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["reason"] == "compiler-artifact").then_some(())?;
        let files = message["filenames"].as_array()?.iter();
        files
            .filter_map(|file| file.as_str())
            .find(|file| file.ends_with(".wasm"))
            .map(PathBuf::from)
    });
    files.collect()
}

/// Copies an artifact to the module's path, atomically, unless that is the same file or has the same content.
fn place(artifact: &Path, module: &Path) -> io::Result<()> {
    let same = fs::canonicalize(module)
        .ok()
        .is_some_and(|module| fs::canonicalize(artifact).ok() == Some(module));
    if same || fs::read(module).ok() == Some(fs::read(artifact)?) {
        return Ok(());
    }
    if let Some(folder) = module.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = module.with_extension("wasm.new");
    fs::copy(artifact, &beside)?;
    fs::rename(&beside, module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_in_a_target_folder_has_a_package() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let module = folder.join("target/wasm32-unknown-unknown/release/x.wasm");
        assert!(Package::of_module(&module).is_none(), "there is no Cargo.toml");
        fs::write(folder.join("Cargo.toml"), "").unwrap();
        let package = Package::of_module(&module).unwrap();
        assert_eq!(package.folder, fs::canonicalize(folder).unwrap());
        assert_eq!(package.builder, Builder::Cargo("release".into()));
        let module = folder.join("target/x.wasm");
        assert!(Package::of_module(&module).is_none(), "there is no build.sh");
        fs::write(folder.join(SCRIPT), "").unwrap();
        assert_eq!(Package::of_module(&module).unwrap().builder, Builder::Script);
        assert!(Package::of_module(&folder.join("filters/x.wasm")).is_none());
    }

    #[test]
    fn progress_is_told_from_messages() {
        let step = Some("Compiling x v0.1.0".to_owned());
        assert_eq!(progress("   Compiling x v0.1.0"), step);
        assert_eq!(progress("\x1b[1m\x1b[92m   Compiling\x1b[0m x v0.1.0"), step);
        for line in ["error: could not compile", "", "    Finished `dev` profile"] {
            assert_eq!(progress(line), None);
        }
    }

    #[test]
    fn artifacts_are_found_in_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/a.rlib\",\"/t/a.wasm\"]}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\nnot json\n";
        assert_eq!(artifacts(messages), [PathBuf::from("/t/a.wasm")]);
    }
}
