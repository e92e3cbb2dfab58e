//! Metrics of the webhook.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use dnsweir_counts::histogram::Histogram;
use dnsweir_counts::metrics::Metrics;
use dnsweir_os::{log, output};
use dnsweir_run::exposition;

use super::injection::Reason;

/// Counters of requests, connections and certificates.
#[derive(Debug, Default)]
pub struct Counters {
    /// Pods that were changed, or would have been in a dry run.
    pub changed: AtomicU64,
    /// Pods left as they are, by reason.
    pub unchanged: [AtomicU64; Reason::ALL.len()],
    /// Requests refused, by reason.
    pub refused: [AtomicU64; Refusal::ALL.len()],
    /// Durations of requests.
    pub durations: Histogram<19>,
    /// Open connections.
    pub connections: AtomicU64,
    /// Handshakes that failed.
    pub failed_handshakes: AtomicU64,
    /// Certificates put into use.
    pub certificates: AtomicU64,
    /// Failures to get a certificate, or to announce it to the API server.
    pub certificate_errors: AtomicU64,
    /// Expiry of the certificate in use, in seconds since 1970.
    pub expires: AtomicU64,
}

/// Why a request is refused without a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is not for the webhook's path.
    Path,
    /// It is not a review of a pod.
    Malformed,
    /// Its body is too large.
    TooLarge,
    /// It took too long.
    TimedOut,
    /// There was no room for it beside other requests.
    Crowded,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 5] = [
        Refusal::Path,
        Refusal::Malformed,
        Refusal::TooLarge,
        Refusal::TimedOut,
        Refusal::Crowded,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Refusal::Path => "path",
            Refusal::Malformed => "malformed",
            Refusal::TooLarge => "too_large",
            Refusal::TimedOut => "timeout",
            Refusal::Crowded => "crowded",
        }
    }
}

impl Counters {
    /// Writes all metrics. `dry_run` selects the label of changes; `dismissed` connections made room for
    /// others.
    pub fn show(&self, dry_run: bool, dismissed: u64, metrics: &mut Metrics) {
        metrics
            .gauge("build_info", "Build information; the value is always 1")
            .add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        let help = "Pods in creation requests, by result";
        let pods = metrics.counter("webhook_pods", help);
        for (result, is_so) in [("changed", !dry_run), ("dry_run", dry_run)] {
            let count = if is_so { self.changed.load(Relaxed) } else { 0 };
            pods.add(&[("result", result)], count);
        }
        for reason in Reason::ALL {
            let count = self.unchanged[reason as usize].load(Relaxed);
            pods.add(&[("result", reason.as_str())], count);
        }
        let refused = metrics.counter("webhook_refused", "Requests refused, by reason");
        for refusal in Refusal::ALL {
            let count = self.refused[refusal as usize].load(Relaxed);
            refused.add(&[("reason", refusal.as_str())], count);
        }
        let help = "Time from a request's head to its answer";
        metrics
            .histogram("webhook_duration_seconds", help)
            .add_durations(&[], &self.durations);
        metrics
            .gauge("webhook_connections", "Open connections")
            .add(&[], self.connections.load(Relaxed));
        metrics
            .counter(
                "webhook_dismissed_connections",
                "Connections closed to make room for others",
            )
            .add(&[], dismissed);
        let mut count = |name, help, counter: &AtomicU64| {
            metrics.counter(name, help).add(&[], counter.load(Relaxed));
        };
        let help = "TLS handshakes that failed";
        count("webhook_failed_handshakes", help, &self.failed_handshakes);
        let help = "Certificates put into use";
        count("webhook_certificates", help, &self.certificates);
        let help = "Failures to get a certificate or to register it with the API server";
        count("webhook_certificate_errors", help, &self.certificate_errors);
        let help = "Expiry of the certificate in use, in seconds since 1970; 0 if there is none";
        metrics
            .gauge("webhook_certificate_expiry_timestamp_seconds", help)
            .add(&[], self.expires.load(Relaxed));
        metrics
            .counter("log_lines_left_out", exposition::LEFT_OUT)
            .add(&[], log::left_out());
        let help = "Lines of output dropped because nothing read the stream in time";
        for (stream, lines) in output::dropped() {
            metrics
                .counter("output_lines_dropped", help)
                .add(&[("stream", stream)], lines);
        }
    }
}
