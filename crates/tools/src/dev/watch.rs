//! Watches the sources of packages, and the configuration's folder, for changes.

use std::collections::{BTreeSet, VecDeque};
use std::future::pending;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

use super::package::Package;
use crate::watch::{Event, Inotify};

/// How long the sources must be quiet before a build: editors write in several steps.
const QUIET: Duration = Duration::from_millis(50);

/// Folders of a package that are not its source.
const NOT_SOURCE: [&str; 3] = ["target", ".git", "node_modules"];

/// The most folders that are watched; more are probably no sources.
const MOST_FOLDERS: usize = 4096;

/// Watches sources for changes.
pub struct Watch {
    sources: Sources,
    /// Waits for events.
    runtime: Runtime,
}

/// The watched folders.
struct Sources {
    inotify: Inotify,
    /// Those of packages, which are watched with all folders below them.
    packages: Vec<PathBuf>,
    /// Those of packages, and the configuration's.
    folders: BTreeSet<PathBuf>,
}

impl Watch {
    /// Watches the sources of these packages, and the configuration's folder.
    ///
    /// # Errors
    /// When the machine has no more watches, or there are too many folders.
    pub fn start(packages: &[Package], file: &Path) -> Result<Watch, String> {
        let problem = |error: io::Error| format!("cannot watch for changes: {error}");
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let packages: Vec<PathBuf> = packages.iter().map(|package| package.folder.clone()).collect();
        let mut sources = Sources {
            inotify: Inotify::new().map_err(problem)?,
            folders: packages.iter().cloned().collect(),
            packages,
        };
        sources.watch()?;
        // Without symbolic links, as those of packages: it may be one of them.
        if let Some(folder) = file.parent().and_then(|folder| fs::canonicalize(folder).ok())
            && sources.folders.insert(folder.clone())
        {
            let watched = sources.inotify.watch(&folder);
            watched.map_err(|error| cannot_watch(&folder, &error))?;
        }
        Ok(Watch {
            sources,
            runtime: runtime.map_err(problem)?,
        })
    }

    /// Waits for a change, and then until no more follow; returns the changed files.
    pub fn changed(&mut self) -> BTreeSet<PathBuf> {
        self.runtime.block_on(self.sources.changed())
    }

    /// Waits for a change; returns the packages it affects, possibly none.
    pub(super) fn changed_packages<'p>(&mut self, packages: &'p [Package]) -> Vec<&'p Package> {
        let changed = self.changed();
        let concerned = packages.iter().filter(|package| {
            let source = |path: &PathBuf| {
                path.strip_prefix(&package.folder).is_ok_and(|rest| {
                    // The proxy reads configurations and test cases; they are not part of the module.
                    !rest
                        .extension()
                        .is_some_and(|extension| extension == "kdl" || extension == "md")
                })
            };
            changed.iter().any(source)
        });
        concerned.collect()
    }
}

impl Sources {
    /// Watches the folders of all packages, each under the path at which it is now.
    fn watch(&mut self) -> Result<(), String> {
        let mut ahead: VecDeque<PathBuf> = self.packages.iter().cloned().collect();
        let mut found = BTreeSet::new();
        while let Some(folder) = ahead.pop_front() {
            match identity(&folder) {
                Some(id) if found.insert(id) => {}
                // A link leads to one that was found before, or it was removed just now.
                Some(_) | None => continue,
            }
            // Those that were moved away are watched, too: they may come back.
            if found.len() > MOST_FOLDERS || self.inotify.watched() >= 2 * MOST_FOLDERS {
                return Err(format!(
                    "cannot watch {}: the packages have more than {MOST_FOLDERS} folders; move those without \
                     sources into `target`",
                    folder.display()
                ));
            }
            match self.inotify.watch(&folder) {
                Ok(()) => {}
                // It was removed just now.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(cannot_watch(&folder, &error)),
            }
            let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
            let inside = inside.map(|entry| entry.path());
            ahead.extend(inside.filter(|path| self.is_folder_of_sources(path)));
        }
        Ok(())
    }

    /// Waits for a change, and then until no more follow.
    async fn changed(&mut self) -> BTreeSet<PathBuf> {
        let mut changed = BTreeSet::new();
        while changed.is_empty() {
            changed.extend(self.next().await);
            while let Ok(more) = timeout(QUIET, self.next()).await {
                changed.extend(more);
            }
        }
        changed
    }

    /// Waits for events; returns the sources that they are about, possibly none. Cancel-safe.
    async fn next(&mut self) -> Vec<PathBuf> {
        let Ok(events) = self.inotify.read().await else {
            // There will be no more.
            return pending().await;
        };
        let mut changed = Vec::new();
        let mut other_folders = false;
        for event in events {
            match event {
                Event::Written(path) | Event::Whole(path) => {
                    // It is or was a folder or a link to one, as far as is known.
                    other_folders |= self.is_in_package(&path) && !path.is_file();
                    changed.extend(self.is_source(&path).then_some(path));
                }
                // Written to before, if at all.
                Event::Closed(_) | Event::Unwatched(_) => {}
                // Any of them may have changed.
                Event::Unknown => {
                    other_folders = true;
                    changed.extend(self.packages.iter().cloned());
                }
            }
        }
        if other_folders {
            // What cannot be watched any more counts as no source.
            let _ = self.watch();
        }
        changed
    }

    /// Whether it is a folder with sources of a package. It may be a link, except at the top of the package, where
    /// links often lead to large folders of other things.
    fn is_folder_of_sources(&self, path: &Path) -> bool {
        let is_at_top = self
            .packages
            .iter()
            .any(|package| path.parent() == Some(package.as_path()));
        !self.is_left_out(path) && path.is_dir() && !(is_at_top && path.is_symlink())
    }

    fn is_in_package(&self, path: &Path) -> bool {
        self.packages.iter().any(|package| path.starts_with(package))
    }

    /// Whether it is a source file: not one that cargo or an editor left.
    fn is_source(&self, path: &Path) -> bool {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else {
            return false;
        };
        let left = name.ends_with('~') || name.ends_with(".swp") || name.starts_with(".#") || name == "4913";
        let written = self.is_left_out(path) || name == "Cargo.lock" || is_own_output(path);
        !left && !written
    }

    /// Whether it is in a folder of its package that is not source, or no file of a package at all.
    fn is_left_out(&self, path: &Path) -> bool {
        let below = self
            .folders
            .iter()
            .rev()
            .find_map(|folder| path.strip_prefix(folder).ok());
        let first = below.and_then(|below| below.iter().next());
        first.is_none_or(|first| NOT_SOURCE.iter().any(|name| first == *name))
    }
}

fn cannot_watch(folder: &Path, error: &io::Error) -> String {
    let problem = match error.kind() {
        // ENOSPC, whose text is about disks.
        ErrorKind::StorageFull => {
            "this user has no more watches: raise fs.inotify.max_user_watches with sysctl".into()
        }
        _ => error.to_string(),
    };
    format!("cannot watch {}: {problem}", folder.display())
}

/// Whether this process's output goes to this file (`dnsweir dev > dev.log`): what is printed about a build
/// must not cause another.
fn is_own_output(path: &Path) -> bool {
    let own = ["/proc/self/fd/1", "/proc/self/fd/2"].map(|own| identity(Path::new(own)));
    identity(path).is_some_and(|id| own.contains(&Some(id)))
}

/// The device and inode that a path leads to, if any.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = fs::metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A package in a temporary folder, and a configuration beside it.
    struct World {
        folder: tempfile::TempDir,
        package: Package,
    }

    impl World {
        fn new() -> World {
            let folder = tempfile::tempdir().unwrap();
            let package = folder.path().join("package");
            for made in ["src/deep", "target/debug"] {
                fs::create_dir_all(package.join(made)).unwrap();
            }
            fs::write(package.join("Cargo.toml"), "").unwrap();
            let package = Package::in_folder(&package).unwrap();
            World { folder, package }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.package.folder.join(path)
        }

        fn write(&self, path: &str) {
            fs::write(self.at(path), "x").unwrap();
        }

        fn watch(&self) -> Watch {
            let file = self.folder.path().join("dnsweir.kdl");
            Watch::start(std::slice::from_ref(&self.package), &file).unwrap()
        }
    }

    #[test]
    fn changes_of_sources_are_reported() {
        let world = World::new();
        let mut watch = world.watch();
        for path in ["Cargo.toml", "src/lib.rs", "src/deep/file.rs"] {
            // What is not source goes unnoticed.
            for other in [
                "target/debug/x.wasm",
                "Cargo.lock",
                "src/lib.rs~",
                "src/.lib.rs.swp",
            ] {
                world.write(other);
            }
            world.write(path);
            assert_eq!(watch.changed(), BTreeSet::from([world.at(path)]));
        }
        fs::rename(world.at("src/deep"), world.at("src/other")).unwrap();
        let both = BTreeSet::from(["src/deep", "src/other"].map(|path| world.at(path)));
        assert_eq!(watch.changed(), both);
        fs::remove_file(world.at("src/lib.rs")).unwrap();
        assert_eq!(watch.changed(), BTreeSet::from([world.at("src/lib.rs")]));
    }

    #[test]
    fn new_folders_are_watched() {
        let world = World::new();
        let mut watch = world.watch();
        for folder in ["new", "src/new"] {
            fs::create_dir(world.at(folder)).unwrap();
            assert_eq!(watch.changed(), BTreeSet::from([world.at(folder)]));
            let file = format!("{folder}/file.rs");
            world.write(&file);
            assert_eq!(watch.changed(), BTreeSet::from([world.at(&file)]));
        }
        fs::create_dir(world.at("node_modules")).unwrap();
        fs::create_dir(world.folder.path().join("beside")).unwrap();
        fs::write(world.folder.path().join("beside/file"), "x").unwrap();
        world.write("node_modules/file");
        world.write("src/lib.rs");
        let beside = fs::canonicalize(world.folder.path().join("beside")).unwrap();
        assert_eq!(watch.changed(), BTreeSet::from([beside, world.at("src/lib.rs")]));
    }

    #[test]
    fn what_is_in_a_renamed_folder_is_watched_under_its_new_path() {
        let world = World::new();
        fs::create_dir(world.at("src/deep/inner")).unwrap();
        let mut watch = world.watch();
        let mut now = "src/deep".to_owned();
        for (index, takes_its_place) in [false, true].into_iter().enumerate() {
            let next = format!("src/v{index}");
            fs::rename(world.at(&now), world.at(&next)).unwrap();
            if takes_its_place {
                fs::create_dir(world.at(&now)).unwrap();
            }
            let both = BTreeSet::from([&now, &next].map(|path| world.at(path)));
            assert_eq!(watch.changed(), both);
            let made = format!("{next}/inner/new{index}");
            fs::create_dir(world.at(&made)).unwrap();
            assert_eq!(watch.changed(), BTreeSet::from([world.at(&made)]));
            let file = format!("{made}/file.rs");
            world.write(&file);
            assert_eq!(watch.changed(), BTreeSet::from([world.at(&file)]));
            now = next;
        }
    }

    #[test]
    fn a_folder_that_was_moved_away_is_watched_again_when_it_is_back() {
        let world = World::new();
        let elsewhere = tempfile::tempdir().unwrap();
        let mut watch = world.watch();
        let away = elsewhere.path().join("deep");
        fs::rename(world.at("src/deep"), &away).unwrap();
        fs::create_dir(away.join("new")).unwrap();
        watch.changed();
        fs::rename(&away, world.at("src/deep")).unwrap();
        assert_eq!(watch.changed(), BTreeSet::from([world.at("src/deep")]));
        let both = ["src/deep/new/file.rs", "src/lib.rs"];
        both.into_iter().for_each(|path| world.write(path));
        assert_eq!(watch.changed(), BTreeSet::from(both.map(|path| world.at(path))));
    }

    #[test]
    fn a_link_to_a_folder_above_is_not_its_path() {
        let world = World::new();
        symlink(world.at("src"), world.at("src/deep/above")).unwrap();
        let mut watch = world.watch();
        fs::remove_file(world.at("src/deep/above")).unwrap();
        assert_eq!(watch.changed(), BTreeSet::from([world.at("src/deep/above")]));
        fs::create_dir(world.at("src/new")).unwrap();
        assert_eq!(watch.changed(), BTreeSet::from([world.at("src/new")]));
        let both = ["src/new/file.rs", "src/lib.rs"];
        both.into_iter().for_each(|path| world.write(path));
        assert_eq!(watch.changed(), BTreeSet::from(both.map(|path| world.at(path))));
    }

    /// It may lead to more than can be watched.
    #[test]
    fn links_at_the_top_of_a_package_are_not_followed() {
        let world = World::new();
        let data = world.folder.path().join("data");
        fs::create_dir(&data).unwrap();
        symlink(&data, world.at("data")).unwrap();
        let mut watch = world.watch();
        symlink(&data, world.at("more")).unwrap();
        assert_eq!(watch.changed(), BTreeSet::from([world.at("more")]));
        fs::write(data.join("file"), "x").unwrap();
        world.write("src/lib.rs");
        assert_eq!(watch.changed(), BTreeSet::from([world.at("src/lib.rs")]));
        // The package, its source and what is in it, and the configuration's folder.
        assert_eq!(watch.sources.inotify.watched(), 4);
    }

    /// What is linked is a source, and a link to a folder above ends.
    #[test]
    fn links_are_followed_once() {
        let world = World::new();
        let shared = world.folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        symlink(&shared, world.at("src/shared")).unwrap();
        symlink(world.at("src"), world.at("src/deep/above")).unwrap();
        let mut watch = world.watch();
        fs::write(shared.join("file.rs"), "x").unwrap();
        assert_eq!(watch.changed(), BTreeSet::from([world.at("src/shared/file.rs")]));
        // The package, its source, what is in it and linked, and the configuration's folder.
        assert_eq!(watch.sources.inotify.watched(), 5);
    }

    #[test]
    fn packages_are_told_from_what_is_read_without_a_build() {
        let world = World::new();
        let packages = std::slice::from_ref(&world.package);
        let mut watch = world.watch();
        fs::write(world.folder.path().join("dnsweir.kdl"), "x").unwrap();
        assert!(watch.changed_packages(packages).is_empty());
        world.write("src/test.md");
        assert!(watch.changed_packages(packages).is_empty());
        world.write("src/lib.rs");
        assert_eq!(watch.changed_packages(packages).len(), 1);
    }

    #[test]
    fn there_may_be_so_many_folders_and_no_more() {
        let world = World::new();
        for index in 0..MOST_FOLDERS {
            fs::create_dir(world.at(&format!("src/{index}"))).unwrap();
        }
        let refused = Watch::start(std::slice::from_ref(&world.package), Path::new("/x"));
        let problem = refused.err().unwrap();
        assert!(problem.contains("more than 4096 folders"), "{problem}");
    }

    #[test]
    fn own_output_is_no_source() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(is_own_output(Path::new("/proc/self/fd/2")));
        assert!(!is_own_output(file.path()));
        assert!(!is_own_output(Path::new("/nonexistent")));
    }
}
