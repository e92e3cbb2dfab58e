//! The project's own commands, as `cargo xtask COMMAND`.
//!
//! Each command is a short list of cargo calls that could also be typed. This program adds what cargo lacks:
//! the WebAssembly target that filters need, two builds that share their dependencies, a list of skipped
//! tests, and one name for each check that a change must pass.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program reports to its caller"
)]

mod build;
mod check;
mod commands;
mod coredns_suite;
mod fuzz;
mod lint;
mod pack;
mod processor;
mod programs;
mod release;
mod released;
mod setup;
mod simulate;
mod site;
mod steady;
mod test;

use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use build::{BINDINGS, Build, SHIPPED};
use commands::{Failure, built, call, cargo, root};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

Every day:
  check              check types, format and lints of what changed, in seconds
  test --quick       run the tests that need no network namespace, cluster, browser, release build, go, npm or
                     pip3, in minutes
  test NAME          run the tests of the crate or module NAME, or those whose names contain NAME
  run [ARGS…]        build the proxy, then run `dnsweir run ARGS…`; without ARGS, the built-in demonstration

  These compile our own crates in seconds, unoptimized. `run --release` and `test --release` use the release build.
  `run` also leaves target/quick/release/dnsweir, for `dnsweir dev` and other commands.

Before you submit a change:
  test               run every test of the workspace; with --release, as CI does
  test cluster       run the tests on a Kubernetes node, as root; the first time, it builds Kubernetes, in minutes
  lint               check licences of dependencies, format, clippy, and the layout of the source

With the release build:
  build              build the proxy with its filters, target/release/dnsweir, and the programs beside it
  bench [ARGS…]      run `dnsweir-bench ARGS…`; without ARGS, measure every installed server;
                     `bench languages` and `bench examples` time the filters of examples/
  soak [MINUTES [FLOOD]]
                     run a well-behaved client during floods of each kind, or of those whose name contains FLOOD,
                     for MINUTES in all (10)
  image [--arch A]   pack an image without a daemon: target/image, and a file for `ctr images import`
  package [--arch A] pack a Debian package; A is amd64 or arm64, see docs/packaging.md
  sdk                pack the SDK's crate and the interface's WIT package, as published: target/package
  release [ARGS…]    build all artifacts of a release, from a clone without changes: target/artifacts;
                     packaging/README.md describes --out, --repository, --registry, --builder, --key, --twice,
                     --push and --arch

Occasionally:
  setup              add the WebAssembly target that filters are built for, if it is missing
  steady [ARGS…]     run `test ARGS…` ten times beside eight spinning threads (--runs N, --load N);
                     resumes where it stopped
  simulate [ARGS…]   run the proxy in a simulated world for two minutes, one history for each seed;
                     see --help and tests/box/README.md
  fuzz [TARGET [S]]  run all fuzz targets, or one, for S seconds each (60);
                     `fuzz TARGET merge` adds new inputs to fuzz/corpus
  coredns-suite [T…] run CoreDNS's own tests, or those whose names contain T, against dnsweir, and compare the results
                     with docs/reference/coredns-suite.md; --write updates it; needs Go
  advisories         check the dependencies for known vulnerabilities; needs cargo-deny and the network
  docs               build a searchable site of the documents: target/docs/book; needs mdBook
  bindings           generate guest-sdk/src/bindings.rs from wit/
  keep-filter        build and store a filter, for the tests of later releases: docs/interface.md

With CI=true, a run fails if a test is skipped.";

fn main() -> ExitCode {
    if let Some(failure) = fuzz::as_compiler() {
        eprintln!("xtask: {failure}");
        return ExitCode::FAILURE;
    }
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let result = match command.as_str() {
        "check" => check::check(),
        "test" => test::test(rest),
        "run" => run(rest),
        "lint" => lint::lint(),
        "build" => Build::Release.programs(&[]),
        "bench" => bench(&rest),
        "soak" => soak(&rest),
        "image" | "package" => Build::Release
            .programs(&[])
            .and_then(|()| pack::pack(&command, &rest)),
        "sdk" => Build::Release
            .programs(&[])
            .and_then(|()| pack::sdk(None, &build::target().join("package"))),
        "release" => release::release(&rest),
        "advisories" => lint::advisories(),
        "setup" => setup::wasm_target(),
        "steady" => steady::steady(rest),
        "simulate" => simulate::simulate(rest),
        "fuzz" => fuzz::fuzz(&rest),
        "coredns-suite" => coredns_suite::suite(rest),
        "docs" => site::docs(),
        "bindings" => bindings(),
        "keep-filter" => released::keep(),
        "" | "help" | "--help" | "-h" => {
            // A reader such as `head` may close the pipe early: not a failure.
            let _ = writeln!(std::io::stdout(), "{USAGE}");
            Ok(())
        }
        unknown => Err(format!("unknown command `{unknown}`\n\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Builds what is shipped, and replaces this process with the proxy, so that it keeps the terminal and gets the
/// signals.
fn run(mut args: Vec<String>) -> Result<(), Failure> {
    // Arguments after `--` are for the proxy only.
    let own = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let rest = args.split_off(own);
    let build = Build::chosen(&mut args);
    args.extend(rest.into_iter().skip(1));
    build.programs(&SHIPPED)?;
    if build == Build::Quick {
        eprintln!("quick build, unoptimized: `cargo xtask run --release` runs the release build");
    }
    let program = build.folder().join("dnsweir");
    let error = Command::new(&program).arg("run").args(args).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}

/// Runs a benchmark of the release build.
fn bench(args: &[String]) -> Result<(), Failure> {
    Build::Release.programs(&[])?;
    if let Some(name @ ("languages" | "examples")) = args.first().map(String::as_str) {
        return call(cargo(["bench", "--workspace", "--bench", name, "--"]).args(&args[1..]));
    }
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

/// Generates `guest-sdk/src/bindings.rs`.
fn bindings() -> Result<(), Failure> {
    let words = [
        "run",
        "--release",
        "--package",
        BINDINGS,
        "--",
        "wit",
        "guest-sdk/src/bindings.rs",
    ];
    call(cargo(words))
}

/// Measures what floods cost a well-behaved client.
fn soak(args: &[String]) -> Result<(), Failure> {
    Build::Release.programs(&[])?;
    call(Command::new(built("soak")).args(args).current_dir(root()))
}
