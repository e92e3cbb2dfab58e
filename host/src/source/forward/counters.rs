//! What is counted about each upstream.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::failure::Fault;
use super::message;

/// What has been counted about one upstream. All are totals, updated without order between them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Queries sent over UDP.
    pub udp: AtomicU64,
    /// Queries sent over TCP.
    pub tcp: AtomicU64,
    /// Time from sending to a reply, for those that got one.
    pub durations: Histogram,
    /// Attempts that did not give an answer, by [`Reason`].
    pub failures: [AtomicU64; Reason::ALL.len()],
    /// Attempts begun because an earlier one was silent for too long.
    pub hedges: AtomicU64,
    /// Messages that were dropped because their ID or question was not that of any query.
    pub strays: AtomicU64,
    /// UDP replies with TC set, asked for again over TCP.
    pub truncated: AtomicU64,
    /// Queries sent without EDNS because the upstream does not know it, or is silent about it.
    pub without_edns: AtomicU64,
    /// Probes that it did not answer, or only with SERVFAIL or REFUSED.
    pub failed_probes: AtomicU64,
    /// Queries of ours that came back to us.
    pub loops: AtomicU64,
}

impl Counters {
    pub(super) fn failure(&self, reason: Reason) {
        self.failures[reason as usize].fetch_add(1, Relaxed);
    }
}

/// Why an attempt gave no answer: the `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Reason {
    /// Silence.
    Timeout,
    /// Nobody listens.
    ConnectionRefused,
    /// Any other network error.
    Network,
    /// A TCP connection that closed with the query on it.
    Closed,
    /// A reply that is not a DNS message.
    Malformed,
    /// A socket given up for the datagrams on it that answer nothing.
    Forged,
    /// No room on the TCP connections, or for another socket.
    Busy,
    /// No socket could be made.
    Local,
    /// RCODE 2: the next upstream was tried.
    Servfail,
    /// RCODE 5: the next upstream was tried.
    Refused,
}

impl Reason {
    /// In the order of [`Counters::failures`].
    pub const ALL: [Self; 10] = [
        Self::Timeout,
        Self::ConnectionRefused,
        Self::Network,
        Self::Closed,
        Self::Malformed,
        Self::Forged,
        Self::Busy,
        Self::Local,
        Self::Servfail,
        Self::Refused,
    ];

    /// As a label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ConnectionRefused => "connection_refused",
            Self::Network => "network",
            Self::Closed => "closed",
            Self::Malformed => "malformed",
            Self::Forged => "forged",
            Self::Busy => "busy",
            Self::Local => "local",
            Self::Servfail => "servfail",
            Self::Refused => "refused",
        }
    }

    /// For an RCODE with which a server declines a query that another one may answer.
    pub(super) fn of_rcode(rcode: u16) -> Option<Self> {
        match rcode {
            message::SERVFAIL => Some(Self::Servfail),
            message::REFUSED => Some(Self::Refused),
            _ => None,
        }
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Timeout => Self::Timeout,
            Fault::Refused => Self::ConnectionRefused,
            Fault::Network(_) => Self::Network,
            Fault::Closed => Self::Closed,
            Fault::Malformed => Self::Malformed,
            Fault::Forged => Self::Forged,
            Fault::Busy => Self::Busy,
            Fault::Local(_) => Self::Local,
        }
    }
}

/// Durations in buckets that double from 0.25 ms to 8.192 s.
#[derive(Debug, Default)]
pub struct Histogram {
    /// How many fell into each bucket, not cumulated; the last holds what exceeds every bound.
    pub buckets: [AtomicU64; Histogram::BOUNDS + 1],
    /// Sum of all, in microseconds.
    pub sum: AtomicU64,
}

impl Histogram {
    /// Number of bounded buckets.
    pub const BOUNDS: usize = 16;

    /// The upper bound of bucket `index`, inclusive, in seconds; infinite for the last.
    pub fn bound(index: usize) -> f64 {
        if index < Self::BOUNDS {
            0.000_25 * f64::from(1u32 << index)
        } else {
            f64::INFINITY
        }
    }

    pub(super) fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = (0..Self::BOUNDS)
            .find(|index| micros <= 250 << index)
            .unwrap_or(Self::BOUNDS);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        let histogram = Histogram::default();
        for micros in [1, 250, 251, 8_192_000, 8_192_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let filled: Vec<_> = (0..17).map(|n| histogram.buckets[n].load(Relaxed)).collect();
        assert_eq!((filled[0], filled[1], filled[15], filled[16]), (2, 1, 1, 1));
        assert_eq!(Histogram::bound(0), 0.000_25);
        assert_eq!(Histogram::bound(15), 8.192);
        assert!(Histogram::bound(16).is_infinite());
    }

    #[test]
    fn reasons_are_listed_in_the_order_of_their_values() {
        assert!(
            Reason::ALL
                .iter()
                .enumerate()
                .all(|(place, reason)| *reason as usize == place)
        );
    }
}
