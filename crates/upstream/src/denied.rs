//! Logs why this node drops queries to upstreams, as far as the kernel reveals it.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The shortest time between two such messages.
const PAUSE: Duration = Duration::from_secs(60);

/// When it was last logged.
static TOLD: Mutex<Option<Instant>> = Mutex::new(None);

/// Logs that a query to an upstream was dropped, unless that was logged within [`PAUSE`].
pub(super) fn tell(upstream: SocketAddr) {
    let mut told = TOLD.lock();
    if told.is_some_and(|told| told.elapsed() < PAUSE) {
        return;
    }
    *told = Some(Instant::now());
    let of = |what: &str| fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{what}")).ok();
    let why = reason(of("count").as_deref(), of("max").as_deref());
    tracing::error!(%upstream, "this node drops queries to upstreams: {why}");
}

/// Why the kernel returned EPERM, judged by the entries in its connection tracking table and their maximum.
fn reason(count: Option<&str>, most: Option<&str>) -> String {
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u64>().ok());
    match (number(count), number(most)) {
        // By the time of reading, some entries have gone.
        (Some(count), Some(most)) if count >= most - most / 8 => format!(
            "its connection tracking table is full ({count} of {most} entries): raise net.netfilter.nf_conntrack_max, or find who opens so many \
             connections"
        ),
        _ => "a rule of its packet filter forbids them (EPERM)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_told_from_a_rule() {
        for (count, most, full) in [
            (Some("262144\n"), Some("262144\n"), true),
            (Some("240000"), Some("262144"), true),
            (Some("100"), Some("262144"), false),
            (Some("1"), Some("0"), true),
            (None, None, false),
            (Some("many"), Some("1"), false),
        ] {
            let said = reason(count, most);
            assert_eq!(
                said.starts_with("its connection tracking table is full"),
                full,
                "{said}"
            );
        }
    }
}
