//! Work beside the workers: for good, such as following an API server, by a thread with a runtime of its own; or a piece of it that
//! blocks, by a thread that ends with it. Where there can be no thread, that is an error: tokio's `spawn_blocking` panics.

use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::sync::oneshot;

/// Work that is being done. Dropped, it ends with the next thing that it waits for.
#[derive(Debug)]
pub struct Background {
    _end: oneshot::Sender<()>,
}

impl Background {
    /// Begins with what `work` makes, on a thread of this name. An error: there can be no thread, or no runtime.
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

/// Waits for what somebody has begun to learn, but no longer than `wait` since then. Who has waited in vain does not wait again.
pub async fn learnt(begun: Option<&Instant>, wait: Duration, ready: impl Future) {
    let left = wait.saturating_sub(begun.map_or(Duration::ZERO, Instant::elapsed));
    if !left.is_zero() {
        let _ = tokio::time::timeout(left, ready).await;
    }
}

/// Begins a piece of work that blocks, on a thread of this name.
///
/// # Errors
///
/// When there can be no thread.
pub fn begin(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Does a piece of work that blocks, on a thread of this name, and waits for what comes of it.
///
/// # Errors
///
/// When there can be no thread, or the work panics.
pub async fn beside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    // Who has stopped waiting does not want it any more.
    begin(name, move || drop(tell.send(work())))?;
    let panicked = |_| io::Error::other(format!("the thread `{name}` panicked"));
    told.await.map_err(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Building a generation is such work: whatever panics in there, the process goes on as before.
    #[test]
    fn work_that_panics_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let panicking = || -> u8 { panic!("on purpose") };
        let error = runtime.block_on(beside("loading", panicking)).unwrap_err();
        assert_eq!(error.to_string(), "the thread `loading` panicked");
        assert_eq!(runtime.block_on(beside("loading", || 1)).unwrap(), 1);
    }
}
