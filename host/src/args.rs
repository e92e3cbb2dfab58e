//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::tools::artifacts::Access;
use crate::tools::new::Language;

/// A caching DNS proxy for one node, with filters in sandboxed WebAssembly.
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
    /// Answer queries until SIGTERM or SIGINT; SIGHUP or a changed file reloads the configuration.
    Run {
        /// Configuration file; without it, a built-in demonstration on 127.0.0.1:15353.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Folder to keep compiled filters and pulled modules in [default: dnsweir's folder in the user's cache folder].
        #[arg(long, value_name = "FOLDER")]
        compiled_cache: Option<PathBuf>,
        /// The least severe messages to log.
        #[arg(long, value_enum, default_value_t = LogLevel::Info)]
        log_level: LogLevel,
        /// Format of the log on standard error.
        #[arg(long, value_enum, default_value_t = LogFormat::Text)]
        log_format: LogFormat,
    },
    /// Show, apply, remove or verify the network setup that the `node` section asks for.
    Node {
        /// What to do.
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Check a configuration and report every mistake in it.
    Check {
        /// Configuration file.
        file: PathBuf,
    },
    /// Send a query through a configuration and show what each stage does with it.
    Explain {
        /// Name to query.
        name: String,
        /// Record type to query.
        #[arg(value_name = "TYPE", default_value = "A")]
        qtype: String,
        /// Configuration file. No listener is opened, and the cache starts empty.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Client address to ask from.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
        client: std::net::IpAddr,
        /// How many times to ask; later answers may come from the cache.
        #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
        times: u16,
        /// Print JSON, one line per query.
        #[arg(long)]
        json: bool,
    },
    /// Serve a configuration, rebuild its filters when their source changes, and trace every query.
    Dev {
        /// Configuration file.
        #[arg(long, value_name = "FILE", default_value = "dnsweir.kdl")]
        config: PathBuf,
        /// Cargo package of a filter whose module is not in the package's target folder; may be repeated.
        #[arg(long, value_name = "FOLDER")]
        source: Vec<PathBuf>,
    },
    /// Create, inspect and test filters.
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Print a script that completes this program's commands and options in a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print what a configuration may contain, as a KDL Schema for editors.
    Schema,
    /// Write a manual page for each command into a folder.
    Man {
        /// The folder, which is made if it does not exist.
        folder: PathBuf,
    },
    /// Pull a filter's module for the process that started this one.
    #[command(hide = true)]
    PullModule(Child),
    /// Compile a filter's module for the process that started this one.
    #[command(hide = true)]
    CompileFilter {
        /// Whose child it is.
        #[command(flatten)]
        child: Child,
        /// Make the code count its instructions.
        #[arg(long)]
        metered: bool,
    },
}

/// Whose child a process is, and what it may take.
#[derive(Debug, Clone, clap::Args)]
pub struct Child {
    /// Process ID of the parent.
    #[arg(long)]
    pub parent: u32,
    /// Memory limit in octets.
    #[arg(long)]
    pub memory: usize,
    /// Limit of processor time in milliseconds.
    #[arg(long)]
    pub milliseconds: u64,
}

/// What can be done with a filter outside of a running proxy.
#[derive(Debug, Subcommand)]
pub enum FilterCommand {
    /// Create a folder with a new filter: documented, with tests, ready for `cargo build`.
    New {
        /// Folder to create; its last component becomes the filter's name.
        name: PathBuf,
        /// Language to write it in.
        #[arg(long, value_enum, default_value_t = Language::Rust)]
        lang: Language,
        /// Make the folder around it a Cargo workspace, or add to the one that an earlier call made: its filters share the
        /// SDK and what Cargo has built.
        #[arg(long)]
        workspace: bool,
    },
    /// Show what a module imports and exports, and which queries it asks to see.
    Info {
        /// A .wasm file, builtin:NAME or oci://REFERENCE.
        #[arg(value_name = "FILE")]
        module: String,
        /// File with the contents of the filter's `config` block; without it, the block is empty.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// How a registry is asked.
        #[command(flatten)]
        access: Access,
    },
    /// Push a module to a registry and print the reference that names it by its digest.
    Push {
        /// A .wasm file.
        #[arg(value_name = "FILE")]
        module: PathBuf,
        /// Where to: oci://REGISTRY/NAME:TAG.
        reference: String,
        /// How a registry is asked.
        #[command(flatten)]
        access: Access,
    },
    /// Pull a module from a registry into a file.
    Pull {
        /// oci://REGISTRY/NAME:TAG, with a digest or without.
        reference: String,
        /// The file [default: the last part of NAME, with .wasm].
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// How a registry is asked.
        #[command(flatten)]
        access: Access,
    },
    /// Check that a module in a registry is signed, and say with which key.
    Verify {
        /// oci://REGISTRY/NAME:TAG, with a digest or without.
        reference: String,
        /// Public key in PEM; may be repeated.
        #[arg(long, value_name = "FILE", required = true)]
        key: Vec<PathBuf>,
        /// How a registry is asked.
        #[command(flatten)]
        access: Access,
    },
    /// Run a module's test cases and show where the results differ from the snapshot.
    Test {
        /// A .wasm file or builtin:NAME; without it, every filter in dnsweir.kdl that has test cases.
        #[arg(value_name = "FILE")]
        module: Option<String>,
        /// File with the test cases [default: FILE.test-cases.kdl beside FILE.wasm].
        #[arg(long, value_name = "FILE", requires = "module")]
        test_cases: Option<PathBuf>,
        /// Accept the results: write them to the file as the new snapshot.
        #[arg(long)]
        bless: bool,
    },
}

/// What `dnsweir node` does.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeCommand {
    /// Print the link, addresses and rules to set up, and what other node caches left behind; change nothing.
    Plan(NodeConfig),
    /// Set up the network as planned.
    Up(NodeConfig),
    /// Remove everything in the plan.
    Down {
        /// Whose `node` section is meant.
        #[command(flatten)]
        config: NodeConfig,
        /// Also remove what other node caches left behind, as listed by `plan`.
        #[arg(long)]
        adopt: bool,
    },
    /// Compare the network with the plan; the exit status is 1 if they differ.
    Status(NodeConfig),
}

/// Whose `node` section is meant.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeConfig {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// The least severe messages to log; each level includes those before it.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Degraded service, and what may lead to failures.
    Warn,
    /// Starts, stops, reloads and other changes.
    Info,
    /// Details for troubleshooting.
    Debug,
    /// Every step.
    Trace,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// One line per message.
    Text,
    /// One JSON object per message.
    Json,
}
