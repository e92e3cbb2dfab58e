//! Searches for histories that violate an invariant: `cargo xtask simulate`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::history::History;
use crate::outcome::Outcome;
use crate::sweep::Fate;
use crate::{checks, plans, planted, sweep};

const USAGE: &str = "\
Usage: cargo xtask simulate [OPTIONS]

  --seed N       the first seed; with --minutes 0, the only one (the seconds of the clock)
  --minutes M    how long to look for, one seed after the other (2)
  --virtual M    minutes of changing weather in each history (10)
  --every MS     a query each so many milliseconds (20)
  --cluster      only histories with an API server, of which each fourth seed is one
  --changes      fail every call of a start, a reload and a stop in turn
  --kills        kill the process at each of them, and start another one on what it left
  --takeover     fail every call of a start beside another process and of an end, in the kernel's own namespaces, as root
  --same N       play the seed N times, and compare
  --file FILE    play one history
  --planted      plant each fault of tests/box/planted in turn, and look for it; names say which
  --fuel         have filters run by fuel, so that one that loops ends in virtual time
  --keep FOLDER  leave what a history leaves there: scenario, report, log";

/// The options.
struct Wanted {
    seed: u64,
    minutes: u64,
    virtual_minutes: u64,
    every: u64,
    changes: Option<Fate>,
    same: u64,
    file: Option<PathBuf>,
    keep: Option<PathBuf>,
    /// The patch whose fault the program has.
    planted: Option<PathBuf>,
    fuel: bool,
    cluster: bool,
}

impl Wanted {
    fn read(words: &[String]) -> Result<Wanted, String> {
        let mut wanted = Wanted {
            seed: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |since| since.as_secs()),
            minutes: 2,
            virtual_minutes: 10,
            every: 20,
            changes: None,
            same: 0,
            file: None,
            keep: None,
            planted: None,
            fuel: false,
            cluster: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let next = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                next.parse::<u64>()
                    .map_err(|_| format!("{word} {next}: that is no number"))
            };
            match word.as_str() {
                "--seed" => wanted.seed = number()?,
                "--minutes" => wanted.minutes = number()?,
                "--virtual" => wanted.virtual_minutes = number()?,
                "--every" => wanted.every = number()?,
                "--same" => wanted.same = number()?,
                "--changes" => wanted.changes = Some(Fate::Fails),
                "--kills" => wanted.changes = Some(Fate::Kills),
                "--file" => wanted.file = words.next().map(PathBuf::from),
                "--planted" => wanted.planted = words.next().map(PathBuf::from),
                "--fuel" => wanted.fuel = true,
                "--cluster" => wanted.cluster = true,
                "--keep" => wanted.keep = words.next().map(PathBuf::from),
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(wanted)
    }

    fn history(&self, seed: u64) -> History {
        match self.cluster || seed.is_multiple_of(4) {
            true => plans::cluster(seed, self.virtual_minutes),
            false => plans::long(seed, self.virtual_minutes, self.every, self.fuel),
        }
    }

    fn play(&self, history: &History) -> Result<Outcome, String> {
        match &self.keep {
            Some(folder) => history.play_in(&made(folder)?),
            None => history.play(),
        }
    }
}

fn made(folder: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let live = folder.join("proxy/live.kdl");
    if live.exists() {
        std::fs::remove_file(live).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    folder.canonicalize().map_err(failed)
}

/// Runs the command.
///
/// # Errors
/// Describes what does not hold.
pub fn simulate(words: &[String]) -> Result<(), String> {
    let wanted = Wanted::read(words)?;
    if let Some(file) = &wanted.file {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let history = History {
            seed: wanted.seed,
            ..crate::kept::read(&text).0
        };
        let outcome = wanted.play(&history)?;
        return said(&[], &outcome, &checks::faults(&outcome));
    }
    if let Some(patch) = &wanted.planted {
        return planted::find(patch, wanted.minutes);
    }
    if let Some(fate) = wanted.changes {
        return changes(fate);
    }
    if wanted.same > 0 {
        return same(&wanted);
    }
    let (begin, mut seed, mut simulated, mut failed) = (Instant::now(), wanted.seed, 0, 0);
    loop {
        let history = wanted.history(seed);
        let outcome = wanted.play(&history)?;
        simulated += outcome.milliseconds / 1000;
        let wrong = checks::faults(&outcome);
        if !wrong.is_empty() {
            failed += 1;
            println!("seed {seed}:\n  {}", wrong.join("\n  "));
            println!("{}", shrink(&history, &wrong[0])?);
        }
        if begin.elapsed() >= Duration::from_secs(60 * wanted.minutes) {
            break;
        }
        seed += 1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} histories from seed {} on, {simulated} simulated seconds in {seconds:.0} s: {:.0} a second; {failed} failed",
        seed + 1 - wanted.seed,
        wanted.seed,
        simulated as f64 / seconds
    );
    if failed > 0 {
        Err(format!("something does not hold in {failed} histories"))
    } else {
        Ok(())
    }
}

/// Prints the outcome of a history.
fn said(about: &[&str], outcome: &Outcome, wrong: &[String]) -> Result<(), String> {
    let [digest, order, log] = outcome.digests;
    println!(
        "{} {} s, digests {digest:016x} {order:016x} {log:016x}",
        about.join(" "),
        outcome.milliseconds / 1000
    );
    for (what, count) in &outcome.counts {
        println!("  {what}: {count}");
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

/// Checks that a seed always gives the same history.
fn same(wanted: &Wanted) -> Result<(), String> {
    let mut first = None;
    for time in 1..=wanted.same {
        let outcome = wanted.history(wanted.seed).play()?;
        let [digest, order, log] = outcome.digests;
        println!(
            "{time}: digests of what was seen {digest:016x}, of the order of threads {order:016x}, of the log {log:016x}"
        );
        let first = first.get_or_insert(outcome.digests);
        if *first != outcome.digests {
            return Err(format!("seed {} is two histories", wanted.seed));
        }
    }
    Ok(())
}

/// Fails every call that can fail, in turn.
fn changes(fate: Fate) -> Result<(), String> {
    let mut failed = 0;
    let points = sweep::sweep(fate, &["start", "reload", "stop"], |fault, outcome, wrong| {
        if !wrong.is_empty() {
            failed += 1;
            println!(
                "{fault} ({})\n  {}",
                outcome.failed.join(", "),
                wrong.join("\n  ")
            );
        }
        ControlFlow::Continue(())
    })?;
    println!("{points} calls in turn; {failed} histories in which something does not hold");
    if failed > 0 {
        Err(format!("something does not hold in {failed} histories"))
    } else {
        Ok(())
    }
}

/// How long to spend on shortening a history.
const SHRINKING: Duration = Duration::from_secs(300);

/// Returns the shortest history that still fails in the same way, by leaving out lines: half of them at a
/// time, then fewer.
fn shrink(history: &History, wrong: &str) -> Result<String, String> {
    let begin = Instant::now();
    let still = |history: &History| -> Result<bool, String> {
        let all = checks::faults(&history.play()?);
        Ok(all.iter().any(|other| kind(other) == kind(wrong)))
    };
    let mut shortest = history.clone();
    let mut size = shortest.lines.len() / 2;
    while size > 0 && begin.elapsed() < SHRINKING {
        let mut at = 0;
        while at < shortest.lines.len() {
            let mut shorter = shortest.clone();
            let end = (at + size).min(shorter.lines.len());
            let left_out = |(index, line): &(usize, &String)| (at..end).contains(index) && may_go(line);
            let kept = shortest.lines.iter().enumerate().filter(|line| !left_out(line));
            shorter.lines = kept.map(|(_, line)| line.clone()).collect();
            if shorter.lines.len() < shortest.lines.len() && still(&shorter)? {
                shortest = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    let lines = shortest.lines.join("\n");
    Ok(format!(
        "the shortest history that still fails:\nconfiguration {}\n{lines}",
        shortest.configuration
    ))
}

/// Whether a line may be left out: those that end the history, and those it is judged by, stay.
fn may_go(line: &str) -> bool {
    let stays = ["up ", "down ", "well ", "upstream ", "reader "];
    let ends = line.ends_with(" term")
        || line.ends_with(" end")
        || line.contains(" metrics ")
        || line.contains(" snapshot ");
    let fine = line.contains(" weather ") && line.ends_with(" fine");
    !ends && !fine && !stays.iter().any(|word| line.starts_with(word))
}

/// Returns the words of a failure, without names and numbers.
fn kind(wrong: &str) -> String {
    let words = wrong.split_whitespace().take_while(|word| *word != "at");
    words
        .filter(|word| word.chars().all(char::is_alphabetic))
        .collect::<Vec<_>>()
        .join(" ")
}
