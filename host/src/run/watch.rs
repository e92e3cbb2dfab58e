//! Tells when a file of the configuration changed.
//!
//! What is watched is the folder of each file, and only the files' contents count: an editor that
//! replaces a file, and a ConfigMap whose symbolic link is swung over, look alike then.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a folder must have been quiet, so that a file is not read while it is written.
const QUIET: Duration = Duration::from_millis(150);

/// Watches files.
pub struct Changes {
    watcher: Option<RecommendedWatcher>,
    events: mpsc::UnboundedReceiver<()>,
    folders: BTreeSet<PathBuf>,
    /// The files, and what their contents were when they were last taken as known.
    known: BTreeMap<PathBuf, u64>,
}

impl Changes {
    /// Watches nothing yet. Without inotify there is SIGHUP.
    pub fn new() -> Changes {
        let (send, events) = mpsc::unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the files is an event of its own, and of no interest.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                let _ = send.send(());
            }
        });
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "changed files are not noticed: reload with SIGHUP"))
            .ok();
        Changes {
            watcher,
            events,
            folders: BTreeSet::new(),
            known: BTreeMap::new(),
        }
    }

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
        let folders: BTreeSet<PathBuf> = files
            .iter()
            .filter_map(|file| file.parent().map(PathBuf::from))
            .collect();
        if let Some(watcher) = &mut self.watcher {
            for gone in self.folders.difference(&folders) {
                let _ = watcher.unwatch(gone);
            }
            for folder in folders.difference(&self.folders) {
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    tracing::warn!(folder = %folder.display(), %error, "a folder cannot be watched");
                }
            }
        }
        self.folders = folders;
        let known = files.iter().map(|file| {
            let known = self.known.get(file).copied();
            (file.clone(), known.unwrap_or_else(|| contents(file)))
        });
        self.known = known.collect();
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

    /// Resolves when the contents of a file have changed and its folder has come to rest; they are known then.
    /// May be dropped and called again.
    pub async fn changed(&mut self) {
        loop {
            if self.events.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            while let Ok(Some(())) = timeout(QUIET, self.events.recv()).await {}
            if self.note() {
                return;
            }
        }
    }
}

/// What is in a file, or that there is none.
fn contents(file: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read(file).ok().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

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
            let mut changes = Changes::new();
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
        let mut changes = Changes::new();
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
        let mut changes = Changes::new();
        changes.watch(&files);
        let noticed = async |changes: &mut Changes, number: u32| {
            let noticed = timeout(Duration::from_secs(30), changes.changed()).await;
            assert!(noticed.is_ok(), "change {number} went unnoticed");
        };
        std::fs::write(&file, "2").unwrap();
        noticed(&mut changes, 2).await;
        std::fs::write(&file, "3").unwrap();
        changes.watch(&files);
        noticed(&mut changes, 3).await;
        // What was read on request is no news, but what comes after it is; one that is moved into its place, too.
        std::fs::write(&file, "4").unwrap();
        assert!(changes.note());
        std::fs::write(&new, "5").unwrap();
        std::fs::rename(&new, &file).unwrap();
        changes.watch(&files);
        noticed(&mut changes, 5).await;
        assert!(!changes.note());
    }
}
