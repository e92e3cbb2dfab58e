//! `cargo xtask soak MINUTES [FLOOD]`: a calm client beside floods, for this many minutes in all; only beside those whose
//! name contains FLOOD.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it found"
)]

use std::process::ExitCode;
use std::time::Duration;

use harness::soak::{Row, Soak, TOGETHER, floods};

fn main() -> ExitCode {
    let minutes: Result<f64, _> = std::env::args().nth(1).unwrap_or("10".into()).parse();
    let Ok(minutes) = minutes.map(|minutes| minutes.clamp(0.1, 10_000.0)) else {
        eprintln!("soak: write how many minutes it is to take, such as 10");
        return ExitCode::FAILURE;
    };
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let floods: Vec<_> = floods::ALL
        .into_iter()
        .filter(|flood| flood.name.contains(&wanted))
        .collect();
    let is_together = TOGETHER.contains(&wanted);
    let phases = floods.len() + 2 + usize::from(is_together);
    let each = Duration::from_secs_f64(60.0 * minutes / phases as f64);
    let mut soak = Soak::start();
    println!("{}", Row::HEAD);
    let mut rows = Vec::new();
    let mut note = |row: Row| {
        println!("{row}");
        rows.push(row);
    };
    note(soak.phase(None, each));
    for flood in floods {
        note(soak.phase(Some(flood), each));
    }
    if is_together {
        note(soak.all_at_once(&floods::ALL, each));
    }
    let settled = soak.settles();
    note(soak.phase(None, each));
    let (lost, failed) = rows.iter().fold((0, 0), |(lost, failed), row| {
        (lost + row.seen.lost, failed + row.seen.failed())
    });
    let metrics = soak.stage.proxy.metrics();
    let ceiling = metrics.sum("dnsweir_memory_ceiling_bytes", &[]) as u64;
    let peak = soak.stage.proxy.process.memory("VmHWM");
    println!(
        "\n{lost} queries of the calm client were lost, {failed} got no good answer; {:.1} of at most {:.1} MiB were \
         resident; {} descriptors are open, {} were before",
        peak as f64 / f64::from(1 << 20),
        ceiling as f64 / f64::from(1 << 20),
        soak.stage.proxy.process.descriptors(),
        soak.descriptors,
    );
    match lost == 0 && peak <= ceiling && settled {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
