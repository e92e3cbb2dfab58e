//! The self-test results of a running proxy, for `/ready`, the log and `/metrics`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The result of a listener's queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// We answered, or another dnsweir on the same address did.
    Answered,
    /// Another server answered.
    Diverted,
    /// No server answered.
    Unanswered,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Verdict; 3] = [Verdict::Answered, Verdict::Diverted, Verdict::Unanswered];

    /// The value of the label `result`.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Answered => "answered",
            Verdict::Diverted => "diverted",
            Verdict::Unanswered => "unanswered",
        }
    }

    /// What is wrong, as `node status` prints it.
    pub fn wrong(self) -> Option<&'static str> {
        match self {
            Verdict::Answered => None,
            Verdict::Diverted => Some("diverted"),
            Verdict::Unanswered => Some("no answer"),
        }
    }
}

/// A listener that would not answer pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    listener: SocketAddr,
    verdict: Verdict,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { listener, verdict } = self;
        let why = match verdict {
            Verdict::Diverted => "another server answers the self-test: the rules do not lead here",
            _ => "the self-test gets none: a rule drops queries or replies",
        };
        write!(f, "a pod would not get an answer from {listener}: {why}")
    }
}

/// The self-test results of a running proxy.
#[derive(Debug, Default)]
pub struct Record {
    counts: [AtomicU64; Verdict::ALL.len()],
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    listeners: usize,
    failures: Vec<Failure>,
    /// Why no test ran.
    why: Option<String>,
}

impl Record {
    /// How many tests of single listeners had this result.
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.counts[verdict as usize].load(Ordering::Relaxed)
    }

    /// How many listeners the last test had; 0 if there is no self-test.
    pub fn listeners(&self) -> usize {
        self.last.lock().listeners
    }

    /// The listeners that would not answer pods.
    pub fn failures(&self) -> Vec<Failure> {
        self.last.lock().failures.clone()
    }

    /// Returns whether the test itself failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.last.lock().why.is_some()
    }

    /// Stores a result and logs what is new in it. Returns whether no listener failed.
    pub fn keep(&self, outcome: io::Result<Vec<(SocketAddr, Verdict)>>) -> bool {
        let (verdicts, why) = match outcome {
            Ok(verdicts) => (verdicts, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        for (_, verdict) in &verdicts {
            self.counts[*verdict as usize].fetch_add(1, Ordering::Relaxed);
        }
        let failed = verdicts
            .iter()
            .filter(|(_, verdict)| *verdict != Verdict::Answered);
        let failures: Vec<Failure> = failed
            .map(|&(listener, verdict)| Failure { listener, verdict })
            .collect();
        let mut last = self.last.lock();
        for failure in failures.iter().filter(|failure| !last.failures.contains(failure)) {
            tracing::warn!("node: {failure}");
        }
        if failures.is_empty() && why.is_none() && !last.failures.is_empty() {
            tracing::info!("node: the self-test is answered again");
        }
        if let Some(why) = why.as_ref().filter(|_| last.why != why) {
            tracing::warn!("node: the self-test cannot ask: {why}");
        }
        *last = Last {
            listeners: verdicts.len(),
            failures,
            why,
        };
        last.failures.is_empty()
    }
}
