//! libFuzzer's choice of input for everything that reads untrusted data.

use std::process::Command;

use crate::commands::{Failure, answers, call, cargo, root};

/// Every target, or one, for so many seconds each.
pub fn fuzz(args: &[String]) -> Result<(), Failure> {
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
        None => targets()?,
    };
    for target in targets {
        println!("fuzzing {target} for {seconds} s");
        one(&target, seconds)?;
    }
    Ok(())
}

/// Begins with what is kept of earlier runs, in `fuzz/corpus`, and leaves what it finds in `fuzz/found`.
fn one(target: &str, seconds: &str) -> Result<(), Failure> {
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
fn targets() -> Result<Vec<String>, Failure> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut targets: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    targets.sort();
    Ok(targets)
}
