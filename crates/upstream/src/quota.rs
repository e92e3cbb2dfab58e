//! How many sockets to upstreams may be open at once: those of a stage over all workers, and those of the process over all
//! stages and generations.
//!
//! A socket has a place in both, so that no stage takes what another one was promised, and all together no more descriptors
//! than the process has for them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::failure::Fault;

/// A number of sockets that may be open at once.
#[derive(Debug)]
pub struct Quota {
    open: AtomicUsize,
    limit: AtomicUsize,
}

impl Quota {
    /// No socket is open yet.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        })
    }

    /// Another limit for the sockets that are opened from now on.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    pub(super) fn is_left(&self) -> bool {
        self.open.load(Relaxed) < self.limit.load(Relaxed)
    }

    /// Counts a socket; false if it is one too many.
    fn add(&self) -> bool {
        self.open.fetch_add(1, Relaxed) < self.limit.load(Relaxed)
    }
}

/// The two quotas that a stage's sockets have to keep to.
#[derive(Debug, Clone)]
pub(super) struct Quotas {
    /// The stage's, over all workers.
    pub stage: Arc<Quota>,
    /// The process's, over all stages.
    pub process: Arc<Quota>,
}

impl Quotas {
    /// Those of a socket that is counted elsewhere.
    pub fn unbounded() -> Self {
        Self {
            stage: Quota::new(usize::MAX),
            process: Quota::new(usize::MAX),
        }
    }

    /// Whether the process may open another socket. When it may not, queries share those that are open for longer than
    /// they would otherwise.
    pub(crate) fn is_left(&self) -> bool {
        self.process.is_left()
    }

    /// Room for one socket, until it is dropped.
    pub fn take(&self) -> Result<Permit, Fault> {
        let permit = Permit(self.clone());
        // Both are counted before either is judged, since a permit gives both back.
        let (stage, process) = (self.stage.add(), self.process.add());
        (stage && process).then_some(permit).ok_or(Fault::Busy)
    }
}

/// Room for one socket.
#[derive(Debug)]
pub(super) struct Permit(Quotas);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.stage.open.fetch_sub(1, Relaxed);
        self.0.process.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_sockets_than_allowed() {
        let quotas = Quotas {
            stage: Quota::new(2),
            ..Quotas::unbounded()
        };
        let permits: Vec<_> = (0..2).map(|_| quotas.take().unwrap()).collect();
        assert_eq!(quotas.take().unwrap_err(), Fault::Busy);
        drop(permits);
        assert!(quotas.take().is_ok());
    }

    #[test]
    fn stages_share_what_the_process_may_have() {
        let process = Quota::new(3);
        let [one, other] = [2, 2].map(|limit| Quotas {
            stage: Quota::new(limit),
            process: Arc::clone(&process),
        });
        let permits = [one.take().unwrap(), one.take().unwrap(), other.take().unwrap()];
        assert!(!other.is_left());
        assert_eq!(other.take().unwrap_err(), Fault::Busy);
        drop(permits);
        assert_eq!((process.open(), one.stage.open(), other.stage.open()), (0, 0, 0));
        process.set_limit(0);
        assert_eq!(other.take().unwrap_err(), Fault::Busy);
    }
}
