//! `dnsweir filter test`: asks a module its recorded questions, says what differs, and with `--bless`
//! writes down what it says now.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::Stop;
use super::modules::{configured, module, refusal};
use crate::config::questions::{self, Questions};
use crate::config::{self, Module, spell};
use crate::filter::{self, Answered, Difference, Engine, Trial, ask, cost_change};

/// The configuration that is looked at where no module is named.
const CONFIGURATION: &str = "dnsweir.kdl";

/// What is to be asked.
struct Subject {
    title: String,
    block: config::Filter,
    questions: PathBuf,
}

/// Asks `file`, or every filter of `dnsweir.kdl` that has questions. The result is the report, and whether all
/// is as it was recorded.
///
/// # Errors
/// When there is nothing to ask, the module does not start, or a file is not valid.
pub fn test(file: Option<&str>, recorded: Option<&Path>, bless: bool) -> Result<(String, bool), Stop> {
    let subjects = match file {
        Some(file) => {
            let beside = || config::questions_beside(Path::new(file));
            let questions = recorded.map_or_else(beside, PathBuf::from);
            vec![Subject {
                title: file.to_owned(),
                block: configured(module(file)?, Vec::new()),
                questions,
            }]
        }
        None => subjects(Path::new(CONFIGURATION))?,
    };
    test_all(&subjects, bless)
}

/// Asks every filter of a configuration that has questions.
///
/// # Errors
/// As for [`test`].
pub fn of_configuration(path: &Path) -> Result<(String, bool), Stop> {
    test_all(&subjects(path)?, false)
}

fn test_all(subjects: &[Subject], bless: bool) -> Result<(String, bool), Stop> {
    let engine = Engine::metered()
        .map_err(|error| Stop::Machine(error.to_string()))?
        .compiling_aside();
    let mut report = String::new();
    let mut unchanged = true;
    for subject in subjects {
        unchanged &= test_one(&engine, subject, bless, &mut report)?;
    }
    Ok((report, unchanged))
}

/// The filters of a configuration that have recorded questions.
fn subjects(path: &Path) -> Result<Vec<Subject>, Stop> {
    if !path.is_file() {
        let help = "name a module, or go to a folder with a dnsweir.kdl";
        return Err(Stop::Refused(format!("there is nothing to ask: {help}")));
    }
    let names: Vec<&str> = filter::BUILTINS.iter().map(|(name, _)| *name).collect();
    let config = config::load(path, &names)?;
    let subjects: Vec<Subject> = config
        .filters
        .into_iter()
        .filter_map(|block| {
            let questions = PathBuf::from(block.questions.as_ref()?.source.name());
            let title = match &block.module {
                Module::Builtin(name) => format!("builtin:{name}"),
                Module::File { path, .. } => path.display().to_string(),
            };
            Some(Subject {
                title,
                block,
                questions,
            })
        })
        .collect();
    if subjects.is_empty() {
        return Err(Stop::Refused(format!(
            "no filter of {} has recorded questions",
            path.display()
        )));
    }
    Ok(subjects)
}

fn test_one(engine: &Engine, subject: &Subject, bless: bool, report: &mut String) -> Result<bool, Stop> {
    let recorded = questions::load(&subject.questions)?;
    let mut block = subject.block.clone();
    if let Some(config) = &recorded.config {
        block.config = config.clone();
    }
    let mut trial = Trial::load(engine, &block, filter::builtin, &recorded.zones).map_err(|error| {
        let refusal = refusal(&recorded.source, &block, &error);
        Stop::Refused(format!(
            "{} does not start with its questions' configuration: {refusal}",
            subject.title
        ))
    })?;
    let answered = ask(&mut trial, &recorded);
    let changed = show(&subject.title, &recorded, &answered, report);
    if bless {
        let observed: Vec<_> = answered
            .iter()
            .enumerate()
            .filter(|(index, answer)| differs(&recorded, *index, answer))
            .map(|(index, answer)| (index, answer.observed.clone()))
            .collect();
        let text = recorded.recorded(&observed);
        if text != recorded.source.text() {
            write(&subject.questions, &text)?;
            // Infallible for String, here and below.
            let _ = writeln!(report, "recorded in {}", subject.questions.display());
        }
        return Ok(true);
    }
    if changed > 0 {
        let _ = writeln!(
            report,
            "`dnsweir filter test --bless` records what is observed now"
        );
    }
    Ok(changed == 0)
}

fn differs(recorded: &Questions, index: usize, answer: &Answered) -> bool {
    let case = recorded.cases[index].observed.as_deref();
    answer.difference != Difference::None
        || case.is_some_and(|case| cost_change(case, &answer.observed).is_some())
}

/// Writes beside the file first: a crash leaves the old one or the new one.
fn write(path: &Path, text: &str) -> Result<(), Stop> {
    let failed = |error| Stop::Machine(format!("{} cannot be written: {error}", path.display()));
    let beside = path.with_extension("kdl.new");
    fs::write(&beside, text).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

/// Writes the report of one module; returns how many cases differ.
fn show(title: &str, recorded: &Questions, answered: &[Answered], out: &mut String) -> usize {
    let mut changed = 0;
    let _ = writeln!(
        out,
        "{title}: {} questions of {}",
        answered.len(),
        recorded.source.name()
    );
    for (case, answer) in recorded.cases.iter().zip(answered) {
        let mark = match answer.difference {
            Difference::None => "  ok",
            Difference::Unrecorded => " new",
            Difference::Lines(_) => "DIFF",
        };
        let instructions = match answer.cost.instructions {
            Some(count) if count > 0 => format!("{count} instructions, {} KiB", answer.cost.memory / 1024),
            _ => "not called".to_owned(),
        };
        let _ = writeln!(out, "{mark}  {:<58} {instructions}", case.title);
        match &answer.difference {
            Difference::None => {}
            Difference::Unrecorded => {
                for line in spell(&answer.observed) {
                    let _ = writeln!(out, "        + {line}");
                }
            }
            Difference::Lines(lines) => {
                for line in lines {
                    let _ = writeln!(out, "        {line}");
                }
            }
        }
        if let Some(failure) = &answer.failure {
            let _ = writeln!(out, "        it failed: {failure}");
        }
        let cost = case
            .observed
            .as_deref()
            .and_then(|observed| cost_change(observed, &answer.observed));
        if let Some((was, is)) = cost {
            let _ = writeln!(out, "        {was}, now {}", is.trim_start_matches("cost "));
        }
        changed += usize::from(answer.difference != Difference::None);
    }
    let _ = match changed {
        0 => writeln!(out, "all as recorded"),
        1 => writeln!(out, "1 of {} differs", answered.len()),
        count => writeln!(out, "{count} of {} differ", answered.len()),
    };
    changed
}
