//! Tells when a file of the configuration changed.
//!
//! A file is reached by a path whose every part may be put into another's place: by an editor that moves a new file
//! over the old one, by a kubelet that swings the symbolic link of a ConfigMap over, by a resolver that writes what
//! `/etc/resolv.conf` points to anew, by whoever renames a folder. So what is watched is each folder on the way, and
//! in it that one name. Whatever else happens there is nobody's concern, and only the files' contents count.
//!
//! A file is taken when it is whole: moved into its place, or closed by who wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use inotify::{Event, Inotify};

mod inotify;

/// How long the files must have been quiet, so that none is read while it is written.
const QUIET: Duration = Duration::from_millis(150);

/// How long to wait for that: one that is written all the time is read as it is.
const LATEST: Duration = Duration::from_secs(2);

/// How long to wait for who has written to a file to close it: a list may be downloaded into its place.
const OPEN: Duration = Duration::from_secs(300);

/// Octets of the largest file whose content is compared; of larger ones it is which file it is, and when it was written.
const COMPARED: u64 = 16 << 20;

/// Symbolic links on the way to one file; the kernel follows as many.
const LINKS: usize = 40;

/// Watches files.
pub struct Changes {
    /// None: there is SIGHUP.
    inotify: Option<Inotify>,
    /// When the first news came that nothing has come of yet.
    since: Option<Instant>,
    /// Places that have been written to and not closed.
    open: BTreeSet<PathBuf>,
    /// What is watched for, as the kernel names it.
    places: BTreeSet<PathBuf>,
    /// The folders that are watched, and which ones they were: device and inode.
    folders: BTreeMap<PathBuf, Option<(u64, u64)>>,
    /// The files, and what their contents were when they were last taken as known.
    known: BTreeMap<PathBuf, u64>,
}

impl Default for Changes {
    /// Watches nothing yet. Without inotify there is SIGHUP.
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
    /// Reads what is in some files, which are known only when they have been read, and watches them. Read once
    /// more when they are watched: so whatever changes after the reading that counts is noticed.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn watch_from<T, E>(
        &mut self,
        read: impl Fn() -> Result<T, E>,
        files: impl Fn(&T) -> &[PathBuf],
    ) -> Result<T, E> {
        let mut before = read()?;
        loop {
            self.watch(files(&before));
            let now = read()?;
            if files(&now) == files(&before) {
                return Ok(now);
            }
            before = now;
        }
    }

    /// Watches these files from now on, and takes the contents of new ones as known. Those of others stay what
    /// they were before the files were read: what has changed since is a change.
    pub fn watch(&mut self, files: &[PathBuf]) {
        self.follow(files);
        let known = files.iter().map(|file| {
            let known = self.known.get(file).copied();
            (file.clone(), known.unwrap_or_else(|| contents(file)))
        });
        self.known = known.collect();
    }

    /// Watches the ways to these files as they are now.
    fn follow(&mut self, files: &[PathBuf]) {
        // A way may change while we look at it. Once the watches stand, that is noticed; a few looks will do.
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
            // One that is not there is waited for in the folder above.
            if one.is_some()
                && let Err(error) = inotify.watch(folder)
            {
                tracing::warn!(folder = %folder.display(), %error, "cannot watch a folder");
            }
        }
    }

    /// Takes the contents of all files as known, and says whether they were not. Before the files are read.
    pub fn note(&mut self) -> bool {
        let mut changed = false;
        for (file, known) in &mut self.known {
            let now = contents(file);
            changed |= std::mem::replace(known, now) != now;
        }
        changed
    }

    /// Waits until something is told of the places, and takes it in. May be dropped and called again.
    async fn hear(&mut self) {
        let mut heard = false;
        while !heard {
            let Some(inotify) = &mut self.inotify else {
                return std::future::pending().await;
            };
            match inotify.read().await {
                Ok(events) => events.into_iter().for_each(|event| heard |= self.take(event)),
                // What may have happened is looked for.
                Err(error) => {
                    tracing::warn!(%error, "cannot watch files for changes: checking them periodically");
                    sleep(LATEST).await;
                    heard |= self.take(Event::Unknown);
                }
            }
        }
    }

    /// Takes in what was done: whether it was to any of the places.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Written(path) if self.is_watched(&path) => {
                self.open.insert(path);
            }
            Event::Whole(path) if self.is_watched(&path) => {
                self.open.remove(&path);
            }
            Event::Unknown => self.open.clear(),
            Event::Written(_) | Event::Whole(_) => return false,
        }
        true
    }

    fn is_watched(&self, path: &Path) -> bool {
        let any = |folder: &Path| self.places.contains(&folder.join(ANY));
        self.places.contains(path) || path.parent().is_some_and(any)
    }

    /// When the files count as come to rest if nothing more is heard of them, of which the first was heard `since`.
    fn rest(&self, since: Instant) -> Instant {
        if self.open.is_empty() {
            (since + LATEST).min(Instant::now() + QUIET)
        } else {
            since + OPEN
        }
    }

    /// Resolves when the contents of a file have changed and the files have come to rest, or will not; they are
    /// known then. May be dropped and called again.
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
            let files: Vec<PathBuf> = self.known.keys().cloned().collect();
            self.follow(&files);
            if self.note() {
                return;
            }
        }
    }
}

/// Stands for whatever is in a folder, among the places that are watched.
const ANY: &str = "*";

/// Which folder a path leads to now, if to one.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(folder).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// All names that are looked up on the way to a file, each with the path to its folder that no symbolic link is
/// part of.
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

/// The parts of a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.rev().collect()
}

/// What is in a file, or which files are in a folder, or that there is neither. What is something else could keep us waiting.
fn contents(file: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = fs::metadata(file).ok();
    match metadata.filter(|found| found.is_file() || found.is_dir()) {
        Some(folder) if folder.is_dir() => {
            let entries = fs::read_dir(file).into_iter().flatten().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names.hash(&mut hasher);
        }
        // It would hold up this thread to read it. If the same is in there, nothing comes of loading it.
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

    /// systemd-resolved's layout: what the symbolic link points to is replaced, elsewhere.
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
        // The service is started anew, with a folder of its own that is.
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

    /// A kubelet's: the file, its folder and what that folder points to, each a symbolic link. Beside it, an
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

    /// What others write beside the files is not looked at, and a file that never rests is read all the same.
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

    /// A list that is downloaded into its place, and one that is written where others wait for it.
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
        // However often one asks: what was heard is not forgotten.
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

    /// Nothing that is written is missed, be it before the file is watched, before it is read or after that.
    #[tokio::test]
    async fn no_change_at_the_start_goes_unnoticed() {
        for change_at in 1..=2 {
            let folder = tempfile::tempdir().unwrap();
            let files = [folder.path().join("list")];
            std::fs::write(&files[0], "old").unwrap();
            let reading = Cell::new(0);
            let read = || {
                let text = std::fs::read_to_string(&files[0])?;
                reading.set(reading.get() + 1);
                if reading.get() == change_at {
                    std::fs::write(&files[0], "new")?;
                }
                std::io::Result::Ok((text, files.clone()))
            };
            let mut changes = Changes::default();
            let (text, _) = changes.watch_from(read, |(_, files)| files).unwrap();
            if text == "old" {
                let noticed = timeout(Duration::from_secs(30), changes.changed()).await;
                assert!(noticed.is_ok(), "changed after reading {change_at}");
            }
        }
    }

    /// The files may be others by the time that they are watched.
    #[test]
    fn files_that_are_named_late_are_watched_too() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let reading = Cell::new(0);
        let read = || {
            reading.set(reading.get() + 1);
            let named = if reading.get() == 1 { &one } else { &two };
            std::io::Result::Ok([named.clone()])
        };
        let mut changes = Changes::default();
        let files = changes.watch_from(read, |files| files).unwrap();
        assert_eq!(files[0], two);
        assert!(changes.known.contains_key(&two));
    }

    /// A file may change while what was in it is still being compiled.
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
        // What was read on request is no news, but what comes after it is; one that is moved into its place, too.
        std::fs::write(&file, "4").unwrap();
        assert!(changes.note());
        std::fs::write(&new, "5").unwrap();
        std::fs::rename(&new, &file).unwrap();
        changes.watch(&files);
        noticed(&mut changes, "change 5").await;
        assert!(!changes.note());
    }
}
