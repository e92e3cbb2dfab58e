//! Reports changes of configuration files.
//!
//! Any part of the path to a file may be replaced: by an editor that renames a new file over the old one, a
//! kubelet that swaps the symbolic link of a ConfigMap, a resolver that rewrites the target of
//! `/etc/resolv.conf`, or a renamed folder. So each folder on the way is watched, for that one name. Other
//! events in it are ignored, and only a change of contents counts.
//!
//! A file is read when it is complete: moved into place, or closed by its writer.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

mod inotify;

pub use inotify::{Event, Inotify};

/// How long files must be quiet, so that none is read while being written.
const QUIET: Duration = Duration::from_millis(150);

/// Upper bound on that wait: a file that is written all the time is read as it is.
const LATEST: Duration = Duration::from_secs(2);

/// How long to wait for a writer to close a file: it may be downloading a list into place.
const OPEN: Duration = Duration::from_secs(300);

/// Up to this many bytes, a file is compared by contents; a larger one by identity, size and mtime.
const COMPARED: u64 = 16 << 20;

/// The most symbolic links on the way to a file, as in the kernel.
const LINKS: usize = 40;

/// Watches files.
pub struct Changes {
    /// None if inotify is unavailable: SIGHUP still reloads.
    inotify: Option<Inotify>,
    /// When the first event arrived that has not been evaluated yet.
    since: Option<Instant>,
    /// Places that were written to and not closed yet.
    open: BTreeSet<PathBuf>,
    /// The watched names, with folders as the kernel resolves them.
    places: BTreeSet<PathBuf>,
    /// The watched folders, and the device and inode of each.
    folders: BTreeMap<PathBuf, Option<(u64, u64)>>,
    /// The files and the hashes of their contents that are known.
    known: BTreeMap<PathBuf, u64>,
}

impl Default for Changes {
    /// Watches nothing yet. Without inotify, only SIGHUP reloads.
    fn default() -> Changes {
        let inotify = Inotify::new();
        let inotify = inotify
            .inspect_err(|error| tracing::warn!(%error, "cannot watch files for changes: reload with SIGHUP"))
            .ok();
        Changes {
            inotify,
            since: None,
            open: BTreeSet::new(),
            places: BTreeSet::new(),
            folders: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }
}

impl Changes {
    /// Reads something that names its own files, right or wrong, and watches those. Reads again once they are
    /// watched, so that no change after the returned reading is missed.
    pub fn watch_from<T>(&mut self, read: impl Fn() -> T, files: impl Fn(&T) -> &[PathBuf]) -> T {
        loop {
            let now = read();
            if !self.watch(files(&now)) {
                return now;
            }
        }
    }

    /// Watches these files from now on. The contents of new files count as known; known files keep their
    /// hashes from before they were read, so that changes since then are reported. Returns whether there are
    /// new ones: what was read before may be out of date already, so read it again.
    pub fn watch(&mut self, files: &[PathBuf]) -> bool {
        self.follow(files);
        let mut are_new = false;
        let known = files.iter().map(|file| {
            let known = self.known.get(file).copied();
            are_new |= known.is_none();
            (file.clone(), known.unwrap_or_else(|| contents(file)))
        });
        self.known = known.collect();
        are_new
    }

    /// Watches the paths to these files as they are now.
    fn follow(&mut self, files: &[PathBuf]) {
        // A path may change while it is inspected. Once it is watched, that is noticed; three rounds suffice.
        for _ in 0..3 {
            let mut places: BTreeSet<PathBuf> = files.iter().flat_map(|file| way(file)).collect();
            let inside = files.iter().filter(|file| file.is_dir());
            places.extend(inside.filter_map(|folder| Some(fs::canonicalize(folder).ok()?.join(ANY))));
            let folders = places.iter().filter_map(|place| place.parent());
            let folders: BTreeMap<_, _> = folders.map(|it| (it.to_owned(), identity(it))).collect();
            if self.places == places && self.folders == folders {
                return;
            }
            self.places = places;
            // Elsewhere, the closing of a file would go unnoticed.
            let open = std::mem::take(&mut self.open);
            self.open = open.into_iter().filter(|place| self.is_watched(place)).collect();
            self.watch_folders(folders);
        }
    }

    fn watch_folders(&mut self, folders: BTreeMap<PathBuf, Option<(u64, u64)>>) {
        let before = std::mem::replace(&mut self.folders, folders);
        let Some(inotify) = &mut self.inotify else { return };
        for (gone, _) in before
            .iter()
            .filter(|&(it, one)| self.folders.get(it) != Some(one))
        {
            inotify.unwatch(gone);
        }
        for (folder, one) in self
            .folders
            .iter()
            .filter(|&(it, one)| before.get(it) != Some(one))
        {
            // A folder that does not exist is waited for in its parent.
            if one.is_some()
                && let Err(error) = inotify.watch(folder)
            {
                tracing::warn!(folder = %folder.display(), %error, "cannot watch a folder");
            }
        }
    }

    /// Takes the contents of all files as known, and returns whether any changed. Call before reading them.
    pub fn note(&mut self) -> bool {
        let mut changed = false;
        for (file, known) in &mut self.known {
            let now = contents(file);
            changed |= std::mem::replace(known, now) != now;
        }
        changed
    }

    /// Waits for an event at one of the places, and records it. Cancel-safe.
    async fn hear(&mut self) {
        let mut heard = false;
        while !heard {
            let Some(inotify) = &mut self.inotify else {
                return std::future::pending().await;
            };
            match inotify.read().await {
                Ok(events) => events.into_iter().for_each(|event| heard |= self.take(event)),
                // Checks for changes as if there had been an event.
                Err(error) => {
                    tracing::warn!(%error, "cannot watch files for changes: checking them periodically");
                    sleep(LATEST).await;
                    heard |= self.take(Event::Unknown);
                }
            }
        }
    }

    /// Records an event. Returns whether it concerns a watched place.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Written(path) if self.is_watched(&path) => {
                self.open.insert(path);
            }
            Event::Closed(path) | Event::Whole(path) if self.is_watched(&path) => {
                self.open.remove(&path);
            }
            Event::Written(_) | Event::Closed(_) | Event::Whole(_) => return false,
            // The next folder at its path may have the same inode, so that it would pass for watched.
            Event::Unwatched(folder) => {
                self.open.retain(|place| place.parent() != Some(folder.as_path()));
                self.folders.remove(&folder);
            }
            // Any of the others may have been lost.
            Event::Unknown => {
                self.open.clear();
                self.folders.values_mut().for_each(|identity| *identity = None);
            }
        }
        true
    }

    /// Returns whether a place is watched, by its name or with its whole folder. In a folder, hidden files do
    /// not count: they are an editor's copies, or the links of a mounted ConfigMap, which are watched by name
    /// if they lead to a file.
    fn is_watched(&self, path: &Path) -> bool {
        let hidden = path.file_name().is_some_and(is_hidden);
        let any = |folder: &Path| !hidden && self.places.contains(&folder.join(ANY));
        self.places.contains(path) || path.parent().is_some_and(any)
    }

    /// When the files count as quiet if nothing else happens; the first event was at `since`.
    fn rest(&self, since: Instant) -> Instant {
        if self.open.is_empty() {
            (since + LATEST).min(Instant::now() + QUIET)
        } else {
            since + OPEN
        }
    }

    /// Resolves when the contents of a file have changed and the files are quiet or have taken too long. The
    /// contents count as known then. Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            let since = match self.since {
                Some(since) => since,
                None => {
                    self.hear().await;
                    *self.since.insert(Instant::now())
                }
            };
            while timeout_at(self.rest(since), self.hear()).await.is_ok() {}
            self.since = None;
            // A writer that has not closed its file by now may never do so. Later changes must not wait for it.
            self.open.clear();
            let files: Vec<PathBuf> = self.known.keys().cloned().collect();
            self.follow(&files);
            if self.note() {
                return;
            }
        }
    }
}

/// Among the watched places, stands for everything in a folder that is not hidden.
const ANY: &str = "*";

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The device and inode that a path leads to, if any.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(folder).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// All names that are looked up on the way to a file, each with its folder's path free of symbolic links.
fn way(file: &Path) -> Vec<PathBuf> {
    let Ok(file) = std::path::absolute(file) else {
        return Vec::new();
    };
    let mut ahead = parts(&file);
    let (mut at, mut places, mut links) = (PathBuf::from("/"), Vec::new(), 0);
    while let Some(part) = ahead.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let place = at.join(part);
        places.push(place.clone());
        match fs::read_link(&place) {
            Ok(target) if links < LINKS => {
                links += 1;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                ahead.extend(parts(&target));
            }
            _ => at = place,
        }
    }
    places
}

/// The parts of a path in reverse.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.rev().collect()
}

/// A hash of a file's contents, a folder's file names but hidden ones, or absence. Other types could block a
/// reader.
fn contents(file: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = fs::metadata(file).ok();
    match metadata.filter(|found| found.is_file() || found.is_dir()) {
        Some(folder) if folder.is_dir() => {
            let entries = fs::read_dir(file).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            let mut names: Vec<_> = names.filter(|name| !is_hidden(name)).collect();
            names.sort();
            names.hash(&mut hasher);
        }
        // Reading it would block this thread. Reloading unchanged contents is harmless.
        Some(large) if large.len() > COMPARED => {
            let written = (large.mtime(), large.mtime_nsec());
            (large.dev(), large.ino(), large.len(), written).hash(&mut hasher);
        }
        Some(_) => fs::read(file).ok().hash(&mut hasher),
        None => None::<Vec<u8>>.hash(&mut hasher),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use tokio::time::timeout;

    use super::*;

    async fn noticed(changes: &mut Changes, what: &str) {
        let noticed = timeout(Duration::from_secs(30), changes.changed()).await;
        assert!(noticed.is_ok(), "went unnoticed: {what}");
    }

    /// systemd-resolved's layout: a symbolic link whose target is replaced elsewhere.
    #[tokio::test]
    async fn what_a_link_points_to_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (etc, run) = (folder.path().join("etc"), folder.path().join("run"));
        let state = run.join("systemd/resolve");
        fs::create_dir_all(&state).unwrap();
        fs::create_dir(&etc).unwrap();
        let (stub, new, file) = (state.join("stub"), state.join("new"), etc.join("resolv.conf"));
        fs::write(&stub, "1").unwrap();
        symlink("../run/systemd/resolve/stub", &file).unwrap();
        let mut changes = Changes::default();
        changes.watch(std::slice::from_ref(&file));
        fs::write(&new, "2").unwrap();
        fs::rename(&new, &stub).unwrap();
        noticed(&mut changes, "the target was replaced").await;
        // The service restarts, with a new folder.
        fs::rename(run.join("systemd"), run.join("old")).unwrap();
        fs::create_dir_all(&state).unwrap();
        fs::write(&stub, "3").unwrap();
        noticed(&mut changes, "the target's folder was replaced").await;
        fs::write(&stub, "4").unwrap();
        noticed(&mut changes, "the target was written").await;
        fs::remove_file(&file).unwrap();
        symlink("../other", &file).unwrap();
        fs::write(folder.path().join("other"), "5").unwrap();
        noticed(&mut changes, "the link points elsewhere").await;
        assert!(!changes.note());
    }

    /// A kubelet's layout: the file, its folder and that folder's target are symbolic links. Beside it an
    /// operator's: the folder itself is swapped.
    #[tokio::test]
    async fn swapped_folders_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for (generation, text) in [("1", "one"), ("2", "two"), ("3", "three")] {
            fs::create_dir(at(generation)).unwrap();
            fs::write(at(generation).join("file"), text).unwrap();
        }
        symlink("1", at("..data")).unwrap();
        symlink("..data", at("current")).unwrap();
        let mut changes = Changes::default();
        changes.watch(&[at("current/file")]);
        let swing = |to: &str| {
            symlink(to, at("..tmp")).unwrap();
            fs::rename(at("..tmp"), at("..data")).unwrap();
        };
        swing("2");
        noticed(&mut changes, "the link was swung over").await;
        swing("3");
        noticed(&mut changes, "the link was swung over again").await;
        fs::rename(at("3"), at("gone")).unwrap();
        fs::rename(at("1"), at("3")).unwrap();
        noticed(&mut changes, "the folder was swapped").await;
        fs::write(at("3/file"), "four").unwrap();
        noticed(&mut changes, "the file was written").await;
    }

    /// Other files are ignored, and a file that never rests is read eventually.
    #[tokio::test]
    async fn nobody_delays_it_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list");
        fs::write(&file, "1").unwrap();
        let mut changes = Changes::default();
        changes.watch(std::slice::from_ref(&file));
        let mut is_heard = |path: PathBuf| changes.take(Event::Whole(path));
        assert!(is_heard(file.clone()));
        assert!(!is_heard(folder.path().join("noise")));
        let always = file.clone();
        tokio::spawn(async move {
            loop {
                fs::write(&always, "2").unwrap();
                tokio::time::sleep(QUIET / 10).await;
            }
        });
        noticed(&mut changes, "the file is written all the time").await;
    }

    /// A list that is downloaded into place, and one that is written while it is awaited.
    #[tokio::test]
    async fn a_file_is_taken_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (file, beside) = (folder.path().join("list"), folder.path().join("beside"));
        fs::write(&file, "old").unwrap();
        fs::write(&beside, "old").unwrap();
        let mut changes = Changes::default();
        changes.watch(&[file.clone(), beside.clone()]);
        let mut slow = fs::File::create(&file).unwrap();
        slow.write_all(b"half of").unwrap();
        fs::write(&beside, "new").unwrap();
        // Repeated calls do not lose events.
        for _ in 0..3 {
            let early = timeout(3 * QUIET, changes.changed()).await;
            assert!(early.is_err(), "half of it was taken");
        }
        slow.write_all(b" it").unwrap();
        drop(slow);
        noticed(&mut changes, "the file was closed").await;
        assert_eq!(changes.known[&file], contents(&file));
        assert!(!changes.note());
    }

    /// An editor keeps its copy open beside the file that it edits.
    #[tokio::test]
    async fn hidden_files_of_a_folder_delay_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.kdl"), "1").unwrap();
        let mut changes = Changes::default();
        changes.watch(&[folder.path().to_owned(), at("a.kdl")]);
        let mut copy = fs::File::create(at(".a.kdl.swp")).unwrap();
        copy.write_all(b"2").unwrap();
        let early = timeout(3 * QUIET, changes.changed()).await;
        assert!(early.is_err(), "a hidden file is none of the folder's");
        fs::write(at("a.kdl"), "2").unwrap();
        noticed(&mut changes, "the file was written").await;
        drop(copy);
        fs::write(at("b.kdl"), "").unwrap();
        noticed(&mut changes, "a file was added").await;
    }

    /// A kubelet's layout again, where the whole folder is watched: only hidden links in it change, until a
    /// file is added.
    #[tokio::test]
    async fn a_mounted_folder_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for (generation, text) in [("..1", "one"), ("..2", "two"), ("..3", "two")] {
            fs::create_dir(at(generation)).unwrap();
            fs::write(at(generation).join("a.kdl"), text).unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/a.kdl", at("a.kdl")).unwrap();
        let mut changes = Changes::default();
        changes.watch(&[folder.path().to_owned(), at("a.kdl")]);
        let swing = |to: &str| {
            symlink(to, at("..data_tmp")).unwrap();
            fs::rename(at("..data_tmp"), at("..data")).unwrap();
        };
        swing("..2");
        fs::remove_dir_all(at("..1")).unwrap();
        noticed(&mut changes, "the link was swung over").await;
        fs::write(at("..3/b.kdl"), "").unwrap();
        swing("..3");
        symlink("..data/b.kdl", at("b.kdl")).unwrap();
        noticed(&mut changes, "a file was added").await;
    }

    /// A writer that keeps a file open holds up others only while that file is watched, and once.
    #[tokio::test]
    async fn an_open_file_is_not_waited_for_twice() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let mut changes = Changes::default();
        changes.watch(&[one.clone(), two.clone()]);
        let mut open = fs::File::create(&one).unwrap();
        open.write_all(b"1").unwrap();
        let early = timeout(3 * QUIET, changes.changed()).await;
        assert!(early.is_err(), "the file is still open");
        // Long ago.
        changes.since = Instant::now().checked_sub(OPEN);
        noticed(&mut changes, "the time is over").await;
        fs::write(&two, "1").unwrap();
        noticed(&mut changes, "another file was written").await;
        open.write_all(b"2").unwrap();
        let early = timeout(3 * QUIET, changes.changed()).await;
        assert!(early.is_err(), "the file is open again");
        changes.watch(std::slice::from_ref(&two));
        fs::write(&two, "2").unwrap();
        noticed(&mut changes, "the only file was written").await;
    }

    /// File systems give the inode of a folder that was removed to the next one.
    #[tokio::test]
    async fn a_folder_that_replaces_a_removed_one_is_watched() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("conf.d");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("a.kdl");
        fs::write(&file, "1").unwrap();
        let mut changes = Changes::default();
        changes.watch(&[folder.clone(), file.clone()]);
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        // As if they were the same.
        changes.folders.insert(folder.clone(), identity(&folder));
        fs::write(&file, "2").unwrap();
        noticed(&mut changes, "the folder was replaced").await;
        fs::write(&file, "3").unwrap();
        noticed(&mut changes, "the file was written").await;
    }

    /// No write is missed, whether before the file is watched, before it is read, or later.
    #[tokio::test]
    async fn no_change_at_the_start_goes_unnoticed() {
        for change_at in 1..=2 {
            let folder = tempfile::tempdir().unwrap();
            let files = [folder.path().join("list")];
            std::fs::write(&files[0], "old").unwrap();
            let reading = Cell::new(0);
            let read = || {
                let text = std::fs::read_to_string(&files[0]).unwrap();
                reading.set(reading.get() + 1);
                if reading.get() == change_at {
                    std::fs::write(&files[0], "new").unwrap();
                }
                (text, files.clone())
            };
            let mut changes = Changes::default();
            let (text, _) = changes.watch_from(read, |(_, files)| files);
            if text == "old" {
                let noticed = timeout(Duration::from_secs(30), changes.changed()).await;
                assert!(noticed.is_ok(), "changed after reading {change_at}");
            }
        }
    }

    /// The list of files may change before they are watched.
    #[test]
    fn files_that_are_named_late_are_watched_too() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let reading = Cell::new(0);
        let read = || {
            reading.set(reading.get() + 1);
            let named = if reading.get() == 1 { &one } else { &two };
            [named.clone()]
        };
        let mut changes = Changes::default();
        let files = changes.watch_from(read, |files| files);
        assert_eq!(files[0], two);
        assert!(changes.known.contains_key(&two));
    }

    /// A file may change while its previous contents are still being compiled.
    #[tokio::test]
    async fn a_change_that_comes_while_a_change_is_taken_in_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("list"), folder.path().join("new"));
        std::fs::write(&file, "1").unwrap();
        let files = [file.clone()];
        let mut changes = Changes::default();
        changes.watch(&files);
        std::fs::write(&file, "2").unwrap();
        noticed(&mut changes, "change 2").await;
        std::fs::write(&file, "3").unwrap();
        changes.watch(&files);
        noticed(&mut changes, "change 3").await;
        // Contents read on request are not reported; later changes are, also by a rename.
        std::fs::write(&file, "4").unwrap();
        assert!(changes.note());
        std::fs::write(&new, "5").unwrap();
        std::fs::rename(&new, &file).unwrap();
        changes.watch(&files);
        noticed(&mut changes, "change 5").await;
        assert!(!changes.note());
    }
}
