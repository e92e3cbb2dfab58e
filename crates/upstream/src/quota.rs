//! Limits on open upstream sockets: per stage for all workers, per process for all stages and generations.
//!
//! A socket counts against both, so that no stage takes what another was promised, and all together never
//! exceed the descriptors of the process.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::failure::Fault;

/// A limit on open sockets.
#[derive(Debug)]
pub struct Quota {
    open: AtomicUsize,
    limit: AtomicUsize,
}

impl Quota {
    /// A limit without open sockets.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        })
    }

    /// Changes the limit for sockets opened from now on.
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

    /// Counts a socket; false if that is one too many.
    fn add(&self) -> bool {
        self.open.fetch_add(1, Relaxed) < self.limit.load(Relaxed)
    }
}

/// The two quotas that a stage's sockets count against.
#[derive(Debug, Clone)]
pub(super) struct Quotas {
    /// The stage's quota, over all workers.
    pub stage: Arc<Quota>,
    /// The process's quota, over all stages.
    pub process: Arc<Quota>,
}

impl Quotas {
    /// For a socket that is counted elsewhere.
    pub fn unbounded() -> Self {
        Self {
            stage: Quota::new(usize::MAX),
            process: Quota::new(usize::MAX),
        }
    }

    /// Whether the process may open another socket. If not, queries share open sockets for longer than usual.
    pub(crate) fn is_left(&self) -> bool {
        self.process.is_left()
    }

    /// Reserves one socket until the permit is dropped; fails with [`Fault::Busy`].
    pub fn take(&self) -> Result<Permit, Fault> {
        let permit = Permit(self.clone());
        // Both are counted before either is checked, since dropping the permit releases both.
        let (stage, process) = (self.stage.add(), self.process.add());
        (stage && process).then_some(permit).ok_or(Fault::Busy)
    }
}

/// A reservation of one socket.
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
