//! The `dnsweir` program: what the command line asks for, and an exit code that means something.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use dnsweir::args::{Args, Command, LogFormat, LogLevel, NodeCommand};
use dnsweir::node::Outcome;
use dnsweir::run::{self, Stop, by_hand};
use tracing::level_filters::LevelFilter;

/// A configuration that is not valid (sysexits.h).
const EX_USAGE: u8 = 64;

/// Something on this machine stood in the way, such as an address in use.
const EX_OSERR: u8 = 71;

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Run {
            config,
            compiled_cache,
            log_level,
            log_format,
        } => {
            log(log_level, log_format);
            match run::run(config, compiled_cache) {
                Ok(()) => ExitCode::SUCCESS,
                Err(stop) => fail(&stop),
            }
        }
        Command::Node { command } => node(&command).unwrap_or_else(|stop| fail(&stop)),
        Command::Check { file } => match run::check(&file) {
            Ok(()) => {
                println!("{}: no mistakes", file.display());
                ExitCode::SUCCESS
            }
            Err(stop) => fail(&stop),
        },
    }
}

fn node(command: &NodeCommand) -> Result<ExitCode, Stop> {
    match command {
        NodeCommand::Plan(options) => {
            print!("{}", by_hand::plan(&options.config)?);
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Up(options) => Ok(report(&by_hand::up(&by_hand::plan(&options.config)?)?)),
        NodeCommand::Down(options) => Ok(report(&by_hand::down(&by_hand::plan(&options.config)?)?)),
        NodeCommand::Status(options) => {
            let findings = by_hand::status(&by_hand::plan(&options.config)?)?;
            for finding in &findings {
                println!("{:10}  {}", finding.wrong.unwrap_or("ok"), finding.what);
            }
            let wrong = findings.iter().any(|finding| finding.wrong.is_some());
            Ok(if wrong {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            })
        }
    }
}

/// Prints what was done, and what could not be.
fn report(outcome: &Outcome) -> ExitCode {
    for done in &outcome.done {
        println!("{done}");
    }
    for error in &outcome.errors {
        eprintln!("dnsweir: {error}");
    }
    if outcome.errors.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EX_OSERR)
    }
}

fn fail(stop: &Stop) -> ExitCode {
    match stop {
        Stop::Configuration(report) => {
            eprint!("{}", report.render(std::io::stderr().is_terminal()));
            ExitCode::from(EX_USAGE)
        }
        Stop::Machine(error) => {
            eprintln!("dnsweir: {error}");
            ExitCode::from(EX_OSERR)
        }
    }
}

fn log(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let logs = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}
