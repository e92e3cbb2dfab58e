//! The kernel's figures of this process, under the usual names of process metrics.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::ceiling::resident;
use crate::metrics::Metrics;

/// The unit of times in /proc, on every architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds the `process_…` metrics. What the kernel does not report is left out.
pub(super) fn show(metrics: &mut Metrics) {
    if let Some(stat) = fs::read_to_string("/proc/self/stat")
        .ok()
        .as_deref()
        .and_then(Stat::read)
    {
        let help = "Processor time that the process has used, in seconds";
        metrics
            .counter("cpu_seconds", help)
            .add_seconds(&[], stat.processor);
        let help = "Size of the process's address space in bytes";
        metrics
            .gauge("virtual_memory_bytes", help)
            .add(&[], stat.address_space);
        if let Some(boot) = boot() {
            let help = "When the process started, in seconds since 1970";
            metrics
                .gauge("start_time_seconds", help)
                .add_seconds(&[], boot + stat.started);
        }
    }
    if let Some(octets) = resident() {
        let help = "Resident memory of the process in bytes";
        metrics
            .gauge("resident_memory_bytes", help)
            .add(&[], octets as u64);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One is the directory itself.
        let count = open.count().saturating_sub(1) as u64;
        metrics.gauge("open_fds", "Open file descriptors").add(&[], count);
    }
    let help = "Maximum number of open file descriptors";
    let most = getrlimit(Resource::Nofile).current;
    metrics.gauge("max_fds", help).add(&[], most.unwrap_or(u64::MAX));
}

/// Returns when the machine booted, in seconds since 1970.
fn boot() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// Fields of /proc/PID/stat, as in proc(5).
#[derive(Debug, PartialEq)]
struct Stat {
    /// CPU time in user and kernel mode, in seconds.
    processor: f64,
    /// When the process started, in seconds since boot.
    started: f64,
    /// In bytes.
    address_space: u64,
}

impl Stat {
    fn read(line: &str) -> Option<Stat> {
        // A program name may contain anything.
        let (_, fields) = line.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // The first one after the name is proc(5)'s third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            processor: (field(14)? + field(15)?) as f64 / TICKS_PER_SECOND,
            started: field(22)? as f64 / TICKS_PER_SECOND,
            address_space: field(23)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        for name in ["dnsweir", "a) R 1 (", "a\nb"] {
            let line = format!(
                "7 ({name}) S 1 7 7 0 -1 4194560 5 0 0 0 250 150 9 9 20 0 4 0 12345 104857600 900 18446744073709551615 1"
            );
            let expected = Stat {
                processor: 4.0,
                started: 123.45,
                address_space: 100 << 20,
            };
            assert_eq!(Stat::read(&line), Some(expected), "{name}");
        }
        assert_eq!(Stat::read("7 (x) S 1"), None);
        assert_eq!(Stat::read(""), None);
    }
}
