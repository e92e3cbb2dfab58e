//! Tells when a file of the configuration changed.
//!
//! What is watched is the folder of each file, and only the files' contents count: an editor that
//! replaces a file, and a ConfigMap whose symbolic link is swung over, look alike then.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
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
    files: Vec<PathBuf>,
    seen: u64,
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
            files: Vec::new(),
            seen: 0,
        }
    }

    /// Watches these files from now on, and takes their contents as known.
    pub fn watch(&mut self, files: &[PathBuf]) {
        self.files = files.to_vec();
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
        self.seen = self.fingerprint();
    }

    /// Resolves when the contents of a file have changed and its folder has come to rest. May be dropped
    /// and called again.
    pub async fn changed(&mut self) {
        loop {
            if self.events.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            while let Ok(Some(())) = timeout(QUIET, self.events.recv()).await {}
            if self.fingerprint() != self.seen {
                return;
            }
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for file in &self.files {
            std::fs::read(file).ok().hash(&mut hasher);
        }
        hasher.finish()
    }
}
