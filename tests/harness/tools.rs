//! External programs: what happens when one is missing, and how their output is read.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::process::Process;

/// What `cargo xtask test --quick` omits even if it is available: network namespaces, a browser, languages
/// that download their build dependencies, the release build.
const NOT_QUICK: [&str; 6] = ["root", "chromium", "go", "npm", "pip3", RELEASE];

/// Requirement of tests that count or measure: the release build of the programs.
pub const RELEASE: &str = "the release (--release)";

/// Whether the test can run here, because all these programs are installed. `root` stands for the right to
/// create network namespaces, [`RELEASE`] for the release build. A test that cannot run returns immediately;
/// it is then named in the file that `cargo xtask test` prints. With CI=true it fails instead.
#[must_use]
pub fn needs(tools: &[&str]) -> bool {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    if std::env::var_os("DNSWEIR_QUICK").is_some() && tools.iter().any(|tool| NOT_QUICK.contains(tool)) {
        note(&format!("left out: {test}\n"));
        return false;
    }
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !available(tool)).collect();
    if missing.is_empty() {
        return true;
    }
    let line = format!("{test}: needs {}\n", missing.join(", "));
    assert!(
        !std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1"),
        "with CI=true nothing is skipped; {line}"
    );
    note(&line);
    eprint!("skipped: {line}");
    false
}

/// Adds a line to the list that `cargo xtask test` summarizes.
fn note(line: &str) {
    if let Some(path) = std::env::var_os("DNSWEIR_SKIPPED_TESTS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the list of skipped tests");
    }
}

fn available(tool: &str) -> bool {
    if tool == RELEASE {
        return std::env::var("DNSWEIR_BUILD").is_ok_and(|build| build == "release");
    }
    if tool == "root" {
        let made = Command::new("unshare")
            .args(["--net", "--mount", "true"])
            .stderr(Stdio::null())
            .status();
        return made.is_ok_and(|status| status.success());
    }
    if tool.starts_with("wasm32-") {
        let sysroot = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", tool])
            .output();
        return sysroot.is_ok_and(|printed| {
            printed.status.success() && Path::new(String::from_utf8_lossy(&printed.stdout).trim()).is_dir()
        });
    }
    find(tool).is_some()
}

/// Finds a program by name. Servers are in `sbin`, which may not be in PATH.
pub fn find(tool: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(tool))
        .find(|program| program.is_file())
}

/// Returns a command for a tool that [`needs`] has found.
pub fn command(tool: &str) -> Command {
    Command::new(find(tool).unwrap_or_else(|| tool.into()))
}

/// Runs to the end and returns standard output; fails with all output unless it succeeds.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{complaint}",
        output.status
    );
    text
}

/// The result of a dnsperf run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Queries sent.
    pub sent: u64,
    /// Queries answered.
    pub completed: u64,
    /// Queries without an answer.
    pub lost: u64,
    /// Queries answered with NOERROR.
    pub noerror: u64,
}

impl Load {
    /// Parses dnsperf's statistics.
    pub fn parse(report: &str) -> Load {
        let number_after = |label: &str| {
            let line = report.lines().find_map(|line| line.trim().strip_prefix(label));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        };
        let required =
            |label: &str| number_after(label).unwrap_or_else(|| panic!("no `{label}` in:\n{report}"));
        let codes = report
            .lines()
            .find_map(|line| line.trim().strip_prefix("Response codes:"))
            .unwrap_or("");
        let noerror = codes
            .split(',')
            .find_map(|code| code.trim().strip_prefix("NOERROR "));
        Load {
            sent: required("Queries sent:"),
            completed: required("Queries completed:"),
            lost: required("Queries lost:"),
            noerror: noerror
                .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
                .unwrap_or(0),
        }
    }
}

/// Runs dnsperf over UDP: these `NAME TYPE` lines over and over, at this rate, for this long.
pub fn dnsperf(server: std::net::SocketAddr, questions: &str, per_second: u32, seconds: u32) -> Load {
    let file = questions_file(questions);
    let mut command = perf(server, file.path());
    command.args(["-l", &seconds.to_string(), "-Q", &per_second.to_string()]);
    Load::parse(&output(&mut command))
}

/// A dnsperf run that goes on until stopped.
pub struct Perf {
    process: Process,
    _questions: tempfile::NamedTempFile,
}

impl Perf {
    /// Starts it, at this rate.
    pub fn start(server: std::net::SocketAddr, questions: &str, per_second: u32) -> Perf {
        let file = questions_file(questions);
        let mut command = perf(server, file.path());
        // Without a time, it would end with the questions.
        command.args(["-l", "3600", "-Q", &per_second.to_string()]);
        Perf {
            process: Process::start(&mut command),
            _questions: file,
        }
    }

    /// Stops it, and returns its statistics. Queries in flight then are neither completed nor lost.
    #[track_caller]
    pub fn stop(mut self) -> Load {
        self.process.signal("INT");
        self.process.ended();
        let last = "Queries per second:";
        self.process
            .printed("dnsperf's statistics", |line| line.contains(last));
        Load::parse(&self.process.stdout().join("\n"))
    }
}

fn questions_file(questions: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(questions.as_bytes()).expect("a temporary file");
    file
}

fn perf(server: std::net::SocketAddr, questions: &std::path::Path) -> Command {
    let mut command = command("dnsperf");
    command.args(["-s", &server.ip().to_string(), "-p", &server.port().to_string()]);
    command.args(["-t", "5", "-d"]).arg(questions);
    command
}
