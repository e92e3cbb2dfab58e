//! Reads lists, and reads them again when they change or are due.
//!
//! All of it runs on the stage's thread, one list at a time, so that only one list's working memory is
//! needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::fetch::Fetch;
use super::read::read;
use super::state::{Contents, State};
use crate::config::{Data, Location, RefreshOrigin};
use crate::watch::Changes;

/// The task that reads the lists of a stage.
pub(crate) struct Follower {
    pub states: Vec<Arc<State>>,
    /// Fetches remote lists; `None` if nothing does.
    pub fetch: Option<Arc<dyn Fetch>>,
    /// How often to fetch.
    pub every: Duration,
    /// Held while a list is read: one at a time.
    pub turn: Semaphore,
}

impl Follower {
    /// Runs forever.
    pub async fn run(self) {
        let (mut files, mut locations) = (Vec::new(), Vec::new());
        for state in &self.states {
            match &state.config.origin {
                RefreshOrigin::Path(path) => files.push((state, path)),
                RefreshOrigin::Location(location) => locations.push(self.follow_location(state, location)),
            }
        }
        join(self.follow_files(&files), join_all(locations)).await;
    }

    async fn follow_files(&self, files: &[(&Arc<State>, &PathBuf)]) {
        if files.is_empty() {
            return;
        }
        let mut changes = Changes::default();
        let paths: Vec<PathBuf> = files.iter().map(|(_, path)| (*path).clone()).collect();
        loop {
            changes.watch(&paths);
            for (state, path) in files {
                // The semaphore is never closed.
                let _turn = self.turn.acquire().await;
                take(state, read_file(path, state.config.size));
            }
            let failed = files
                .iter()
                .filter(|(state, _)| state.attempts.problem().is_some());
            let again = failed.map(|(state, _)| state.attempts.pause(self.every)).min();
            tokio::select! {
                () = changes.changed() => {}
                // The failure may have been transient.
                () = sleep(again.unwrap_or_default()), if again.is_some() => {}
            }
        }
    }

    async fn follow_location(&self, state: &State, location: &Location) {
        let Some(fetch) = &self.fetch else {
            return take(state, Err("nothing is fetched here".into()));
        };
        // An old copy is better than none until the server has answered.
        if !state.arrival.has_come()
            && let Some(kept) = fetch.kept(location)
        {
            take(state, Ok(kept));
        }
        loop {
            let turn = self.turn.acquire().await;
            take(state, fetch.fetch(location).await);
            drop(turn);
            sleep(state.attempts.pause(self.every)).await;
        }
    }
}

/// Publishes a list's text, or records why it cannot be used.
fn take(state: &State, text: Result<Arc<Data>, String>) {
    let what = format!("reading the list {:?}", state.config.name);
    match text.and_then(|text| publish(state, &text)) {
        Ok(is_new) => state.attempts.succeeded(&what, is_new),
        Err(problem) => state.attempts.failed(&what, problem),
    }
}

/// Parses and publishes a list; returns whether its text has changed.
fn publish(state: &State, text: &Data) -> Result<bool, String> {
    let digest = text.digest();
    if state
        .known
        .load()
        .as_ref()
        .is_some_and(|known| known.digest == digest)
    {
        return Ok(false);
    }
    let list = &state.config;
    let (rules, skipped) = read(text, list)?;
    tracing::info!(
        list = list.name,
        names = rules.names(),
        octets = rules.octets(),
        "list read"
    );
    if skipped.count > 0 {
        tracing::info!(list = list.name, "{skipped}");
    }
    state.publish(Contents {
        rules,
        skipped: skipped.count,
        digest,
    });
    Ok(true)
}

fn read_file(path: &Path, most: usize) -> Result<Arc<Data>, String> {
    let named = |problem: String| format!("{}: {problem}", path.display());
    let metadata = fs::metadata(path).map_err(|error| named(error.to_string()))?;
    if !metadata.is_file() {
        return Err(named("it is not a regular file".to_owned()));
    }
    if metadata.len() > most as u64 {
        return Err(named("it is larger than `size` allows: raise it".to_owned()));
    }
    let file = fs::File::open(path).map_err(|error| named(error.to_string()))?;
    Data::read(file, most as u64).map_err(|error| named(error.to_string()))
}
