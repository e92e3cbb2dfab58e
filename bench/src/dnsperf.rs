//! The load generator beside dnsperf: the same server, the same names, the same rate.
//!
//! What a query costs the floor must not depend much on who asks. What differs is told rather than
//! hidden: dnsperf sleeps between queries, so the server pays for waking it, and it sends queries one by
//! one, which makes for smaller batches at the server.

use std::fmt::Write;
use std::io;
use std::process::Command;
use std::time::Duration;

use crate::accounting::Processor;
use crate::measure::{Plan, measure};
use crate::peers::in_path;
use crate::process::{Scratch, pin};
use crate::report::FLOOR;
use crate::rotation::start_floor;
use crate::sample::{Load, median};
use crate::wire::A;
use crate::workload::Workload;

/// How to compare.
pub struct Settings {
    /// How often.
    pub rounds: u32,
    /// For how long each time.
    pub duration: Duration,
    /// Queries per second of the fixed load.
    pub rate: u32,
    /// Queries sent at once by ours.
    pub burst: usize,
    /// The processor of the floor.
    pub server_core: usize,
    /// The processor of both clients.
    pub client_core: usize,
}

/// What one client found in one round.
struct Found {
    rate: f64,
    cost: f64,
    lost: f64,
}

/// Asks the floor with both, in turn; gives a table.
pub fn compare(settings: &Settings) -> io::Result<String> {
    let dnsperf = in_path("dnsperf").ok_or_else(|| io::Error::other("dnsperf is not installed"))?;
    pin(settings.client_core)?;
    let scratch = Scratch::new()?;
    let folder = scratch.folder("names")?;
    let server = start_floor(settings.server_core, &scratch)?;
    let listen = server.address;

    let names = folder.join("names");
    std::fs::write(&names, name_list())?;
    let mut table =
        String::from("| client | load | q/s | server's CPU µs/query | lost |\n|---|--:|--:|--:|--:|\n");
    for load in [Load::Rate(settings.rate), Load::Saturation] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..settings.rounds {
            let plan = Plan {
                round,
                workload: Workload::HOT,
                load,
                duration: settings.duration,
                burst: settings.burst,
                seed: round,
                core: settings.server_core,
            };
            let sample = measure(&server, FLOOR, plan)?;
            ours.push(Found {
                rate: sample.rate(),
                cost: sample.cost().unwrap_or(f64::NAN),
                lost: sample.failed(),
            });
            let mut command = Command::new(&dnsperf);
            command
                .args(["-s", &listen.ip().to_string(), "-p", &listen.port().to_string()])
                .args(["-l", &settings.duration.as_secs().max(1).to_string()])
                .args(["-c", "8", "-T", "1", "-q", "128"])
                .arg("-d")
                .arg(&names);
            if let Load::Rate(rate) = load {
                command.args(["-Q", &rate.to_string()]);
            }
            let before = Processor::of(server.id())?;
            let output = command.output()?;
            let used = Processor::of(server.id())?.since(before);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            theirs.push(
                read(&text, used.scheduled).ok_or_else(|| {
                    io::Error::other(format!("dnsperf's report is not understood:\n{text}"))
                })?,
            );
        }
        for (client, found) in [("dnsweir-bench", ours), ("dnsperf", theirs)] {
            let of = |figure: fn(&Found) -> f64| median(found.iter().map(figure)).unwrap_or(f64::NAN);
            let _ = writeln!(
                table,
                "| {client} | {} | {:.0} | {:.2} | {:.3} % |",
                load.title(),
                of(|found| found.rate),
                of(|found| found.cost),
                of(|found| found.lost) * 100.0,
            );
        }
    }
    Ok(table)
}

/// The names of [`Workload::HOT`], as dnsperf reads them.
fn name_list() -> String {
    let (count, mut next) = Workload::HOT.warm_up();
    let mut text = String::new();
    for _ in 0..count {
        let question = next();
        let letter = char::from(question.letter);
        debug_assert_eq!(question.qtype, A);
        let _ = writeln!(text, "{letter}{:010}.bench.example.net A", question.number);
    }
    text
}

/// Figures of dnsperf's report.
fn read(text: &str, processor: u64) -> Option<Found> {
    let figure = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let completed = figure("Queries completed:")?;
    Some(Found {
        rate: figure("Queries per second:")?,
        cost: processor as f64 / 1000.0 / completed,
        lost: figure("Queries lost:")? / figure("Queries sent:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = "\nStatistics:\n\n  Queries sent:         1000\n  Queries completed:    990 (99.00%)\n  \
                    Queries lost:         10 (1.00%)\n\n  Queries per second:   495.5\n";
        let found = read(text, 9_900_000).unwrap();
        assert_eq!((found.rate, found.cost, found.lost), (495.5, 10.0, 0.01));
        assert!(read("Error: no such host", 0).is_none());
    }

    #[test]
    fn names_are_those_that_are_asked() {
        let text = name_list();
        assert_eq!(text.lines().count(), 64);
        assert!(text.starts_with("h0000000000.bench.example.net A\n"));
    }
}
