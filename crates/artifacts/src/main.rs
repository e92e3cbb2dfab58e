//! The program that asks registries, and verifies signatures, for `dnsweir`: a process for each job.
//!
//! A process reads the job on standard input, and writes the result to standard output, or an error to standard error.
//! It reads what strangers send. So it confines itself first: it gives up all capabilities, and can open nothing but
//! what it needs to [pull](mod@pull) and [push](mod@push), or nothing at all to [verify](mod@verify). Its parent limits
//! memory and time, and takes its output for what it is.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "the parent reads it there")]

mod challenge;
mod client;
mod error;
mod pull;
mod push;
mod referrers;
mod signature;
mod verify;
#[cfg(test)]
#[allow(dead_code, reason = "tests of other crates use the rest")]
#[path = "../../../tests/harness/web.rs"]
mod web;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use bytes::Bytes;
use dnsweir_config::{self as config, tls};
use dnsweir_deliver::agent;
use dnsweir_deliver::registry::{self, Work, artifact, job, key, policy};
use dnsweir_os::confine::confine;
use dnsweir_os::plain_text;
use dnsweir_os::privileges::{self, Needs};
use dnsweir_os::programs::{Child, EX_OSERR, started_with};
// The servers of the tests use them.
#[cfg(test)]
use {rcgen as _, rustls as _};

/// Why there is no result: the exit code, and what the parent reads.
type Failure = (u8, String);

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, said)) => {
            eprintln!("{said}");
            ExitCode::from(code)
        }
    }
}

/// Does the job on standard input.
fn serve() -> Result<(), Failure> {
    let machine = |problem: String| (EX_OSERR, problem);
    let arguments = started_with().map_err(machine)?;
    let child = Child::read(&arguments).ok_or_else(|| machine("started without limits".into()))?;
    let named = |work: &Work| work.name() == child.work;
    let work = Work::ALL.into_iter().find(named);
    let work = work.ok_or_else(|| machine(format!("there is no {:?} to do", child.work)))?;
    // Before anything else: this process has opened nothing, and has one thread.
    privileges::keep(Needs::Nothing)
        .map_err(|error| machine(format!("could not drop capabilities: {error}")))?;
    confine(child.parent, child.limits, work.reach())
        .map_err(|error| machine(format!("could not confine itself: {error}")))?;
    let input = input().map_err(|error| machine(format!("could not read its job: {error}")))?;
    let output = match work {
        Work::Pull => wait(pull::pull(&input)),
        Work::Push => wait(push::push(input.into())),
        Work::Verify => verify::verify(&input),
    };
    let printed = output.and_then(|output| print(&output).map_err(|error| error.to_string()));
    printed.map_err(|problem| (1, problem))
}

/// Reads standard input, a file in memory, into as many bytes as it has.
fn input() -> io::Result<Vec<u8>> {
    let mut input = Vec::new();
    File::from(io::stdin().as_fd().try_clone_to_owned()?).read_to_end(&mut input)?;
    Ok(input)
}

fn wait(work: impl Future<Output = Result<Vec<Bytes>, String>>) -> Result<Vec<Bytes>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

fn print(parts: &[Bytes]) -> io::Result<()> {
    let mut output = io::stdout();
    parts.iter().try_for_each(|part| output.write_all(part))?;
    output.flush()
}
