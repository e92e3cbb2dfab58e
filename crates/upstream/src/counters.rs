//! The counters of each upstream.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::failure::Fault;
use super::message::Reply;
use crate::dns::rcode;
use crate::histogram::Histogram;
use dnsweir_config::tls::Problem;

/// Counters of one upstream. All are totals, updated without order between them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Queries sent over UDP.
    pub udp: AtomicU64,
    /// Queries sent over connections: TCP, and TLS, HTTPS and QUIC.
    pub tcp: AtomicU64,
    /// Time from sending to the reply, for queries that got one.
    pub durations: Histogram<17>,
    /// Attempts without an answer, by [`Reason`].
    pub failures: [AtomicU64; Reason::ALL.len()],
    /// Attempts started because an earlier one was silent for too long.
    pub hedges: AtomicU64,
    /// Messages dropped because their ID or question matched no query.
    pub strays: AtomicU64,
    /// UDP replies with TC set, retried over TCP.
    pub truncated: AtomicU64,
    /// Queries sent without EDNS because the upstream rejects or ignores it.
    pub without_edns: AtomicU64,
    /// Probes without an answer, or answered with SERVFAIL or REFUSED.
    pub failed_probes: AtomicU64,
    /// Loop probes that came back to us.
    pub loops: AtomicU64,
}

impl Counters {
    pub(super) fn failure(&self, reason: Reason) {
        self.failures[reason as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn reply(&self, took: Duration) {
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.durations.observe(microseconds, |counter, by| {
            counter.fetch_add(by, Relaxed);
        });
    }
}

/// Why an attempt gave no answer: the `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Reason {
    /// No reply in time.
    Timeout,
    /// Nothing listens there.
    ConnectionRefused,
    /// Any other network error.
    Network,
    /// The TCP connection closed with the query on it.
    Closed,
    /// A reply that is not a valid DNS message.
    Malformed,
    /// A socket given up after too many datagrams that match no query.
    Forged,
    /// All connections are full, or no further socket may be opened.
    Busy,
    /// No socket could be created.
    Local,
    /// The node dropped the query.
    Denied,
    /// RCODE 2: the next upstream was tried.
    Servfail,
    /// RCODE 5: the next upstream was tried.
    Refused,
    /// A certificate for another name.
    CertificateName,
    /// An expired certificate.
    CertificateExpired,
    /// A certificate that is not valid yet.
    CertificateEarly,
    /// A certificate from an untrusted issuer.
    CertificateIssuer,
    /// A key that is not one of the pinned keys.
    CertificateKey,
    /// Another fault of the certificate.
    Certificate,
    /// TLS failed for another reason.
    Tls,
    /// An HTTP status other than 200.
    Http,
    /// RCODE 1: the next upstream was tried.
    Formerr,
    /// RCODE 4: the next upstream was tried.
    Notimp,
    /// RCODE 9: the next upstream was tried.
    Notauth,
    /// A referral instead of an answer: the next upstream was tried.
    Referral,
}

impl Reason {
    /// All reasons, in the order of [`Counters::failures`].
    pub const ALL: [Self; 23] = [
        Self::Timeout,
        Self::ConnectionRefused,
        Self::Network,
        Self::Closed,
        Self::Malformed,
        Self::Forged,
        Self::Busy,
        Self::Local,
        Self::Denied,
        Self::Servfail,
        Self::Refused,
        Self::CertificateName,
        Self::CertificateExpired,
        Self::CertificateEarly,
        Self::CertificateIssuer,
        Self::CertificateKey,
        Self::Certificate,
        Self::Tls,
        Self::Http,
        Self::Formerr,
        Self::Notimp,
        Self::Notauth,
        Self::Referral,
    ];

    /// The label's value.
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
            Self::Denied => "denied",
            Self::Servfail => "servfail",
            Self::Refused => "refused",
            Self::CertificateName => "certificate_name",
            Self::CertificateExpired => "certificate_expired",
            Self::CertificateEarly => "certificate_early",
            Self::CertificateIssuer => "certificate_issuer",
            Self::CertificateKey => "certificate_key",
            Self::Certificate => "certificate",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Formerr => "formerr",
            Self::Notimp => "notimp",
            Self::Notauth => "notauth",
            Self::Referral => "referral",
        }
    }

    /// The reason for an RCODE that may mean that the server can answer nothing.
    pub(super) fn of_rcode(rcode: u16) -> Option<Self> {
        match rcode {
            rcode::SERVFAIL => Some(Self::Servfail),
            rcode::REFUSED => Some(Self::Refused),
            _ => None,
        }
    }

    /// The reason to ask another server after this reply: this one may be well, but cannot read the query, or
    /// is the wrong one for it.
    pub(super) fn to_ask_another(reply: &Reply) -> Option<Self> {
        match reply.rcode {
            rcode::FORMERR => Some(Self::Formerr),
            rcode::NOTIMP => Some(Self::Notimp),
            rcode::NOTAUTH => Some(Self::Notauth),
            rcode::NOERROR if reply.is_referral() => Some(Self::Referral),
            rcode => Self::of_rcode(rcode),
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
            Fault::Http(_) => Self::Http,
            Fault::Tls(problem) => match problem {
                Problem::WrongName => Self::CertificateName,
                Problem::Expired => Self::CertificateExpired,
                Problem::NotYetValid => Self::CertificateEarly,
                Problem::UnknownIssuer => Self::CertificateIssuer,
                Problem::WrongKey => Self::CertificateKey,
                Problem::Certificate => Self::Certificate,
                Problem::Alert(_) | Problem::Protocol => Self::Tls,
            },
            Fault::Forged => Self::Forged,
            Fault::Busy => Self::Busy,
            Fault::Local(_) => Self::Local,
            Fault::Denied => Self::Denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
