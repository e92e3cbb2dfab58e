//! Threads beside the workers: permanent ones with their own runtime, such as for following an API server,
//! and short ones for blocking work. A failure to start one is an error, where tokio's `spawn_blocking`
//! panics. Others wait for its result by an [`Arrival`], for a time that [`Loading`] bounds.

use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::sync::{oneshot, watch};

/// Running work. Dropping this ends it at its next await.
#[derive(Debug)]
pub struct Background {
    _end: oneshot::Sender<()>,
}

impl Background {
    /// Runs the future made by `work` on a new thread. Fails if there can be no thread or runtime.
    pub fn start<W: Future<Output = ()>>(
        name: &str,
        work: impl FnOnce() -> W + Send + 'static,
    ) -> io::Result<Background> {
        let (end, ended) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = work() => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Background { _end: end })
    }
}

/// Whether something is there yet.
#[derive(Debug, Default)]
pub struct Arrival(watch::Sender<bool>);

impl Arrival {
    /// Records that it is there.
    pub fn come(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is there.
    pub fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is there.
    pub async fn wait(&self) {
        // Cannot fail: `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|come| *come).await;
    }
}

/// When something began to load, and how long others wait for that.
#[derive(Debug)]
pub struct Loading {
    begun: OnceLock<Instant>,
    wait: Duration,
}

impl Loading {
    /// It has not begun, and will be waited for this long.
    pub fn new(wait: Duration) -> Loading {
        let begun = OnceLock::new();
        Loading { begun, wait }
    }

    /// Begins; true for the first call only.
    pub fn begins(&self) -> bool {
        self.begun.set(Instant::now()).is_ok()
    }

    /// How long others still wait.
    fn left(&self) -> Duration {
        let passed = self.begun.get().map_or(Duration::ZERO, Instant::elapsed);
        self.wait.saturating_sub(passed)
    }

    /// Whether others still wait.
    pub fn is_awaited(&self) -> bool {
        !self.left().is_zero()
    }

    /// Waits for `loaded`, as long as that is awaited. A wait that was in vain is not repeated.
    pub async fn wait_for(&self, loaded: impl Future) {
        if self.is_awaited() {
            let _ = tokio::time::timeout(self.left(), loaded).await;
        }
    }
}

/// Starts blocking work on a new thread.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn begin(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Runs blocking work on a new thread, and returns its result.
///
/// # Errors
///
/// If the thread cannot be started, or the work panics.
pub async fn beside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    // Fails if the caller has stopped waiting.
    begin(name, move || drop(tell.send(work())))?;
    let panicked = |_| io::Error::other(format!("the thread `{name}` panicked"));
    told.await.map_err(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Building a generation is such work: a panic in it leaves the process as it was.
    #[test]
    fn work_that_panics_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let panicking = || -> u8 { panic!("on purpose") };
        let error = runtime.block_on(beside("loading", panicking)).unwrap_err();
        assert_eq!(error.to_string(), "the thread `loading` panicked");
        assert_eq!(runtime.block_on(beside("loading", || 1)).unwrap(), 1);
    }
}
