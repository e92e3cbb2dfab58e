//! What it costs threads to answer the same names from one cache, and an estimate for more threads than there
//! are processors.
//!
//! One thread, and as many as there are processors, are measured: whole hits without sockets, as in
//! [`hit`](crate::hit). More threads are simulated from two measurements: a hit on one thread alone, and the
//! time a cache line takes from one processor to another. For two threads the simulation can be compared with
//! the measurement. Other machines' processors may be further apart than the two of this one, so a second
//! simulation makes a move take four times as long.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::hit::{Common, Plan, Setup, measure};
use crate::process::{pin, processors};

/// Queries in a batch.
const BATCH: u64 = 32;

/// The part of a hit up to when its entry is found, by instructions.
const LOOKED_UP: f64 = 0.64;

/// How often the line moves there and back.
const TURNS: u64 = 200_000;

/// What to measure.
#[derive(Args)]
pub struct Settings {
    /// Measurements of each
    #[arg(long, value_name = "N", default_value_t = 100)]
    rounds: u32,
    /// Queries of each thread in one
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    count: u64,
}

/// Measures, and returns a table.
///
/// # Errors
///
/// If the proxy cannot be set up, or a reply is wrong.
pub fn run(settings: &Settings) -> Result<String, Box<dyn Error>> {
    let all: Vec<usize> = (0..processors()).collect();
    let one = &all[..1];
    let cases = [
        ("one name, one thread", Setup::shared(one, 1, Common::Names)),
        ("64 names, one thread", Setup::shared(one, 64, Common::Names)),
        ("the same name", Setup::shared(&all, 1, Common::Names)),
        ("the same 64 names", Setup::shared(&all, 64, Common::Names)),
        (
            "64 names, a part for each",
            Setup::shared(&all, 64, Common::Cache),
        ),
        (
            "64 names, a cache for each",
            Setup::shared(&all, 64, Common::Nothing),
        ),
    ];
    let mut took: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    let mut moves = Vec::new();
    for round in 0..settings.rounds as usize {
        for turn in 0..cases.len() {
            let at = (turn + round) % cases.len();
            let plan = Plan {
                count: settings.count,
                limit: Duration::MAX,
                batch: BATCH as usize,
                rounds: 1,
            };
            took[at].push(measure(&cases[at].1, plan)?.each);
        }
        moves.push(line_move(&all)?);
    }
    let mut table = format!("nanoseconds for each hit; {} threads unless said\n", all.len());
    let mut middles = Vec::new();
    for ((name, _), took) in cases.iter().zip(took) {
        let [low, middle, high] = quarters(took);
        middles.push(middle);
        let _ = writeln!(table, "{name:<28}{middle:>8.1} ({low:.1}–{high:.1})");
    }
    let [low, middle, high] = quarters(moves);
    let _ = writeln!(table, "{:<28}{middle:>8.1} ({low:.1}–{high:.1})", "a line moves");
    for dear in [1.0, 4.0] {
        let _ = writeln!(table, "simulated, a move taking {:.0} ns", middle * dear);
        for threads in [1, 2, 4, 8, 16, 32, 64] {
            let one = simulate(threads, 1, middles[0], middle * dear);
            let many = simulate(threads, 64, middles[1], middle * dear);
            let rate = |each: f64| threads as f64 / each * 1e3;
            let _ = writeln!(
                table,
                "{threads:>4} threads: one name {one:>8.0} ({:.1} M/s), 64 names {many:>6.0} ({:.1} M/s)",
                rate(one),
                rate(many)
            );
        }
    }
    Ok(table)
}

/// A cache line, which a thread takes from its owner.
#[derive(Clone, Copy, Default)]
struct Line {
    owner: Option<usize>,
    /// When it is available.
    free: f64,
}

impl Line {
    /// Returns when a thread that requests it at `now` gets it.
    fn take(&mut self, thread: usize, now: f64, moving: f64) -> f64 {
        let cost = if self.owner == Some(thread) { 0.0 } else { moving };
        self.owner = Some(thread);
        self.free = now.max(self.free) + cost;
        self.free
    }
}

/// Returns the nanoseconds per hit of `threads` threads, each on its own processor, that ask for `names`
/// names in orders of their own. A hit alone takes `alone`; a line takes `moving` from one processor to
/// another. A hit writes two lines: that of its name's lock and, while holding the lock, that of the entry,
/// for its reference count and hits; and the entry's again when the reply is written, at the end of the
/// batch. The overhead of waiting for a lock is not included.
fn simulate(threads: usize, names: usize, alone: f64, moving: f64) -> f64 {
    let (mut locks, mut entries) = (vec![Line::default(); names], vec![Line::default(); names]);
    // Each thread begins at another place in its batch.
    let mut clocks: Vec<f64> = (0..threads).map(|thread| thread as f64 * 37.0 * alone).collect();
    let mut steps = vec![0_u64; threads];
    let name = |thread: usize, hit: u64| {
        let mixed = (hit + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (thread as u64) << 17);
        (mixed >> 33) as usize % names
    };
    let end = 2 * BATCH * 500;
    let begin = clocks.clone();
    // Continue the thread that is furthest behind.
    while let Some(thread) = (0..threads)
        .filter(|thread| steps[*thread] < end)
        .min_by(|one, other| clocks[*one].total_cmp(&clocks[*other]))
    {
        let (round, step) = (steps[thread] / (2 * BATCH), steps[thread] % (2 * BATCH));
        let asked = name(thread, round * BATCH + step % BATCH);
        clocks[thread] = if step < BATCH {
            let now = clocks[thread] + alone * LOOKED_UP;
            let locked = locks[asked].take(thread, now, moving);
            locks[asked].free = entries[asked].take(thread, locked, moving);
            locks[asked].free
        } else {
            let now = clocks[thread] + alone * (1.0 - LOOKED_UP);
            entries[asked].take(thread, now, moving)
        };
        steps[thread] += 1;
    }
    let each = |thread: usize| (clocks[thread] - begin[thread]) / (end / 2) as f64;
    (0..threads).map(each).sum::<f64>() / threads as f64
}

/// Returns the lower, middle and upper quartile.
fn quarters(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Returns the nanoseconds that a cache line takes between two processors: two threads write it in turn.
fn line_move(cores: &[usize]) -> Result<f64, Box<dyn Error>> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let line = Line(AtomicU64::new(0));
    let play = |side: u64, core: usize| -> std::io::Result<f64> {
        pin(core)?;
        let start = Instant::now();
        for turn in 0..TURNS {
            let mine = 2 * turn + side;
            while line.0.load(Ordering::Acquire) != mine {
                std::hint::spin_loop();
            }
            line.0.store(mine + 1, Ordering::Release);
        }
        Ok(start.elapsed().as_nanos() as f64 / (2 * TURNS) as f64)
    };
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1, last));
        let own = scope.spawn(|| play(0, first));
        let _ = other.join();
        Ok(own.join().map_err(|_| "a thread panicked")??)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wait_for_lines_and_nothing_else() {
        let alone = simulate(1, 1, 100.0, 30.0);
        assert!((100.0..101.0).contains(&alone), "{alone}");
        let apart = simulate(8, 1, 100.0, 0.0);
        assert!((100.0..101.0).contains(&apart), "{apart}");
        // Two moves in a row under the lock: at most one hit in that time, by any thread.
        let many = simulate(64, 1, 100.0, 30.0);
        assert!(many > 64.0 * 2.0 * 30.0 * 0.9, "{many}");
        assert!(simulate(8, 64, 100.0, 30.0) < simulate(8, 1, 100.0, 30.0));
    }
}
