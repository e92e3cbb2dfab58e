//! libFuzzer's choice of input for everything that reads untrusted data.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::build::{self, BINDINGS, FUZZ};
use crate::commands::{Failure, call, cargo, root};

/// Every target: a function of `dnsweir::fuzzing`.
const TARGETS: [&str; 9] = [
    "cache_round_trip",
    "config",
    "framing",
    "module",
    "query",
    "response_path",
    "slice",
    "verdicts",
    "zone",
];

/// With this in its environment, this program is called by cargo in the compiler's place.
const COMPILES: &str = "DNSWEIR_FUZZ_COMPILES";

/// Has the compiler note which edges are reached and what is compared, as libFuzzer reads it, and check what tests check.
const INSTRUMENTED: [&str; 8] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Clink-dead-code",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];

/// Every target, or one, for so many seconds each; or, for `merge`, adds what was found to what is kept.
pub fn fuzz(args: &[String]) -> Result<(), Failure> {
    let seconds = args.get(1).map_or("60", String::as_str);
    let chosen: Vec<&str> = match args.first() {
        Some(target) if TARGETS.contains(&target.as_str()) => vec![target],
        Some(other) => return Err(format!("{other} is no target: {}", TARGETS.join(" "))),
        None => TARGETS.to_vec(),
    };
    compile()?;
    for target in chosen {
        one(target, seconds)?;
    }
    Ok(())
}

/// Compiles our own crates with [`INSTRUMENTED`].
fn compile() -> Result<(), Failure> {
    let this = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = cargo(["build", "--release", "--workspace", "--exclude", BINDINGS]);
    command.args(["--bin", FUZZ]);
    command.args(["--config", &format!("build.rustc-workspace-wrapper={this:?}")]);
    command.args(["--config", &format!("build.build-dir={:?}", build::target())]);
    command.arg("--target-dir").arg(build::target().join("fuzz"));
    call(command.env(COMPILES, "1"))
}

/// Becomes the compiler, with more arguments, if that is what cargo has called this program for. Build scripts run on their own and
/// have nothing that reads what is noted.
pub fn as_compiler() -> Option<Failure> {
    std::env::var_os(COMPILES)?;
    let mut words = std::env::args_os().skip(1);
    let compiler = words.next()?;
    let words: Vec<OsString> = words.collect();
    let named = words.iter().position(|word| word == "--crate-name");
    let name = named
        .and_then(|at| words.get(at + 1)?.to_str())
        .unwrap_or("build_script");
    let mut command = Command::new(&compiler);
    command.args(&words);
    if !name.starts_with("build_script") {
        command.args(INSTRUMENTED);
    }
    Some(format!("cannot run {}: {}", compiler.display(), command.exec()))
}

/// Begins with what is kept of earlier runs, in `fuzz/corpus`, and leaves what it finds in `fuzz/found`, and what ends it in
/// `fuzz/artifacts`.
fn one(target: &str, seconds: &str) -> Result<(), Failure> {
    let [found, kept, ended] =
        ["found", "corpus", "artifacts"].map(|folder| root().join("fuzz").join(folder).join(target));
    for folder in [&found, &kept, &ended] {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let mut command = Command::new(build::target().join("fuzz/release").join(FUZZ));
    command.env("DNSWEIR_FUZZ", target).current_dir(root());
    if seconds == "merge" {
        return call(command.arg("-merge=1").arg(kept).arg(found));
    }
    println!("fuzzing {target} for {seconds} s");
    command.arg(found).arg(kept);
    command.arg(format!("-artifact_prefix={}/", ended.display()));
    command.arg(format!("-max_total_time={seconds}"));
    command.arg("-print_final_stats=1");
    let words = root().join(format!("fuzz/dictionaries/{target}.txt"));
    if words.is_file() {
        command.arg(format!("-dict={}", words.display()));
    }
    call(command)
}
