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
        /// The configuration; without it, a demonstration on 127.0.0.1:15353.
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
    /// Send one query through a configuration, and say what each stage did about it.
    Explain {
        /// The name to ask for.
        name: String,
        /// The type.
        #[arg(value_name = "TYPE", default_value = "A")]
        qtype: String,
        /// The configuration. Nothing of it is listened on, and the cache begins empty.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Who asks.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
        client: std::net::IpAddr,
        /// How many times: the second answer may come from the cache.
        #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
        times: u16,
        /// As JSON, a line for each time.
        #[arg(long)]
        json: bool,
    },
    /// Serve a configuration, rebuild its filters whenever their source changes, and show what happens.
    Dev {
        /// The configuration.
        #[arg(long, value_name = "FILE", default_value = "dnsweir.kdl")]
        config: PathBuf,
        /// The cargo package of a filter whose module lies somewhere else; may be given several times.
        #[arg(long, value_name = "FOLDER")]
        source: Vec<PathBuf>,
    },
    /// Write, look at and try filters.
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Compile a filter's module for the dnsweir that started this one.
    #[command(hide = true)]
    CompileFilter {
        /// Its process id.
        #[arg(long)]
        parent: u32,
        /// Octets of memory.
        #[arg(long)]
        memory: usize,
        /// Of processor time.
        #[arg(long)]
        milliseconds: u64,
        /// Whether the code is to count instructions.
        #[arg(long)]
        metered: bool,
    },
}

/// What can be done with a filter that no proxy runs.
#[derive(Debug, Subcommand)]
pub enum FilterCommand {
    /// Make a folder with a new filter: documented, tested, ready for `cargo build`.
    New {
        /// The folder; its last part is the name of the filter.
        name: PathBuf,
    },
    /// Say what a module imports and exports, and what it wants to see.
    Info {
        /// A .wasm file, or builtin:NAME.
        #[arg(value_name = "FILE")]
        module: String,
        /// A file with the nodes of its `config` block; without it, the block is empty.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ask a module its recorded questions, and say what has changed.
    Test {
        /// A .wasm file, or builtin:NAME; without it, every filter of dnsweir.kdl that has questions.
        #[arg(value_name = "FILE")]
        module: Option<String>,
        /// The questions; without it, FILE.questions.kdl beside FILE.wasm.
        #[arg(long, value_name = "FILE", requires = "module")]
        questions: Option<PathBuf>,
        /// Record what is observed.
        #[arg(long)]
        bless: bool,
    },
}

/// What `dnsweir node` does.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeCommand {
    /// Print the link, addresses and rules that are wanted, and what other node caches have left; do nothing.
    Plan(NodeConfig),
    /// Make the network as planned.
    Up(NodeConfig),
    /// Take away everything that is planned.
    Down {
        /// Whose `node` section is meant.
        #[command(flatten)]
        config: NodeConfig,
        /// Also what other node caches have left behind, as `plan` names it.
        #[arg(long)]
        adopt: bool,
    },
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
