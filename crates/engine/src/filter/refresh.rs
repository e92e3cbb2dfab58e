//! A filter's refresh: its own call, beside the workers, in an instance of its own.

use super::cancel::Cancel;
use super::data::SourceFile;
use super::load::Filter;
use super::sandbox::{Sandbox, StartError};
use super::text;
use crate::attempts::Attempts;
use crate::config;

/// Octets of what a filter says about its sources.
const COMPLAINT: usize = 1024;

/// What the filter says of its sources, in one line.
pub(super) fn complaint(said: &str) -> String {
    match text::one_line(said, COMPLAINT) {
        nothing if nothing.is_empty() => "the filter gave no reason".to_owned(),
        said => said,
    }
}

impl Filter {
    /// What the configuration says about its refresh, if it has one.
    pub fn refresh_config(&self) -> Option<&config::Refresh> {
        self.context.refresh.as_ref()
    }

    /// How its refreshes came out.
    pub fn refreshes(&self) -> &Attempts {
        &self.context.counters.refreshes
    }

    /// Whether anything is published.
    pub fn has_published(&self) -> bool {
        self.context.published.revision() > 0
    }

    /// Octets that are published.
    pub fn published_octets(&self) -> usize {
        let snapshot = self.context.published.snapshot();
        snapshot.values().map(|data| data.len()).sum()
    }

    /// Has the filter make data of these files, and all its instances see it from their next call on. `now` is Unix time in
    /// milliseconds. It takes as long as `limits refresh-time=` allows: not for a worker's thread, nor for one that
    /// drives a runtime.
    ///
    /// # Errors
    /// In words, when the filter fails, or finds something wrong with the files. Then nothing changes.
    pub fn refresh(&self, now: u64, files: Vec<SourceFile>) -> Result<(), String> {
        let started =
            Sandbox::start_to_refresh(&self.exports, &self.context, &self.setup, &Cancel::default());
        let mut sandbox = started.map_err(|error| match error {
            StartError::Failed(failure) => failure.message,
            StartError::Rejected(_) => "it rejects the configuration that it had accepted".to_owned(),
        })?;
        let refreshed = sandbox.refresh(now, files).map_err(|failure| failure.message)?;
        let output = refreshed.map_err(|said| complaint(&said))?;
        let snapshot = output
            .finish()
            .map_err(|error| format!("there is no memory for what it makes: {error}"))?;
        self.context.published.publish(snapshot);
        Ok(())
    }
}
