//! The cargo package of a filter: where it is, when it changes, how it is built.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::view::View;

/// What filters are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

/// How long the sources must have been quiet: editors write in several steps.
const QUIET: Duration = Duration::from_millis(50);

/// Folders of a package that are not its source.
const NOT_SOURCE: [&str; 3] = ["target", ".git", "node_modules"];

/// What came of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Built {
    /// Nothing: the error has been shown.
    Failed,
    /// The same modules as before.
    Unchanged,
    /// Others.
    Changed,
}

/// A cargo package that becomes a module.
pub struct Package {
    folder: PathBuf,
    /// `debug`, `release`, or a profile of the author's.
    profile: String,
    /// The modules of the configuration; those called as what cargo leaves are fed by it.
    modules: Vec<PathBuf>,
}

impl Package {
    /// The package in whose target folder a module lies; none if it lies elsewhere.
    pub fn of_module(module: &Path) -> Option<Package> {
        // FOLDER/target/wasm32-unknown-unknown/PROFILE/NAME.wasm
        let profile = module.parent()?;
        let target = profile.parent()?;
        let folder = target.parent()?.parent()?;
        let is_target = target.file_name()? == TARGET && target.parent()?.file_name()? == "target";
        (is_target && folder.join("Cargo.toml").is_file()).then(|| Package {
            folder: folder.to_owned(),
            profile: profile
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            modules: Vec::new(),
        })
    }

    /// The package in a folder, built for release.
    ///
    /// # Errors
    /// When there is none.
    pub fn in_folder(folder: &Path) -> Result<Package, String> {
        if !folder.join("Cargo.toml").is_file() {
            return Err(format!("there is no Cargo.toml in {}", folder.display()));
        }
        let folder = fs::canonicalize(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Package {
            folder,
            profile: "release".into(),
            modules: Vec::new(),
        })
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Package) -> bool {
        self.folder == other.folder
    }

    /// Says which modules the configuration has.
    pub fn feeds(&mut self, modules: &[PathBuf]) {
        self.modules = modules.to_vec();
    }

    fn name(&self) -> String {
        self.folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// The octets of all modules that there are.
    fn contents(&self) -> Vec<Option<Vec<u8>>> {
        self.modules.iter().map(|module| fs::read(module).ok()).collect()
    }

    /// Builds it, and puts what cargo leaves where the configuration wants it.
    pub fn build(&self, view: &View) -> Built {
        let before = self.contents();
        let name = self.name();
        view.note(&format!("building {name}"));
        let begun = Instant::now();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args([
            "build",
            "--target",
            TARGET,
            "--message-format=json-render-diagnostics",
        ]);
        cargo.args(["--color", if view.colour { "always" } else { "never" }]);
        match self.profile.as_str() {
            "debug" => {}
            profile => {
                cargo.args(["--profile", profile]);
            }
        }
        let output = match cargo.current_dir(&self.folder).stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) => {
                view.failed(&format!("{name}: cargo cannot be run"), &error.to_string());
                return Built::Failed;
            }
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
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
        for artifact in artifacts(&String::from_utf8_lossy(&output.stdout)) {
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
}

/// Modules that cargo's messages name.
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

/// Puts an artifact where the configuration has the module, unless that is the same file or has the same
/// content. Moved into place as a whole.
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

/// Tells when sources change.
pub struct Watch {
    /// Kept for as long as events are wanted.
    _watcher: RecommendedWatcher,
    events: Receiver<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Watch {
    /// Watches the sources of these packages, and the configuration's folder.
    ///
    /// # Errors
    /// When the machine has no more watches to give.
    pub fn start(packages: &[Package], file: &Path) -> Result<Watch, String> {
        let (send, events) = channel();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if let Ok(event) = event
                && !event.kind.is_access()
            {
                for path in event.paths {
                    let _ = send.send(path);
                }
            }
        })
        .map_err(|error| format!("cannot watch for changes: {error}"))?;
        let mut watch = |folder: &Path, mode| {
            let watched = watcher.watch(folder, mode);
            watched.map_err(|error| format!("cannot watch {}: {error}", folder.display()))
        };
        let mut folders: BTreeSet<PathBuf> = packages.iter().map(|package| package.folder.clone()).collect();
        for folder in &folders {
            watch(folder, RecursiveMode::NonRecursive)?;
            for entry in fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
                let source = !NOT_SOURCE.iter().any(|name| entry.file_name() == *name);
                if source && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    watch(&entry.path(), RecursiveMode::Recursive)?;
                }
            }
        }
        if let Some(folder) = file.parent()
            && folders.insert(folder.to_owned())
        {
            watch(folder, RecursiveMode::NonRecursive)?;
        }
        Ok(Watch {
            _watcher: watcher,
            events,
            folders: folders.into_iter().collect(),
        })
    }

    /// Waits until a file has changed and all of them have come to rest; gives those that have.
    pub fn changed(&mut self) -> BTreeSet<PathBuf> {
        let mut changed = BTreeSet::new();
        while changed.is_empty() {
            // Without a sender nothing ever changes again.
            let Ok(first) = self.events.recv() else {
                loop {
                    std::thread::park()
                }
            };
            changed.extend(self.source(first));
            while let Ok(path) = self.events.recv_timeout(QUIET) {
                changed.extend(self.source(path));
            }
        }
        changed
    }

    /// Waits for a change; gives the packages it concerns, perhaps none.
    pub fn changed_packages<'p>(&mut self, packages: &'p [Package]) -> Vec<&'p Package> {
        let changed = self.changed();
        let concerned = packages.iter().filter(|package| {
            let source = |path: &PathBuf| {
                path.strip_prefix(&package.folder).is_ok_and(|rest| {
                    // The configuration and test cases are the proxy's, and no part of the module.
                    !rest
                        .extension()
                        .is_some_and(|extension| extension == "kdl" || extension == "md")
                })
            };
            changed.iter().any(source)
        });
        concerned.collect()
    }

    /// The path, if it is one of a source: not what cargo or an editor leaves beside it.
    fn source(&self, path: PathBuf) -> Option<PathBuf> {
        let rest = self
            .folders
            .iter()
            .filter_map(|folder| path.strip_prefix(folder).ok())
            .next_back()?;
        let first = rest.iter().next()?.to_string_lossy().into_owned();
        let name = path.file_name()?.to_string_lossy().into_owned();
        let left = name.ends_with('~') || name.ends_with(".swp") || name.starts_with(".#") || name == "4913";
        (!left && !NOT_SOURCE.contains(&first.as_str()) && name != "Cargo.lock").then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_in_a_target_folder_has_a_package() {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("target/wasm32-unknown-unknown/release/x.wasm");
        assert!(Package::of_module(&module).is_none(), "there is no Cargo.toml");
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        let package = Package::of_module(&module).unwrap();
        assert_eq!(
            (package.folder.as_path(), package.profile.as_str()),
            (folder.path(), "release")
        );
        assert!(Package::of_module(&folder.path().join("filters/x.wasm")).is_none());
    }

    #[test]
    fn artifacts_are_found_in_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/a.rlib\",\"/t/a.wasm\"]}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\nnot json\n";
        assert_eq!(artifacts(messages), [PathBuf::from("/t/a.wasm")]);
    }
}
