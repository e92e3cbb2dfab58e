//! The project's own commands, as `cargo xtask COMMAND`.
//!
//! A command is a short list of ordinary cargo calls; this program adds what cargo cannot: the
//! WebAssembly target that the filters need, tests that say which of them were skipped, and one
//! name for every check that a change has to pass. It does nothing that a person could not type.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to the person who called it"
)]

mod commands;
mod lint;
mod pack;
mod released;
mod setup;
mod test;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use commands::{Failure, answers, built, call, cargo, root};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  setup              add the WebAssembly target that filters are built for, if it is missing
  build              setup, then build the proxy with its filters: target/release/dnsweir
  run [-- ARGS…]     build, then `dnsweir run ARGS…`; without ARGS, the built-in demonstration
  test [ARGS…]       build, then run every test of the workspace; ARGS go to `cargo test`
  test cluster       run the tests on a Kubernetes node, as root; takes minutes, since it builds Kubernetes
  image [--arch A]   build, then pack an image without a daemon: target/image, and a file for `ctr images import`
  package [--arch A] build, then pack a Debian package; A is amd64 or arm64, see docs/packaging.md
  sdk                build, then pack the SDK's crate and the interface's WIT package, as they would be published:
                     target/package
  lint               check formatting, layout, licences of dependencies, clippy
  bench [ARGS…]      build, then `dnsweir-bench ARGS…`; without ARGS, every server that is installed;
                     `bench languages` and `bench examples` time the filters of examples/
  soak [MINUTES]     build, then run a well-behaved client during floods of each kind, for MINUTES in all (10)
  fuzz [TARGET] [S]  run every fuzz target, or one, for S seconds each (60)
  bindings           generate guest-sdk/src/bindings.rs from wit/ anew
  keep-filter        store a filter as it is built today, for the tests of later releases: docs/interface.md

With CI=true, a test that skips itself fails the run.";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let mut rest: Vec<String> = args.collect();
    if command == "run" && rest.first().is_some_and(|arg| arg == "--") {
        rest.remove(0);
    }
    let result = match command.as_str() {
        "setup" => setup::wasm_target(),
        "build" => build(),
        "run" => build().and_then(|()| run(&rest)),
        "test" => test::test(&rest),
        "image" | "package" => build().and_then(|()| pack::pack(&command, &rest)),
        "sdk" => build().and_then(|()| pack::sdk()),
        "lint" => lint::lint(),
        "bench" => bench(&rest),
        "soak" => soak(&rest),
        "fuzz" => fuzz(&rest),
        "bindings" => bindings(),
        "keep-filter" => released::keep(),
        "" | "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        unknown => Err(format!("there is no command `{unknown}`\n\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Builds what `run` and the tests start. The whole workspace at once, because cargo chooses the
/// features of shared dependencies by what is built together: with the same choice as the tests,
/// wasmtime is compiled once.
fn build() -> Result<(), Failure> {
    setup::wasm_target()?;
    call(cargo(["build", "--release", "--workspace", "--bins"]))
}

/// Becomes the proxy: same process, same terminal, same signals.
fn run(args: &[String]) -> Result<(), Failure> {
    let program = built("dnsweir");
    let error = Command::new(&program).arg("run").args(args).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}

/// Measures. What is measured is what `build` leaves.
fn bench(args: &[String]) -> Result<(), Failure> {
    if let Some(name @ ("languages" | "examples")) = args.first().map(String::as_str) {
        build()?;
        return call(cargo(["bench", "--workspace", "--bench", name, "--"]).args(&args[1..]));
    }
    build()?;
    let args = if args.is_empty() {
        &["run".to_owned()][..]
    } else {
        args
    };
    call(
        Command::new(built("dnsweir-bench"))
            .args(args)
            .current_dir(root()),
    )
}

/// Writes `guest-sdk/src/bindings.rs`. The test that compares it with `wit/` has what is generated.
fn bindings() -> Result<(), Failure> {
    let test = [
        "test",
        "--release",
        "--workspace",
        "--test",
        "tidy",
        "--",
        "bindings_are_those_of_the_interface",
    ];
    call(cargo(test).env("DNSWEIR_WRITE_BINDINGS", "1"))
}

/// What a flood of each kind costs a client that asks as always.
fn soak(args: &[String]) -> Result<(), Failure> {
    build()?;
    call(Command::new(built("soak")).args(args).current_dir(root()))
}

fn fuzz(args: &[String]) -> Result<(), Failure> {
    if !answers(Command::new("cargo").args(["fuzz", "--version"])) {
        return Err("cargo-fuzz is missing; install it with `cargo install cargo-fuzz --locked`".to_owned());
    }
    // What is fuzzed is to be what is released, down to the versions of the dependencies.
    let lock = |folder: &str| root().join(folder).join("Cargo.lock");
    std::fs::copy(lock("."), lock("fuzz"))
        .map_err(|error| format!("cannot copy Cargo.lock to fuzz/: {error}"))?;
    let seconds = args.get(1).map_or("60", String::as_str);
    let targets = match args.first() {
        Some(target) => vec![target.clone()],
        None => fuzz_targets()?,
    };
    for target in targets {
        println!("fuzzing {target} for {seconds} s");
        fuzz_one(&target, seconds)?;
    }
    Ok(())
}

/// Begins with what is kept of earlier runs, in `fuzz/corpus`, and leaves what it finds in `fuzz/found`.
fn fuzz_one(target: &str, seconds: &str) -> Result<(), Failure> {
    let (found, kept) = (format!("fuzz/found/{target}"), format!("fuzz/corpus/{target}"));
    for folder in [&found, &kept] {
        std::fs::create_dir_all(root().join(folder))
            .map_err(|error| format!("cannot make {folder}: {error}"))?;
    }
    let mut command = cargo(["fuzz", "run", target, &found, &kept, "--"]);
    // libFuzzer's instrumentation is behind flags that the stable compiler only takes this way.
    command.env("RUSTC_BOOTSTRAP", "1");
    command.arg(format!("-max_total_time={seconds}"));
    let words = root().join(format!("fuzz/dictionaries/{target}.txt"));
    if words.is_file() {
        command.arg(format!("-dict={}", words.display()));
    }
    call(command)
}

/// A target is a file of `fuzz/fuzz_targets`.
fn fuzz_targets() -> Result<Vec<String>, Failure> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut targets: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    targets.sort();
    Ok(targets)
}
