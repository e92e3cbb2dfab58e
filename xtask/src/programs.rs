//! Runs test programs, two at a time, since most tests spend their time waiting.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::build::{Build, target};
use crate::commands::{Failure, root, without_package_variables};

/// Stack size of a test's thread in bytes (`RUST_MIN_STACK`): 32 MiB. Unoptimized code needs several times as
/// much stack as the release build.
pub const STACK: &str = "33554432";

/// Lines of a failed program's output that are printed once more at the end.
const LAST: usize = 50;

/// Most characters of a program's name in the name of its output file.
const FILE_NAME: usize = 60;

/// Time between two looks at a program's output.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// A test program, or a command that runs tests.
pub struct Program {
    /// The package's folder and the target's name: `crates/wire/dnsweir_wire`, `tests/main`.
    pub name: String,
    pub command: Command,
}

/// Compiles all tests, and returns their programs. For a selection of packages, cargo would compile
/// dependencies again, with other features.
pub fn compiled() -> Result<Vec<Program>, Failure> {
    let mut build = Build::Quick.cargo("test");
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("compilation failed: fix the errors above".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(test_program).collect())
}

/// Reads cargo's message about a compiled program. Returns none unless it is a test program.
fn test_program(message: &str) -> Option<Program> {
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
    let mut command = without_package_variables(Command::new(text("\"executable\":\"")?));
    command.current_dir(folder).env("RUST_MIN_STACK", STACK);
    Some(Program {
        name: format!("{shown}/{name}"),
        command,
    })
}

/// Runs all programs: one thread takes them from the front, another from the back. The output of one from the
/// front is printed while it runs. The output of one from the back is printed once it and the one beside it
/// have ended.
///
/// # Errors
///
/// Lists the failed programs with the last lines of their output.
pub fn run(programs: Vec<Program>) -> Result<(), Failure> {
    let alone = programs.len() == 1;
    let queue = Mutex::new(VecDeque::from(programs));
    let take = |end: fn(&mut VecDeque<Program>) -> Option<Program>| {
        queue.lock().ok().and_then(|mut queue| end(&mut queue))
    };
    let failed = Mutex::new(Vec::new());
    let end = |program: Program, seen: bool| {
        let (name, file) = (program.name.clone(), output_of(&program.name));
        if let (Err(failure), Ok(mut failed)) = (run_program(program, &file, seen), failed.lock()) {
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

/// Returns the file of a program's output. A program's name can be a whole command line, but a file's name
/// has at most 255 bytes (NAME_MAX), so it is cut. Programs that run at the same time still differ in it.
fn output_of(name: &str) -> PathBuf {
    let file: String = name.replace('/', "-").chars().take(FILE_NAME).collect();
    target().join("test-output").join(file)
}

fn text(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

/// Returns the last lines of a failed program's output, where the failure is. Later output of other programs
/// may have scrolled it away.
fn last_lines(file: &Path) -> String {
    let text = text(file);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST)..].join("\n")
}

/// Runs a program to its end. Its output goes to a file, and is also printed if `seen`.
fn run_program(mut program: Program, file: &Path, seen: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    fs::create_dir_all(file.parent().unwrap_or(file)).map_err(failed)?;
    // The program's descriptors are copies of ours and share its offset, so that lines stay in order.
    let mut output = File::create(file).map_err(failed)?;
    let mut written = File::open(file).map_err(failed)?;
    writeln!(output, "{}:", program.name).map_err(failed)?;
    let both = || output.try_clone().map_err(failed);
    program.command.stdout(both()?).stderr(both()?);
    let begun = Instant::now();
    let started = program.command.stdin(Stdio::null()).spawn();
    let mut child = started.map_err(|error| format!("cannot start it: {error}"))?;
    let mut show = || match seen {
        true => io::copy(&mut written, &mut io::stdout()).map(|_| ()),
        false => Ok(()),
    };
    // A pipe would stay open until every process that a test has left behind ends; a file need not be waited
    // for.
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

    /// The second round on Kubernetes nodes skips ten modules by name, in more than 300 bytes.
    #[test]
    fn a_long_command_line_gives_a_valid_file_name() {
        let skips = " --skip cluster::several_clusters::".repeat(40);
        let file = output_of(&format!("--test node -- --ignored{skips}"));
        let name = file.file_name().expect("a path with a name").to_string_lossy();
        assert!(name.len() <= 255, "{name}");
        assert!(
            name.starts_with("--test node -- --ignored --skip cluster"),
            "{name}"
        );
    }
}
