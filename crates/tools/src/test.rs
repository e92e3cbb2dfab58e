//! `dnsweir filter test`: runs a module's test cases and reports what differs; `--bless` accepts the results.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::Stop;
use super::modules::{configured, refusal};
use crate::cases::{self, Case, CaseResult, Difference, Snapshot, TestCases};
use crate::config::{self, Module};
use crate::filter::{Engine, LoadError, Trial};
use crate::run;

/// The configuration used if no module is named.
const CONFIGURATION: &str = "dnsweir.kdl";

/// A module to test.
struct Subject {
    block: config::Filter,
    test_cases: PathBuf,
}

/// The result of a test.
pub struct Tested {
    /// The report, as text.
    pub report: String,
    /// Whether all snapshots match.
    pub unchanged: bool,
    /// Whether some verdicts may be remembered but differ between clients.
    pub suspicious: bool,
}

/// Tests `file`, or every filter of `dnsweir.kdl` that has test cases.
///
/// # Errors
/// When there is nothing to test, the module does not start, or a file is invalid.
pub fn test(file: Option<&str>, test_cases: Option<&Path>, bless: bool) -> Result<Tested, Stop> {
    let subjects = match file {
        Some(file) => {
            let beside = || config::test_cases_beside(Path::new(file));
            vec![Subject {
                block: configured(file, Vec::new())?,
                test_cases: test_cases.map_or_else(beside, PathBuf::from),
            }]
        }
        None => subjects(Path::new(CONFIGURATION), None)?,
    };
    test_all(&subjects, bless)
}

/// Tests every filter of a configuration that has test cases. The folder is that of [`run::load_whole`].
///
/// # Errors
/// As for [`test`].
pub(crate) fn of_configuration(path: &Path, compiled: Option<&Path>) -> Result<Tested, Stop> {
    test_all(&subjects(path, compiled)?, false)
}

fn test_all(subjects: &[Subject], bless: bool) -> Result<Tested, Stop> {
    let engine = Engine::metered()
        .map_err(|error| Stop::Machine(error.to_string()))?
        .compiling_aside();
    let mut tested = Tested {
        report: String::new(),
        unchanged: true,
        suspicious: false,
    };
    for subject in subjects {
        test_one(&engine, subject, bless, &mut tested)?;
    }
    Ok(tested)
}

/// The filters of a configuration that have test cases.
fn subjects(path: &Path, compiled: Option<&Path>) -> Result<Vec<Subject>, Stop> {
    if !path.is_file() {
        let help = "name a module, or go to a folder with a dnsweir.kdl";
        return Err(Stop::Refused(format!("there is nothing to test: {help}")));
    }
    let (config, _) = run::load_whole(path, compiled)?;
    let subject = |block: config::Filter| {
        let test_cases = PathBuf::from(block.test_cases.as_ref()?.source.name());
        Some(Subject { block, test_cases })
    };
    let subjects: Vec<Subject> = config.filters.into_iter().filter_map(subject).collect();
    if subjects.is_empty() {
        return Err(Stop::Refused(format!(
            "no filter of {} has test cases",
            path.display()
        )));
    }
    Ok(subjects)
}

fn test_one(engine: &Engine, subject: &Subject, bless: bool, tested: &mut Tested) -> Result<(), Stop> {
    let cases = TestCases::load(&subject.test_cases)?;
    let block = cases.configured(&subject.block);
    let module = &block.module;
    let refused = |error: LoadError| {
        let refusal = refusal(&cases.source, &block, &error);
        Stop::Refused(format!(
            "{module} does not start with the configuration of its test cases: {refusal}"
        ))
    };
    let mut trial = Trial::load(engine, &block, &cases.zones).map_err(refused)?;
    let failed = |problem: String| Stop::Refused(format!("{}: {problem}", block.module));
    cases::refresh(&mut trial, &cases).map_err(failed)?;
    let results: Vec<CaseResult> = cases::run(&mut trial, &cases).collect();
    let mut trial = trial.anew(engine, &block, &cases.zones).map_err(refused)?;
    cases::refresh(&mut trial, &cases).map_err(failed)?;
    let again = cases::ask_again(&mut trial, &cases, &results);
    let changed = show(module, &cases, &results, &mut tested.report);
    tested.suspicious |= !again.is_empty();
    for (index, difference) in &again {
        warn(&cases.cases[*index], difference, &mut tested.report);
    }
    if bless {
        return record(subject, &cases, &results, &mut tested.report);
    }
    tested.unchanged &= changed == 0;
    if changed > 0 {
        // Infallible for String, here and below.
        let _ = writeln!(
            tested.report,
            "`dnsweir filter test --bless` accepts these results as the new snapshots"
        );
    }
    Ok(())
}

/// Warns of a verdict that may be remembered but differs for another client.
fn warn(case: &Case, difference: &Difference, out: &mut String) {
    let _ = writeln!(
        out,
        "warning: {}: this verdict may be remembered for all clients, but another client gets a different one. That client uses \
         the other transport, and EDNS if this one does not:",
        case.title
    );
    if let Difference::Lines(lines) = difference {
        for line in lines {
            let _ = writeln!(out, "        {line}");
        }
    }
    let _ = writeln!(
        out,
        "        leave `remember` out, or decide by name and type alone"
    );
}

/// Writes changed snapshots into the file.
fn record(
    subject: &Subject,
    cases: &TestCases,
    results: &[CaseResult],
    report: &mut String,
) -> Result<(), Stop> {
    let snapshots: Vec<(usize, &Snapshot)> = cases
        .cases
        .iter()
        .zip(results)
        .enumerate()
        .filter(|(_, (case, result))| {
            result.difference != Difference::None || cost_change(case, result).is_some()
        })
        .map(|(index, (_, result))| (index, &result.snapshot))
        .collect();
    let text = cases.with_snapshots(&snapshots);
    if text != cases.source.text() {
        write(&subject.test_cases, &text)?;
        let _ = writeln!(report, "recorded in {}", subject.test_cases.display());
    }
    Ok(())
}

fn cost_change(case: &Case, result: &CaseResult) -> Option<(String, String)> {
    case.snapshot.as_ref()?.cost_change(&result.snapshot)
}

/// Replaces a file atomically, so that a crash leaves the old or the new version.
fn write(path: &Path, text: &str) -> Result<(), Stop> {
    let failed = |error| Stop::Machine(format!("{} cannot be written: {error}", path.display()));
    let beside = path.with_extension("kdl.new");
    fs::write(&beside, text).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

/// Appends the report of one module; returns how many cases differ.
fn show(module: &Module, cases: &TestCases, results: &[CaseResult], out: &mut String) -> usize {
    let (count, file) = (results.len(), cases.source.name());
    let _ = writeln!(out, "{module}: {count} test cases of {file}");
    for (case, result) in cases.cases.iter().zip(results) {
        show_case(case, result, out);
    }
    let different = |result: &&CaseResult| result.difference != Difference::None;
    let changed = results.iter().filter(different).count();
    let _ = match changed {
        0 => writeln!(out, "all match their snapshots"),
        1 => writeln!(out, "1 of {count} differs"),
        changed => writeln!(out, "{changed} of {count} differ"),
    };
    changed
}

fn show_case(case: &Case, result: &CaseResult, out: &mut String) {
    let (mark, lines) = match &result.difference {
        Difference::None => ("  ok", Vec::new()),
        Difference::New => {
            let lines = result.snapshot.lines();
            (" new", lines.iter().map(|line| format!("+ {line}")).collect())
        }
        Difference::Lines(lines) => ("DIFF", lines.clone()),
    };
    let instructions = match result.cost.instructions {
        Some(count) if count > 0 => format!("{count} instructions, {} KiB", result.cost.memory / 1024),
        _ => "not called".to_owned(),
    };
    let _ = writeln!(out, "{mark}  {:<58} {instructions}", case.title);
    for line in lines {
        let _ = writeln!(out, "        {line}");
    }
    if let Some(failure) = &result.failure {
        let _ = writeln!(out, "        it failed: {failure}");
    }
    if let Some((was, is)) = cost_change(case, result) {
        let _ = writeln!(out, "        {was}, now {}", is.trim_start_matches("cost "));
    }
}
