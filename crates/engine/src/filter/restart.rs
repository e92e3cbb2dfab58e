//! Makes spare instances for workers that lose theirs.
//!
//! A filter may take as long to configure itself as it did when loaded, and a worker has other queries to
//! serve. So a separate thread makes the next instances ahead of time, and no worker waits for it: if none is
//! ready, `on-error` decides.

use std::mem;
use std::sync::Arc;
use std::thread;
#[cfg(test)]
use std::time::Duration;
use std::time::Instant;

use super::cancel::Cancel;
use super::check::Garbage;
use super::failure::Failure;
use super::load::Filter;
use super::sandbox::{Sandbox, StartError};
use super::spares::{READY, Spares, State};

impl Filter {
    /// Adds a worker, and starts making spares if too few are ready.
    pub(super) fn enlist(self: &Arc<Filter>) {
        let mut state = self.spares.state.lock();
        state.users += 1;
        self.replenish(&mut state);
    }

    /// Removes a worker. The last one frees the spares.
    pub(super) fn discharge(&self) {
        let mut state = self.spares.state.lock();
        state.users -= 1;
        if state.users == 0 {
            let ready = mem::take(&mut state.ready);
            if let Some(cancel) = state.starting.take() {
                cancel.cancel();
            }
            drop(state);
            drop(ready);
        }
    }

    /// Returns a spare, if one is ready.
    pub(super) fn spare(self: &Arc<Filter>) -> Option<Sandbox> {
        let mut state = self.spares.state.lock();
        let spare = state.ready.pop();
        self.replenish(&mut state);
        spare
    }

    /// Leaves no spare ready and none being made.
    #[cfg(test)]
    pub(super) fn starve(&self) {
        let mut state = self.spares.state.lock();
        while state.starting.is_some() {
            self.spares.made.wait(&mut state);
        }
        state.ready.clear();
        state.not_before = Some(Instant::now() + Duration::from_secs(3600));
    }

    /// Waits until a spare is ready or cannot be started, so that tests do not depend on how busy the machine
    /// is.
    #[cfg(test)]
    pub(super) fn await_spare(self: &Arc<Filter>) {
        let mut state = self.spares.state.lock();
        self.replenish(&mut state);
        while state.ready.is_empty() && state.starting.is_some() {
            self.spares.made.wait(&mut state);
        }
    }

    /// Starts making spares, unless enough are ready or some are being made.
    fn replenish(self: &Arc<Filter>, state: &mut State) {
        let waits = state.not_before.is_some_and(|then| Instant::now() < then);
        if state.users == 0 || state.ready.len() >= READY || state.starting.is_some() || waits {
            return;
        }
        let cancel = Cancel::default();
        let filter = Arc::clone(self);
        let thread = thread::Builder::new().name("filter-start".into()).spawn({
            let cancel = cancel.clone();
            move || filter.make_ready(&cancel)
        });
        match thread {
            Ok(_) => state.starting = Some(cancel),
            // Tried again when the next spare is needed.
            Err(error) => {
                tracing::warn!(target: "filter", filter = self.name(), %error, "cannot start a thread for new instances");
            }
        }
    }

    /// Makes spares until enough are ready or one fails to start.
    fn make_ready(&self, cancel: &Cancel) {
        let _starts = Starts(&self.spares);
        loop {
            let started = Sandbox::start(&self.exports, &self.context, &self.setup, cancel);
            let mut state = self.spares.state.lock();
            if cancel.is_cancelled() {
                return;
            }
            match started {
                Ok((sandbox, _)) => state.add(sandbox),
                Err(error) => {
                    state.end_with_failure();
                    self.context.note(&no_instance(error));
                }
            }
            #[cfg(test)]
            self.spares.made.notify_all();
            if state.starting.is_none() {
                return;
            }
        }
    }
}

/// Guards starts under way: if one panics, which is a bug in dnsweir, later ones are still tried.
struct Starts<'a>(&'a Spares);

impl Drop for Starts<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state.lock().end_with_failure();
            #[cfg(test)]
            self.0.made.notify_all();
        }
    }
}

fn no_instance(error: StartError) -> Failure {
    match error {
        StartError::Failed(failure) => failure,
        StartError::Rejected(_) => Garbage("it rejects the configuration that it had accepted".into()).into(),
    }
}
