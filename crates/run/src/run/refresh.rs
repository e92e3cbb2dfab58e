//! Refreshes the data of filters.
//!
//! One thread does it for all filters. It fetches and reads their sources, calls the filters one at a time to
//! make data of them, and waits until the next time or until a file changes. It starts with the first filter
//! that has a refresh, and drops filters that are no longer used. Workers only see what is published.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use dnsweir_os::clock::UnixTime;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::background;
use crate::config::{self, Data, Location, RefreshOrigin, RefreshSource};
use crate::fetch::{Client, Copies, Upstreams};
use crate::filter::{Filter, SourceFile};
use crate::serve::generation::{Generation, Loaded};
use crate::source::{Fetch, Fetched};
use crate::watch::Changes;

/// How soon an unused filter is noticed.
const LOOK: Duration = Duration::from_secs(60);

/// The most files in one folder.
const FILES: usize = 10_000;

/// Refreshes the filters of all generations.
pub struct Refresher {
    fetch: Fetcher,
    /// The channel to the thread, once it runs.
    thread: Mutex<Option<mpsc::UnboundedSender<Newcomer>>>,
    /// Filters that it refreshes.
    known: Mutex<Vec<Weak<Filter>>>,
}

/// A filter to refresh, and the channel that reports its first attempt.
struct Newcomer {
    filter: Weak<Filter>,
    first: oneshot::Sender<()>,
}

impl Refresher {
    /// Creates a refresher that keeps copies of what it fetches.
    pub fn new(copies: Option<Copies>) -> Refresher {
        Refresher {
            fetch: Fetcher {
                copies,
                upstreams: Arc::default(),
            },
            thread: Mutex::new(None),
            known: Mutex::default(),
        }
    }

    /// From now on, resolves hosts through this generation's upstreams, and fetches for its sources. Called
    /// before they begin.
    pub(super) fn supply(&self, generation: &Generation) {
        *self.fetch.upstreams.lock() = Upstreams::of(&generation.config);
        let fetch: Arc<dyn Fetch> = Arc::new(self.fetch.clone());
        generation
            .sources
            .iter()
            .for_each(|source| source.fetch_by(&fetch));
    }

    /// Refreshes the filters of a generation from now on. Waits until new ones were refreshed once,
    /// successfully or not, but at most their configured time.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) async fn bring_up(&self, generation: &Generation) -> io::Result<()> {
        let mut waiting = Vec::new();
        for Loaded { filter, .. } in &generation.filters {
            let Some(config) = filter.refresh_config() else {
                continue;
            };
            if !self.is_new(filter) {
                continue;
            }
            let (first, done) = oneshot::channel();
            let filter = Arc::downgrade(filter);
            self.send(Newcomer { filter, first })?;
            waiting.push((config.wait, done));
        }
        let begun = Instant::now();
        for (wait, done) in waiting {
            let _ = timeout(wait.saturating_sub(begun.elapsed()), done).await;
        }
        Ok(())
    }

    fn is_new(&self, filter: &Arc<Filter>) -> bool {
        let mut known = self.known.lock();
        known.retain(|known| known.strong_count() > 0);
        let filter = Arc::downgrade(filter);
        let is_new = known.iter().all(|known| !known.ptr_eq(&filter));
        if is_new {
            known.push(filter);
        }
        is_new
    }

    fn send(&self, newcomer: Newcomer) -> io::Result<()> {
        let mut sender = self.thread.lock();
        let sender = match &mut *sender {
            Some(sender) => sender,
            none => none.insert(self.start()?),
        };
        // The thread ends when this is dropped, and not before.
        let _ = sender.send(newcomer);
        Ok(())
    }

    fn start(&self) -> io::Result<mpsc::UnboundedSender<Newcomer>> {
        let (sender, mut newcomers) = mpsc::unbounded_channel::<Newcomer>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let fetch = self.fetch.clone();
        thread::Builder::new().name("refresh".into()).spawn(move || {
            let turn = Arc::new(Semaphore::new(1));
            runtime.block_on(async {
                while let Some(newcomer) = newcomers.recv().await {
                    let (fetch, turn) = (fetch.clone(), Arc::clone(&turn));
                    tokio::spawn(async move {
                        let task = Task {
                            fetch,
                            turn,
                            taken: Vec::new(),
                        };
                        task.keep_fresh(newcomer).await;
                    });
                }
            });
            // Do not wait for a call in progress.
            runtime.shutdown_background();
        })?;
        Ok(sender)
    }
}

/// Fetches the locations that configurations name.
#[derive(Clone)]
struct Fetcher {
    copies: Option<Copies>,
    /// Those of the latest generation.
    upstreams: Arc<Mutex<Upstreams>>,
}

impl Fetcher {
    fn client(&self) -> Client {
        let upstreams = self.upstreams.lock().clone();
        Client::new(upstreams, self.copies.clone())
    }
}

impl Fetch for Fetcher {
    fn kept(&self, location: &Location) -> Option<Arc<Data>> {
        self.client().last_good(location)
    }

    fn fetch(&self, location: &Location) -> Fetched {
        let (client, location) = (self.client(), location.clone());
        Box::pin(async move { client.fetch(&location).await.map_err(|error| error.to_string()) })
    }
}

/// Keeps one filter's data fresh.
struct Task {
    fetch: Fetcher,
    /// Held while a filter is called: one at a time.
    turn: Arc<Semaphore>,
    /// Names and digests of the files that the last data was made from.
    taken: Vec<(String, String, String)>,
}

impl Task {
    async fn keep_fresh(mut self, newcomer: Newcomer) {
        let mut changes = Changes::default();
        let mut first = Some(newcomer.first);
        loop {
            let Some(filter) = newcomer.filter.upgrade() else {
                return;
            };
            let Some(config) = filter.refresh_config() else {
                return;
            };
            changes.watch(&watched(config));
            self.refresh(&filter, config).await;
            if let Some(first) = first.take() {
                // The receiver may have timed out.
                let _ = first.send(());
            }
            let next = Instant::now() + filter.refreshes().pause(config.every);
            drop(filter);
            loop {
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                tokio::select! {
                    () = sleep(left.min(LOOK)) => {}
                    () = changes.changed() => break,
                }
                if newcomer.filter.strong_count() == 0 {
                    return;
                }
            }
        }
    }

    /// Refreshes once, and records the outcome.
    async fn refresh(&mut self, filter: &Arc<Filter>, config: &config::Refresh) {
        let what = format!("the refresh of filter {:?}", filter.name());
        match self.attempt(filter, config).await {
            Ok(is_new) => filter.refreshes().succeeded(&what, is_new),
            Err(problem) => filter.refreshes().failed(&what, problem),
        }
    }

    /// Returns whether there was anything new.
    async fn attempt(&mut self, filter: &Arc<Filter>, config: &config::Refresh) -> Result<bool, String> {
        let (mut files, mut problem) = (Vec::new(), None);
        for source in &config.sources {
            let found = self.files_of(source).await;
            let found = found.map_err(|error| format!("source {:?}: {error}", source.name))?;
            files.extend(found.files);
            problem = problem.or(found
                .problem
                .map(|error| format!("source {:?}: {error}", source.name)));
        }
        let digest = |file: &SourceFile| (file.name.clone(), file.file.clone(), file.data.digest());
        let taken: Vec<_> = files.iter().map(digest).collect();
        let is_new = !filter.has_published() || taken != self.taken;
        if is_new {
            self.make(filter, files).await?;
            self.taken = taken;
        }
        // Data was made from a last good copy; the failure is still reported.
        problem.map_or(Ok(is_new), Err)
    }

    /// Calls the filter to make its data.
    async fn make(&self, filter: &Arc<Filter>, files: Vec<SourceFile>) -> Result<(), String> {
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await;
        let filter = Arc::clone(filter);
        let made = background::beside("refreshing", move || filter.refresh(UnixTime::now(), files));
        made.await.map_err(|error| error.to_string())?
    }

    async fn files_of(&self, source: &RefreshSource) -> Result<Found, String> {
        let location = match &source.origin {
            RefreshOrigin::Path(path) => {
                return files_at(source, path).map(Found::from).map_err(|e| e.to_string());
            }
            RefreshOrigin::Location(location) => location,
        };
        let client = self.fetch.client();
        let file = |data| SourceFile {
            name: source.name.clone(),
            file: String::new(),
            data,
        };
        match client.fetch(location).await {
            Ok(data) => Ok(Found::from(vec![file(data)])),
            Err(error) => match client.last_good(location) {
                Some(copy) => Ok(Found {
                    files: vec![file(copy)],
                    problem: Some(error.to_string()),
                }),
                None => Err(error.to_string()),
            },
        }
    }
}

/// The files of a source.
struct Found {
    files: Vec<SourceFile>,
    /// Why these are the last good files instead of the current ones.
    problem: Option<String>,
}

impl From<Vec<SourceFile>> for Found {
    fn from(files: Vec<SourceFile>) -> Found {
        Found { files, problem: None }
    }
}

/// Returns the file at a path, or all files in the folder, ordered by name. Names that begin with a dot are
/// skipped: temporary files have such names, and so do the internals of a mounted ConfigMap.
fn files_at(source: &RefreshSource, path: &Path) -> io::Result<Vec<SourceFile>> {
    let mut left = source.size as u64;
    let mut read = |path: &Path, file: String| {
        let data = read_at_most(path, left)?;
        left -= data.len() as u64;
        let name = source.name.clone();
        Ok(SourceFile { name, file, data })
    };
    if !path.is_dir() {
        return Ok(vec![read(path, String::new())?]);
    }
    let names = names_in(path)?;
    let files = names.into_iter().map(|name| read(&path.join(&name), name));
    files.collect()
}

fn read_at_most(path: &Path, most: u64) -> io::Result<Arc<Data>> {
    let named = |problem: String| io::Error::other(format!("{}: {problem}", path.display()));
    let metadata = fs::metadata(path).map_err(|error| named(error.to_string()))?;
    if !metadata.is_file() {
        return Err(named("it is not a regular file".to_owned()));
    }
    if metadata.len() > most {
        return Err(named("it is larger than `size` allows: raise it".to_owned()));
    }
    let file = fs::File::open(path).map_err(|error| named(error.to_string()))?;
    Data::read(file, most).map_err(|error| named(error.to_string()))
}

/// Returns the names of the files in a folder.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        if !name.starts_with('.') && folder.join(&name).is_file() {
            names.push(name);
        }
        if names.len() > FILES {
            return Err(io::Error::other(format!("it has more than {FILES} files")));
        }
    }
    names.sort();
    Ok(names)
}

/// Returns what to watch of the sources: files, and folders with the files that are in them now.
fn watched(config: &config::Refresh) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for source in &config.sources {
        let RefreshOrigin::Path(path) = &source.origin else {
            continue;
        };
        all.push(path.clone());
        if path.is_dir() {
            let names = names_in(path).unwrap_or_default();
            all.extend(names.iter().map(|name| path.join(name)));
        }
    }
    all
}
