//! Starting a new instance after a failure, beside the worker.
//!
//! A filter may take as long to configure itself as when it was loaded, and the worker has other queries to serve. So a
//! separate thread starts the instance, and the worker waits for it no longer than for a call; after that the filter
//! counts as failed until the instance is ready.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::cancel::CancelOnDrop;
use super::check::Garbage;
use super::failure::{Failure, Reason};
use super::load::Filter;
use super::sandbox::{Sandbox, StartError};

/// An instance in the making. It is given up if this is dropped.
pub(super) struct Restart {
    made: Receiver<Result<Sandbox, Failure>>,
    _unwanted: CancelOnDrop,
}

impl Restart {
    /// Begins to make one. There is one at most for each filter of each worker, so these threads are few.
    ///
    /// # Errors
    ///
    /// When there is no thread.
    pub(super) fn begin(filter: &Arc<Filter>) -> io::Result<Restart> {
        let filter = Arc::clone(filter);
        let unwanted = CancelOnDrop::default();
        let cancel = unwanted.cancel().clone();
        let (sender, made) = sync_channel(1);
        thread::Builder::new()
            .name("filter-start".into())
            .spawn(move || {
                let started = Sandbox::start(&filter.exports, &filter.context, &filter.setup, &cancel);
                let made = started.map(|(sandbox, _)| sandbox).map_err(|error| match error {
                    StartError::Failed(failure) => failure,
                    StartError::Rejected(_) => {
                        Garbage("it rejects the configuration that it had accepted".into()).into()
                    }
                });
                // The worker may be gone by now.
                let _ = sender.send(made);
            })?;
        Ok(Restart {
            made,
            _unwanted: unwanted,
        })
    }

    /// What was made, if it is there within this time.
    pub(super) fn wait(&self, most: Duration) -> Option<Result<Sandbox, Failure>> {
        match self.made.recv_timeout(most) {
            Ok(made) => Some(made),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(Failure {
                reason: Reason::Trap,
                message: "its start panicked, which is a fault of dnsweir: please report it".into(),
            })),
        }
    }
}
