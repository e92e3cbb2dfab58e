//! Checks that the tests pass at any load: repeats a run of them while other threads keep the processors
//! busy.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::commands::{Failure, cargo, release_folder};

/// Default of `--load`, the number of spinning threads.
const LOAD: usize = 8;

/// Default of `--runs`, the number of runs.
const RUNS: usize = 10;

/// Runs `cargo xtask test WORDS` until a file in the folder of the release build has that many runs, one in
/// each line. So a call resumes where an interrupted one stopped.
pub fn steady(mut words: Vec<String>) -> Result<(), Failure> {
    let load = number(&mut words, "--load")?.unwrap_or(LOAD);
    let runs = number(&mut words, "--runs")?.unwrap_or(RUNS);
    let name = words
        .join("")
        .replace(|letter: char| !letter.is_alphanumeric(), "-");
    let file = release_folder().join(format!("steady{name}-load{load}.tsv"));
    loop {
        let noted = fs::read_to_string(&file).unwrap_or_default();
        let done = noted.lines().count();
        if done >= runs {
            print!("{noted}");
            let failed = noted.lines().filter(|line| !line.ends_with("\tpassed")).count();
            println!(
                "{done} runs beside {load} spinning threads, {failed} failed: {}",
                file.display()
            );
            return match failed {
                0 => Ok(()),
                _ => Err(format!("{failed} of {done} runs failed")),
            };
        }
        println!("run {} of {runs} beside {load} spinning threads", done + 1);
        let begun = Instant::now();
        let outcome = beside(load, || run(&words))?;
        let line = format!("{}\t{} s\t{outcome}\n", done + 1, begun.elapsed().as_secs());
        let note = OpenOptions::new().append(true).create(true).open(&file);
        note.and_then(|mut note| note.write_all(line.as_bytes()))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
}

/// Removes a flag and the number after it from the words. Returns the number.
fn number(words: &mut Vec<String>, word: &str) -> Result<Option<usize>, Failure> {
    let Some(at) = words.iter().position(|given| given == word) else {
        return Ok(None);
    };
    let value = words.get(at + 1).and_then(|value| value.parse().ok());
    words.drain(at..words.len().min(at + 2));
    value.map(Some).ok_or_else(|| format!("{word} needs a number"))
}

/// Does some work beside `load` spinning threads.
fn beside<T>(load: usize, work: impl FnOnce() -> T) -> T {
    let over = Arc::new(AtomicBool::new(false));
    let spinning: Vec<_> = (0..load)
        .map(|_| {
            let over = Arc::clone(&over);
            thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        })
        .collect();
    let done = work();
    over.store(true, Ordering::Relaxed);
    for thread in spinning {
        let _ = thread.join();
    }
    done
}

/// Runs the tests once, and prints their output. Returns `passed`, or the failed tests.
fn run(words: &[String]) -> Result<String, Failure> {
    let mut command = cargo(["xtask", "test"]);
    command.args(words).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run the tests: {error}"))?;
    let mut failed = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            println!("{line}");
            let test = line
                .strip_prefix("test ")
                .and_then(|line| line.strip_suffix(" ... FAILED"));
            failed.extend(test.map(str::to_owned));
        }
    }
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for the tests: {error}"))?;
    Ok(match (status.success(), failed.is_empty()) {
        (true, _) => "passed".to_owned(),
        (false, true) => format!("failed: {status}"),
        (false, false) => failed.join(" "),
    })
}
