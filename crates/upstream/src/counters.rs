//! What is counted about each upstream.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::failure::Fault;
use super::message::Reply;
use crate::dns::rcode;
use crate::histogram::Histogram;
use dnsweir_config::tls::Problem;

/// What has been counted about one upstream. All are totals, updated without order between them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Queries sent over UDP.
    pub udp: AtomicU64,
    /// Queries sent over TCP, or what lies upon it.
    pub tcp: AtomicU64,
    /// Time from sending to a reply, for those that got one.
    pub durations: Histogram<17>,
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
    /// The node dropped what was sent.
    Denied,
    /// RCODE 2: the next upstream was tried.
    Servfail,
    /// RCODE 5: the next upstream was tried.
    Refused,
    /// A certificate for another name.
    CertificateName,
    /// A certificate whose time is over.
    CertificateExpired,
    /// A certificate whose time has not come.
    CertificateEarly,
    /// A certificate of an authority that is not trusted.
    CertificateIssuer,
    /// A key that is not among those pinned.
    CertificateKey,
    /// Another fault of a certificate.
    Certificate,
    /// No TLS for another reason.
    Tls,
    /// An error of HTTP.
    Http,
    /// RCODE 1: the next upstream was tried.
    Formerr,
    /// RCODE 4: the next upstream was tried.
    Notimp,
    /// RCODE 9: the next upstream was tried.
    Notauth,
    /// Other servers in the place of an answer: the next upstream was tried.
    Referral,
}

impl Reason {
    /// In the order of [`Counters::failures`].
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

    /// For an RCODE that may mean that the server cannot answer anything.
    pub(super) fn of_rcode(rcode: u16) -> Option<Self> {
        match rcode {
            rcode::SERVFAIL => Some(Self::Servfail),
            rcode::REFUSED => Some(Self::Refused),
            _ => None,
        }
    }

    /// For a reply that is no answer, which another server may have: such a server may be well, and cannot read this query, or is the
    /// wrong one for it.
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
