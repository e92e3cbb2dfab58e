//! A filter's refresh: one call on a thread that is not a worker's, in a new instance.

use dnsweir_os::clock::UnixTime;

use super::cancel::Cancel;
use super::data::SourceFile;
use super::load::Filter;
use super::sandbox::{Sandbox, StartError};
use super::text;
use crate::attempts::Attempts;
use crate::config;

/// Maximum bytes of the filter's message about its sources.
const COMPLAINT: usize = 1024;

/// The filter's message about its sources, in one line.
pub(super) fn complaint(said: &str) -> String {
    match text::one_line(said, COMPLAINT) {
        nothing if nothing.is_empty() => "the filter gave no reason".to_owned(),
        said => said,
    }
}

impl Filter {
    /// The configuration of its refresh, if it has one.
    pub fn refresh_config(&self) -> Option<&config::Refresh> {
        self.context.refresh.as_ref()
    }

    /// The results of its refreshes.
    pub fn refreshes(&self) -> &Attempts {
        &self.context.counters.refreshes
    }

    /// Whether anything is published.
    pub fn has_published(&self) -> bool {
        self.context.published.revision() > 0
    }

    /// Bytes that are published.
    pub fn published_octets(&self) -> usize {
        let snapshot = self.context.published.snapshot();
        snapshot.values().map(|data| data.len()).sum()
    }

    /// Runs the refresh on these files and publishes its result; all instances see it from their next call
    /// on. It may take as long as `limits refresh-time=` allows, so it must not be called on a worker's thread
    /// or on one that drives a runtime.
    ///
    /// # Errors
    /// The message if the filter fails or rejects the files. Then nothing changes.
    pub fn refresh(&self, now: UnixTime, files: Vec<SourceFile>) -> Result<(), String> {
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
