//! Runs libFuzzer on everything that reads untrusted data.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::build::{self, BINDINGS, FUZZ};
use crate::commands::{Failure, call, cargo, root};

/// All fuzz targets, each a function of `dnsweir::fuzzing`.
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

/// The environment variable with which cargo calls this program as the compiler.
const COMPILES: &str = "DNSWEIR_FUZZ_COMPILES";

/// Compiler flags that record reached edges and compared values for libFuzzer, and enable the checks of
/// tests.
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

/// Fuzzes all targets, or one, for 60 s or the given number of seconds each. With `merge`, adds what was
/// found to the corpus instead.
pub fn fuzz(args: &[String]) -> Result<(), Failure> {
    let seconds = args.get(1).map_or("60", String::as_str);
    let chosen: Vec<&str> = match args.first() {
        Some(target) if TARGETS.contains(&target.as_str()) => vec![target],
        Some(other) => {
            return Err(format!(
                "unknown fuzz target `{other}`: use one of {}",
                TARGETS.join(" ")
            ));
        }
        None => TARGETS.to_vec(),
    };
    compile()?;
    for target in chosen {
        fuzz_target(target, seconds)?;
    }
    Ok(())
}

/// Compiles the fuzz targets, our own crates with the flags in [`INSTRUMENTED`].
fn compile() -> Result<(), Failure> {
    let this = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = cargo(["build", "--release", "--workspace", "--exclude", BINDINGS]);
    command.args(["--bin", FUZZ]);
    command.args(["--config", &format!("build.rustc-workspace-wrapper={this:?}")]);
    command.args(["--config", &format!("build.build-dir={:?}", build::target())]);
    command.arg("--target-dir").arg(build::target().join("fuzz"));
    call(command.env(COMPILES, "1"))
}

/// Replaces this process with the compiler, and adds [`INSTRUMENTED`], if cargo has called it as the
/// compiler. Returns none if cargo has not, or why the compiler cannot be run. Build scripts are compiled
/// without the flags: they run outside the fuzzer, where nothing reads their coverage.
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

/// Fuzzes one target, starting from `fuzz/corpus` and earlier findings. New inputs go to `fuzz/found`, and
/// those that end the run to `fuzz/artifacts`.
fn fuzz_target(target: &str, seconds: &str) -> Result<(), Failure> {
    let [found, kept, ended] =
        ["found", "corpus", "artifacts"].map(|folder| root().join("fuzz").join(folder).join(target));
    for folder in [&found, &kept, &ended] {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
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
