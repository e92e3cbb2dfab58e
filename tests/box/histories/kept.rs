//! Kept histories: each failed once, and is a file that does not depend on a seed. It names the kind of call
//! that fails and the phase, the configuration, or what happens when. They run as tests.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::checks;
use crate::history::History;
use crate::plans;
use crate::sweep::Reference;

/// Seeds that each is played with: after a change of the program, a seed gives another history.
const SEEDS: u64 = 3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("histories/kept")
}

/// Runs those whose names contain one of the words, as cargo's own tests do.
///
/// # Errors
/// Names those that fail.
pub fn test(words: &[String]) -> Result<(), String> {
    let mut files = list().map_err(|error| format!("cannot list {}: {error}", folder().display()))?;
    let wanted: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    files.retain(|file| {
        let name = format!("box::{}", name(file));
        wanted.is_empty() || wanted.iter().any(|word| name.contains(*word))
    });
    println!("\nrunning {} histories", files.len());
    if files.is_empty() {
        return Ok(());
    }
    let reference = Reference::play()?;
    let mut failed = Vec::new();
    for file in &files {
        let wrong = play(file, &reference)?;
        println!(
            "history {} ... {}",
            name(file),
            if wrong.is_empty() { "ok" } else { "FAILED" }
        );
        failed.extend(wrong.iter().map(|wrong| format!("{}: {wrong}", name(file))));
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\n")),
    }
}

fn list() -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder())? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "history"));
    files.sort();
    Ok(files)
}

fn name(file: &Path) -> String {
    file.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Plays a file's histories; returns the failures.
fn play(file: &Path, reference: &Reference) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut wrong = Vec::new();
    if let Some(each) = text.lines().find_map(|line| line.strip_prefix("each ")) {
        for fault in reference.each(each) {
            let (_, all) = reference.play_with(std::slice::from_ref(&fault))?;
            wrong.extend(all.into_iter().map(|what| format!("{fault}: {what}")));
        }
        return Ok(wrong);
    }
    let (history, changes) = read(&text);
    for seed in 1..=SEEDS {
        let outcome = History {
            seed,
            ..history.clone()
        }
        .play()?;
        let all = match changes {
            true => reference.compare(&outcome),
            false => checks::faults(&outcome),
        };
        wrong.extend(all.into_iter().map(|what| format!("seed {seed}: {what}")));
    }
    Ok(wrong)
}

/// Parses a file. Returns its history, and whether it is the plan of a start, a reload and a stop.
pub fn read(text: &str) -> (History, bool) {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    let changes = lines.iter().any(|line| line == "plan changes");
    lines.retain(|line| line != "plan changes");
    if changes {
        return (plans::changes(&lines), true);
    }
    let mut history = History {
        seed: 1,
        configuration: "one".to_owned(),
        lines: Vec::new(),
    };
    for line in lines {
        match line.strip_prefix("configuration ") {
            Some(name) => name.clone_into(&mut history.configuration),
            None => history.lines.push(line),
        }
    }
    (history, false)
}
