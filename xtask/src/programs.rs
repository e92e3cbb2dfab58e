//! The programs that the tests are, two at a time: most tests wait most of the time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::build::{Build, target};
use crate::commands::{Failure, as_typed, root};

/// What a main thread's stack holds. Unoptimized code takes several times as much of it as what ships.
pub const STACK: &str = "33554432";

/// Lines of a failed program's output that are shown once more at the end.
const LAST: usize = 50;

/// Letters of a program's name that name the file of its output.
const FILE_NAME: usize = 60;

/// How often what a program says is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// A program of tests, or what starts some.
pub struct Program {
    /// The package's folder and the target's name: `crates/wire/dnsweir_wire`, `tests/main`.
    pub name: String,
    pub command: Command,
}

/// Compiles all tests, and lists their programs. Always all: a selection of packages would have cargo compile dependencies
/// again, with other features.
pub fn compiled() -> Result<Vec<Program>, Failure> {
    let mut build = Build::Quick.cargo("test");
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("it does not compile".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(tests).collect())
}

/// What cargo says of a compiled program, if that is one of tests.
fn tests(message: &str) -> Option<Program> {
    let (_, profile) = message.split_once("\"profile\":{")?;
    profile
        .split('}')
        .next()
        .filter(|profile| profile.contains("\"test\":true"))?;
    let text = |word: &str| Some(message.split_once(word)?.1.split('"').next()?.to_owned());
    let manifest = PathBuf::from(text("\"manifest_path\":\"")?);
    let folder = manifest.parent()?;
    let (_, described) = message.split_once("\"target\":{")?;
    let (_, name) = described.split_once("\"name\":\"")?;
    let name = name.split('"').next()?;
    let shown = folder.strip_prefix(root()).unwrap_or(folder).display();
    let mut command = as_typed(Command::new(text("\"executable\":\"")?));
    command.current_dir(folder).env("RUST_MIN_STACK", STACK);
    Some(Program {
        name: format!("{shown}/{name}"),
        command,
    })
}

/// Runs all of them. One from the front is seen as it goes; what one from the back says is shown when both have ended.
///
/// # Errors
///
/// Names those that failed, each with the last that it said.
pub fn run(programs: Vec<Program>) -> Result<(), Failure> {
    let alone = programs.len() == 1;
    let queue = Mutex::new(VecDeque::from(programs));
    let take = |end: fn(&mut VecDeque<Program>) -> Option<Program>| {
        queue.lock().ok().and_then(|mut queue| end(&mut queue))
    };
    let failed = Mutex::new(Vec::new());
    let end = |program: Program, seen: bool| {
        let (name, file) = (program.name.clone(), output_of(&program.name));
        if let (Err(failure), Ok(mut failed)) = (ended(program, &file, seen), failed.lock()) {
            failed.push(format!("{name}: {failure}\n{}", last_lines(&file)));
        }
        file
    };
    let unseen = Mutex::new(Vec::<PathBuf>::new());
    let show_unseen = || {
        let files = unseen.lock().map(|mut files| std::mem::take(&mut *files));
        for file in files.unwrap_or_default() {
            print!("{}", text(&file));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !alone && let Some(program) = take(VecDeque::pop_back) {
                let file = end(program, false);
                if let Ok(mut unseen) = unseen.lock() {
                    unseen.push(file);
                }
            }
        });
        while let Some(program) = take(VecDeque::pop_front) {
            end(program, true);
            show_unseen();
        }
    });
    show_unseen();
    let failed = failed.into_inner().unwrap_or_default();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\n")),
    }
}

/// Where a program's output is kept. A name may be all the words that somebody typed, and a file's may not have more than
/// 255 octets (NAME_MAX): those that run at a time differ in what is left.
fn output_of(name: &str) -> PathBuf {
    let file: String = name.replace('/', "-").chars().take(FILE_NAME).collect();
    target().join("test-output").join(file)
}

fn text(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

/// The end of what a failed program said: the failure is there, and nobody has to look for it in all that others said since.
fn last_lines(file: &Path) -> String {
    let text = text(file);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST)..].join("\n")
}

/// Runs a program to its end, with all that it says in a file, and shown if it is to be seen.
fn ended(mut program: Program, file: &Path, seen: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    fs::create_dir_all(file.parent().unwrap_or(file)).map_err(failed)?;
    // Its descriptors share one place in the file with ours, so that lines stay in order.
    let mut output = File::create(file).map_err(failed)?;
    let mut written = File::open(file).map_err(failed)?;
    writeln!(output, "{}:", program.name).map_err(failed)?;
    let both = || output.try_clone().map_err(failed);
    program.command.stdout(both()?).stderr(both()?);
    let begun = Instant::now();
    let started = program.command.stdin(Stdio::null()).spawn();
    let mut child = started.map_err(|error| format!("cannot run it: {error}"))?;
    let mut show = || match seen {
        true => io::copy(&mut written, &mut io::stdout()).map(|_| ()),
        false => Ok(()),
    };
    // A pipe would be open for as long as anything that a test started and forgot.
    let status = loop {
        show().map_err(failed)?;
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        thread::sleep(SHOWN_EVERY);
    };
    let seconds = begun.elapsed().as_secs();
    writeln!(output, "{} took {seconds} s", program.name).map_err(failed)?;
    show().map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kubernetes' second round leaves out nine modules by name: 290 octets.
    #[test]
    fn the_output_of_many_words_has_a_file() {
        let left_out = " --skip cluster::several_clusters::".repeat(40);
        let file = output_of(&format!("--test node -- --ignored{left_out}"));
        let name = file.file_name().expect("a path with a name").to_string_lossy();
        assert!(name.len() <= 255, "{name}");
        assert!(
            name.starts_with("--test node -- --ignored --skip cluster"),
            "{name}"
        );
    }
}
