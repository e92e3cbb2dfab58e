//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// A DNS proxy for one node whose filters are sandboxed WebAssembly.
#[derive(Debug, Parser)]
#[command(name = "dnsweir", version, arg_required_else_help = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer queries until SIGTERM or SIGINT; SIGHUP, or a change of a file, reloads.
    Run {
        /// The configuration; without it, a demonstration on 127.0.0.1:5353.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Where compiled filters are kept; without it, in dnsweir's folder of the user's caches.
        #[arg(long, value_name = "FOLDER")]
        compiled_cache: Option<PathBuf>,
        /// How much is logged.
        #[arg(long, value_enum, default_value_t = LogLevel::Info)]
        log_level: LogLevel,
        /// How logs are written, to standard error.
        #[arg(long, value_enum, default_value_t = LogFormat::Text)]
        log_format: LogFormat,
    },
    /// Show or change what a configuration's `node` section wants of this machine's network.
    Node {
        /// What to do.
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Say everything that is wrong with a configuration.
    Check {
        /// The configuration.
        file: PathBuf,
    },
}

/// What `dnsweir node` does.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeCommand {
    /// Print the link, addresses and rules that are wanted, and do nothing.
    Plan(NodeConfig),
    /// Make the network as planned.
    Up(NodeConfig),
    /// Take away everything that is planned.
    Down(NodeConfig),
    /// Compare the network with the plan; exit with 1 if they differ.
    Status(NodeConfig),
}

/// Whose `node` section is meant.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeConfig {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// How much is logged; each level has those before it.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogLevel {
    /// What does not work.
    Error,
    /// What works worse than it could.
    Warn,
    /// What has changed.
    Info,
    /// What may explain the rest.
    Debug,
    /// Every step.
    Trace,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// A line each, for people.
    Text,
    /// An object each, for programs.
    Json,
}
