//! The project's own commands, as `cargo xtask COMMAND`.
//!
//! A command is a short list of ordinary cargo calls; this program adds what cargo cannot: the
//! WebAssembly target that the filters need, two ways to compile that share their dependencies, tests
//! that say which of them were skipped, and one name for every check that a change has to pass. It does
//! nothing that a person could not type.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to the person who called it"
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

use build::{BINDINGS, Build};
use commands::{Failure, built, call, cargo, root};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

Every day:
  check              check types, format and lints of what changed: seconds
  test --quick       run every test that needs no network namespace, cluster or browser: minutes
  test NAME          run one room of the source, or the tests whose names contain NAME
  run [ARGS…]        build, then `dnsweir run ARGS…`; without ARGS, the built-in demonstration

  These compile our own crates in seconds, unoptimized; `--release` behind `run` or `test` takes the program
  that ships. `cargo xtask run` also leaves target/quick/release/dnsweir, for `dnsweir dev` and the like.

Before a change is submitted:
  test               run every test of the workspace; with --release, as CI does
  test cluster       run the tests on a Kubernetes node, as root; takes minutes, since it builds Kubernetes
  lint               check formatting, layout, licences of dependencies, clippy

What ships, and what it costs (always the release):
  build              build the proxy with its filters: target/release/dnsweir
  bench [ARGS…]      `dnsweir-bench ARGS…`; without ARGS, every server that is installed;
                     `bench languages` and `bench examples` time the filters of examples/
  soak [MINUTES [FLOOD]]
                     a well-behaved client during floods of each kind, for MINUTES in all (10); FLOOD is part of a name
  image [--arch A]   pack an image without a daemon: target/image, and a file for `ctr images import`
  package [--arch A] pack a Debian package; A is amd64 or arm64, see docs/packaging.md
  sdk                pack the SDK's crate and the interface's WIT package, as they would be published: target/package
  release [ARGS…]    all artifacts of a release, from a clone without changes: target/artifacts; see packaging/README.md for
                     --out, --repository, --registry, --builder, --key, --twice, --push, --arch

Now and then:
  setup              add the WebAssembly target that filters are built for, if it is missing
  steady [ARGS…]     `test ARGS…` ten times beside eight threads that spin (--runs N, --load N); goes on where it stopped
  simulate [ARGS…]   play the proxy in a world of its own for two minutes, a history a seed; --help and tests/box/README.md
  fuzz [TARGET] [S]  run every fuzz target, or one, for S seconds each (60); `merge` adds what was found to fuzz/corpus
  coredns-suite [T…] run CoreDNS's own tests against dnsweir, and compare with the table of docs/reference/coredns-suite.md (--write); needs Go
  advisories         ask whether faults of dependencies have become known; needs cargo-deny and the network
  docs               make a site of the documents, with a search: target/docs/book; needs mdBook
  bindings           generate guest-sdk/src/bindings.rs from wit/
  keep-filter        store a filter as it is built today, for the tests of later releases: docs/interface.md

With CI=true, a test that skips itself fails the run.";

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
        "build" => Build::Release.programs(None),
        "bench" => bench(&rest),
        "soak" => soak(&rest),
        "image" | "package" => Build::Release
            .programs(None)
            .and_then(|()| pack::pack(&command, &rest)),
        "sdk" => Build::Release
            .programs(None)
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
            // A reader that has seen enough, such as `head`, is no failure.
            let _ = writeln!(std::io::stdout(), "{USAGE}");
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

/// Becomes the proxy: same process, same terminal, same signals.
fn run(mut args: Vec<String>) -> Result<(), Failure> {
    // What stands behind `--` is the proxy's.
    let own = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let mut proxys = args.split_off(own);
    let build = Build::chosen(&mut args);
    args.extend(proxys.drain(..).skip(1));
    build.programs(Some("dnsweir"))?;
    if build == Build::Quick {
        eprintln!("quick build, unoptimized: `cargo xtask run --release` runs what ships");
    }
    let program = build.folder().join("dnsweir");
    let error = Command::new(&program).arg("run").args(args).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}

/// Measures what ships.
fn bench(args: &[String]) -> Result<(), Failure> {
    Build::Release.programs(None)?;
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

/// Writes `guest-sdk/src/bindings.rs`.
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

/// What a flood of each kind costs a client that asks as always.
fn soak(args: &[String]) -> Result<(), Failure> {
    Build::Release.programs(None)?;
    call(Command::new(built("soak")).args(args).current_dir(root()))
}
