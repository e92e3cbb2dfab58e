//! The `dnsweir` program: runs what the command line asks for, with meaningful exit codes.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to the person who called it"
)]

use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use dnsweir::args::{
    self, Args, CacheCommand, Child, Command, ExplainFlags, FilterCommand, NodeCacheFlags, NodeCommand,
};
use dnsweir::privileges::{self, Needs};
use dnsweir::programs::{EX_OSERR, EX_USAGE, Program};
use dnsweir::run::{self, ConfigOrigin, Mistakes, Places, Spectators, Stop, by_hand};
use dnsweir::{
    Confinement, Outcome, Plan, compile_for_parent, control, log, nodecache, output, precompile_builtins,
};
use dnsweir_flags::{LogFlags, LogFormat, LogLevel};
use dnsweir_tools::{self as tools, explain::Asked};

fn main() -> ExitCode {
    // Flushes the output however `main` ends.
    let _flush = Flush;
    let command = command_line().command;
    // Before any thread starts, since each has its own capabilities.
    let kept = needs(&command).map_or(Ok(()), |needs| Ok(privileges::keep(needs)?));
    match command {
        Command::Run {
            config,
            compiled_cache,
            control,
            wait,
            log,
        } => {
            if let Err(stop) = begin_log(log) {
                return fail(&stop);
            }
            let origin = config.map_or(ConfigOrigin::Demonstration, ConfigOrigin::File);
            let mistakes = if wait { Mistakes::Await } else { Mistakes::End };
            let places = Places::walled(compiled_cache.folder, control);
            serve(origin, places, mistakes, kept)
        }
        Command::NodeCache(flags) => node_cache(flags, kept),
        Command::Webhook(_) => replace_this(Program::Webhook),
        Command::Node { command } => node(&command).unwrap_or_else(|stop| fail(&stop)),
        Command::Check { file, compiled_cache } => check(&file, compiled_cache.folder.as_deref()),
        Command::Explain(flags) => explain(flags),
        Command::Dev {
            config,
            source,
            compiled_cache,
        } => dev(&config, &source, compiled_cache.folder.as_deref()),
        Command::Filter(command) => filter(command),
        Command::Import {
            corefile,
            out,
            partly,
            ..
        } => import(corefile.as_deref(), out.as_deref(), partly),
        Command::Verify { sums, key } => tool(tools::verify::verify(&sums, &key)),
        Command::Cache { command } => cache(&command),
        Command::LogLevel { level, control } => {
            tell(&control.path, Ok(control::Request::LogLevel(level.into())))
        }
        Command::Health { control } => tell(&control.path, Ok(control::Request::Health)),
        Command::Top(_) => replace_this(Program::Top),
        Command::Completions { shell } => tool(Ok(tools::command_line::completions(Args::command(), shell))),
        Command::Schema => tool(Ok(tools::schema())),
        Command::Words { word } => tool(tools::words(word.as_deref())),
        Command::Man { folder } => tool(tools::command_line::man(Args::command(), &folder)),
        Command::PrecompileBuiltins { folder } => precompile(&folder),
        Command::CompileFilter { child, metered } => compile(kept, &child, metered),
    }
}

/// Parses the command line; for help, the version or a mistake, prints and exits.
fn command_line() -> Args {
    // `cargo xtask` sets it; a plain cargo build reports only the version.
    let built = option_env!("DNSWEIR_BUILT").unwrap_or(env!("CARGO_PKG_VERSION"));
    let matches = Args::command()
        .long_version(built)
        .get_matches_from(args::words());
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Compiles the built-in filters for a package.
fn precompile(folder: &Path) -> ExitCode {
    let written = precompile_builtins(folder).map(|_| String::new());
    tool(written.map_err(tools::Stop::Machine))
}

/// Compiles a filter for the proxy. This child process must have given up its capabilities.
fn compile(kept: io::Result<()>, child: &Child, metered: bool) -> ExitCode {
    if let Err(error) = kept {
        eprintln!("dnsweir: could not drop capabilities: {error}");
        return ExitCode::FAILURE;
    }
    let limits = Confinement {
        memory: child.memory,
        time: Duration::from_millis(child.milliseconds),
    };
    ExitCode::from(compile_for_parent(child.parent, limits, metered))
}

/// Starts the log. Fails if that is impossible: a server without a log could not report errors.
fn begin_log(flags: LogFlags) -> Result<(), Stop> {
    log::start(
        flags.log_level.into(),
        matches!(flags.log_format, LogFormat::Json),
    )
    .map_err(|error| Stop::Machine(format!("cannot log to standard error: {error}")))
}

fn node_cache(flags: NodeCacheFlags, kept: io::Result<()>) -> ExitCode {
    let logged = LogFlags {
        log_level: LogLevel::Info,
        log_format: LogFormat::Text,
    };
    if let Err(stop) = begin_log(logged) {
        return fail(&stop);
    }
    let options = nodecache::Options::from(flags);
    tracing::info!(template = %options.template.display(), "running in node-cache's place");
    serve(
        ConfigOrigin::NodeCache(Arc::new(options)),
        Places::walled(None, None),
        Mistakes::End,
        kept,
    )
}

/// Answers queries until it is stopped. `kept` is the result of dropping capabilities.
fn serve(origin: ConfigOrigin, places: Places, mistakes: Mistakes, kept: io::Result<()>) -> ExitCode {
    if let Err(error) = kept {
        tracing::warn!(%error, "could not drop unneeded capabilities");
    }
    match run::run(origin, places, mistakes, Spectators::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => fail(&stop),
    }
}

fn check(file: &Path, compiled: Option<&Path>) -> ExitCode {
    match run::check(file, compiled) {
        Ok(notes) => {
            for note in notes {
                println!("note: {note}");
            }
            println!("{}: valid", file.display());
            ExitCode::SUCCESS
        }
        Err(stop) => fail(&stop),
    }
}

/// The capabilities that a command needs. `None` keeps the caller's: the command runs no untrusted code.
fn needs(command: &Command) -> Option<Needs> {
    match command {
        Command::Run { config: None, .. } => Some(Needs::Port),
        Command::Run {
            config: Some(config), ..
        } => Some(ConfigOrigin::File(config.clone()).needs()),
        Command::NodeCache(flags) if flags.keeps_network() => Some(Needs::Network),
        Command::NodeCache(_) => Some(Needs::Port),
        // It may listen on port 443.
        Command::Webhook(_) => Some(Needs::Port),
        Command::Node { .. } | Command::Filter(FilterCommand::New { .. }) => None,
        Command::Check { .. }
        | Command::Explain { .. }
        | Command::Dev { .. }
        | Command::Filter(_)
        | Command::Import { .. }
        | Command::Verify { .. }
        | Command::Cache { .. }
        | Command::LogLevel { .. }
        | Command::Health { .. }
        | Command::Top { .. }
        | Command::Completions { .. }
        | Command::Schema
        | Command::Words { .. }
        | Command::Man { .. }
        | Command::PrecompileBuiltins { .. }
        | Command::CompileFilter { .. } => Some(Needs::Nothing),
    }
}

fn explain(flags: ExplainFlags) -> ExitCode {
    // A tool also works without a log.
    let _ = log::start(LogLevel::Warn.into(), false);
    let (config, compiled) = (flags.config, flags.compiled_cache.folder);
    let asked = Asked {
        name: flags.name,
        qtype: flags.qtype,
        client: flags.client,
    };
    let explained = tools::explain::explain(&config, compiled.as_deref(), &asked, flags.times, flags.json);
    tool(explained)
}

fn dev(config: &Path, sources: &[PathBuf], compiled: Option<&Path>) -> ExitCode {
    // The view shows what matters, and a tool also works without a log.
    let _ = log::start(LogLevel::Warn.into(), false);
    tool(tools::dev::dev(config, sources, compiled).map(|()| String::new()))
}

fn import(corefile: Option<&Path>, out: Option<&Path>, partly: bool) -> ExitCode {
    let imported = tools::import::run(corefile, out, partly);
    if let Ok(Some(report)) = imported.as_ref().map(|imported| &imported.refused) {
        eprintln!("These blocks cannot be translated; queries for them are refused:\n\n{report}");
    }
    tool(imported.map(|imported| imported.text))
}

fn filter(command: FilterCommand) -> ExitCode {
    tool(match command {
        FilterCommand::New {
            name,
            lang,
            workspace,
        } => tools::new::new(&name, lang, workspace),
        FilterCommand::Info {
            module,
            config,
            json,
            access,
        } => tools::info::info(&module, config.as_deref(), json, &access),
        FilterCommand::Push {
            module,
            reference,
            access,
        } => tools::artifacts::push(&module, &reference, &access),
        FilterCommand::Pull {
            reference,
            output,
            access,
        } => tools::artifacts::pull(&reference, output.as_deref(), &access),
        FilterCommand::Verify {
            reference,
            signers,
            repository,
            access,
        } => tools::artifacts::verify(&reference, &signers, repository.as_deref(), &access),
        FilterCommand::Record {
            from,
            count,
            time,
            responses,
            output,
        } => {
            let wanted = tools::record::Wanted {
                count: count as usize,
                time,
                responses,
            };
            tools::record::record(&from, &wanted, output.as_deref())
        }
        FilterCommand::Test {
            module,
            test_cases,
            bless,
        } => match tools::test::test(module.as_deref(), test_cases.as_deref(), bless) {
            Ok(tested) if tested.unchanged => Ok(tested.report),
            Ok(tested) => {
                print!("{}", tested.report);
                return ExitCode::FAILURE;
            }
            Err(stop) => Err(stop),
        },
    })
}

/// Prints the output of a tool, and maps its errors to exit codes.
fn tool(done: Result<String, tools::Stop>) -> ExitCode {
    let printed = |text: String| {
        let mut stdout = io::stdout();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    };
    match done.map(printed) {
        // The reader may have stopped early.
        Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&Stop::Machine(format!("cannot print it: {error}")))
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(tools::Stop::File(report)) => fail(&Stop::Configuration(report)),
        Err(tools::Stop::Machine(error)) => fail(&Stop::Machine(error)),
        Err(tools::Stop::Refused(text)) => {
            complain(&format!("dnsweir: {text}"));
            ExitCode::from(EX_USAGE)
        }
    }
}

fn cache(command: &CacheCommand) -> ExitCode {
    match command {
        CacheCommand::Dump { control } => tell(&control.path, Ok(control::Request::Dump)),
        CacheCommand::Flush { name, below, control } => {
            tell(&control.path, control::Request::flush(name, *below))
        }
    }
}

/// Runs in this process the program that a command is.
fn replace_this(program: Program) -> ExitCode {
    // Without the names of this program and of the command.
    let flags = args::words().into_iter().skip(2);
    fail(&Stop::Machine(program.replace_this(flags)))
}

/// Sends a request to a running process, and prints its reply.
fn tell(path: &Path, request: Result<control::Request, String>) -> ExitCode {
    match request.and_then(|request| control::send(path, &request, &mut io::stdout())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&Stop::Machine(error)),
    }
}

fn node(command: &NodeCommand) -> Result<ExitCode, Stop> {
    match command {
        NodeCommand::Plan(options) => {
            let plan = planned(&options.config)?;
            print!("{plan}");
            for obstacle in by_hand::obstacles(&plan)? {
                eprintln!("dnsweir: {obstacle}");
            }
            match by_hand::leftovers(&plan) {
                Ok(leftovers) => leftovers.iter().for_each(|leftover| println!("found {leftover}")),
                // A plan can be shown without root, and on other machines.
                Err(stop) => {
                    eprintln!("dnsweir: did not look for what other node caches left behind: {stop}")
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Up(options) => Ok(report(&by_hand::up(&planned(&options.config)?)?)),
        NodeCommand::Down { config, adopt } => {
            let plan = planned(&config.config)?;
            Ok(report(&by_hand::down(&plan, *adopt)?))
        }
        NodeCommand::Status(options) => {
            let findings = by_hand::status(&planned(&options.config)?)?;
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

/// The plan of a configuration. Says so if there is nothing in it.
fn planned(file: &Path) -> Result<Plan, Stop> {
    let plan = by_hand::plan(file)?;
    if plan.is_empty() {
        eprintln!(
            "dnsweir: {} asks for no link and no rules, so nothing is to be set up",
            file.display()
        );
    }
    Ok(plan)
}

/// Prints what was done and what failed.
fn report(outcome: &Outcome) -> ExitCode {
    for done in &outcome.done {
        println!("{done}");
    }
    if let Some(why) = &outcome.shortfall {
        eprintln!("dnsweir: running without heartbeats, which this node does not support: {why}");
    }
    if let Some(why) = &outcome.untested {
        eprintln!("dnsweir: no self-test, which this node does not support: {why}");
    }
    for ip in &outcome.spared {
        println!("left {ip} and its rules alone: another process is bound to it");
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
            complain(&report.render(std::io::stderr().is_terminal()));
            ExitCode::from(EX_USAGE)
        }
        Stop::Machine(error) => {
            complain(&format!("dnsweir: {error}"));
            ExitCode::from(EX_OSERR)
        }
    }
}

/// Prints an error message.
fn complain(text: &str) {
    match output::stderr() {
        Ok(stderr) => {
            stderr.print(text);
        }
        Err(_) => eprintln!("{text}"),
    }
}

/// Flushes buffered output for a bounded time.
struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        output::flush();
    }
}
