//! The command line of `dnsweir`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use dnsweir_flags::{LogFlags, LogLevel, TopFlags, WebhookFlags};
use dnsweir_tools::artifacts::{Access, Signers};
use dnsweir_tools::new::Language;

use crate::config::TapReader;
use crate::nodecache;

/// A caching DNS proxy for one node, with filters in sandboxed WebAssembly.
#[derive(Debug, Parser)]
#[command(name = "dnsweir", version, arg_required_else_help = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Returns the command line. One of node-cache is converted to the form that our parser expects.
pub fn words() -> Vec<OsString> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let texts: Option<Vec<String>> = words
        .iter()
        .map(|word| word.to_str().map(str::to_owned))
        .collect();
    match texts.and_then(|texts| nodecache::command_line(&texts)) {
        Some(texts) => texts.into_iter().map(OsString::from).collect(),
        None => words,
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer queries until SIGTERM or SIGINT; SIGHUP or a changed file reloads the configuration.
    // The chart adds `extraArgs` to its own flags.
    #[command(args_override_self = true)]
    Run {
        /// Configuration file; without it, a built-in demonstration on 127.0.0.1:15353.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Where compiled filters are kept.
        #[command(flatten)]
        compiled_cache: CompiledCache,
        /// Serve a control socket here, with or without `control` in the configuration; `dnsweir health` connects to it.
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
        /// Wait until mistakes in the configuration are corrected; meanwhile, serve nothing, and leave the node's
        /// network as it is.
        #[arg(long, requires = "config")]
        wait: bool,
        /// What is logged.
        #[command(flatten)]
        log: LogFlags,
    },
    /// Run in node-cache's place, with the command line, Corefile template and config map of NodeLocal DNSCache.
    ///
    /// The flags also work without the word `node-cache` before them, and with a single dash.
    NodeCache(NodeCacheFlags),
    /// Show, apply, remove or verify the network setup that the `node` section describes.
    Node {
        /// What to do.
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Run the admission webhook: it makes new pods in labelled namespaces use DNS on their node.
    Webhook(WebhookFlags),
    /// Check a configuration and report every mistake in it.
    Check {
        /// Configuration file.
        file: PathBuf,
        /// Where compiled filters are kept.
        #[command(flatten)]
        compiled_cache: CompiledCache,
    },
    /// Send a query through a configuration and show what each stage does with it.
    ///
    /// It needs no running dnsweir: it opens no listener, and its cache starts empty.
    Explain(ExplainFlags),
    /// Serve a configuration, rebuild its filters when their source changes, and trace every query.
    Dev {
        /// Configuration file.
        #[arg(long, value_name = "FILE", default_value = "dnsweir.kdl")]
        config: PathBuf,
        /// Cargo package of a filter whose module is not in the package's target folder; may be repeated.
        #[arg(long, value_name = "FOLDER")]
        source: Vec<PathBuf>,
        /// Where compiled filters are kept.
        #[command(flatten)]
        compiled_cache: CompiledCache,
    },
    /// Create, inspect and test filters.
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Translate a CoreDNS Corefile into a configuration for dnsweir, or report what cannot be translated.
    Import {
        /// Corefile; imported files are read, too, and environment variables are replaced.
        #[arg(value_name = "COREFILE", required_unless_present = "table")]
        corefile: Option<PathBuf>,
        /// Write the configuration to a file instead.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Translate the blocks that can be translated, and make the others refuse all queries.
        #[arg(long)]
        partly: bool,
        /// Print how each plugin and option of CoreDNS is translated.
        #[arg(long, conflicts_with_all = ["corefile", "out", "partly"])]
        table: bool,
    },
    /// Show or remove answers in the cache of a running dnsweir.
    Cache {
        /// What to do.
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Check the signature of a release's checksums, and the files beside them.
    Verify {
        /// Checksums, SHA256SUMS; their signature, SHA256SUMS.sig, must be in the same folder.
        #[arg(value_name = "FILE")]
        sums: PathBuf,
        /// Public key, in PEM, of the publisher of the release.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Change the log level of a running dnsweir.
    LogLevel {
        /// Least severe messages to log.
        #[arg(value_enum)]
        level: LogLevel,
        /// The socket.
        #[command(flatten)]
        control: ControlSocket,
    },
    /// Check whether a running dnsweir is healthy: a liveness probe that no other process can answer.
    Health {
        /// The socket.
        #[command(flatten)]
        control: ControlSocket,
    },
    /// Show the activity of a running dnsweir in a terminal, until Ctrl-C.
    Top(TopFlags),
    /// Print a shell script that completes the commands and options of dnsweir.
    Completions {
        /// Shell to complete in.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print what a configuration may contain, as a KDL Schema for editors.
    Schema,
    /// Print what a word of the configuration means, its default and its bounds, or an overview of all words.
    Words {
        /// Word of the configuration, without the `=` of a property.
        word: Option<String>,
    },
    /// Write a manual page for each command into a folder.
    Man {
        /// Folder, which is created if it does not exist.
        folder: PathBuf,
    },
    /// Compile the built-in filters for every processor of this kind, as packages install them: in
    /// `lib/dnsweir/compiled` beside the program's `bin`.
    #[command(hide = true)]
    PrecompileBuiltins {
        /// Where the code is written.
        folder: PathBuf,
    },
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

/// What is asked of which configuration.
#[derive(Debug, clap::Args)]
pub struct ExplainFlags {
    /// Name to query.
    pub name: String,
    /// Record type to query.
    #[arg(value_name = "TYPE", default_value = "A")]
    pub qtype: String,
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Client address to ask from.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub client: std::net::IpAddr,
    /// How many times to ask; later answers may come from the cache.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub times: u16,
    /// Print JSON, one line per query.
    #[arg(long)]
    pub json: bool,
    /// Where compiled filters are kept.
    #[command(flatten)]
    pub compiled_cache: CompiledCache,
}

/// Where compiled filters are kept.
#[derive(Debug, clap::Args)]
pub struct CompiledCache {
    /// Folder for compiled filters and pulled modules [default: dnsweir's folder in the user's cache folder].
    #[arg(long = "compiled-cache", value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

/// What to do with a cache.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Print every answer in the format of a zone file, with its remaining TTL.
    Dump {
        /// The socket.
        #[command(flatten)]
        control: ControlSocket,
    },
    /// Remove the answers for a name, of every type.
    Flush {
        /// Name to remove; `.` with --below means all names.
        name: String,
        /// Also remove the answers for every name below it.
        #[arg(long)]
        below: bool,
        /// The socket.
        #[command(flatten)]
        control: ControlSocket,
    },
}

/// Where a running process takes requests.
#[derive(Debug, clap::Args)]
pub struct ControlSocket {
    /// Control socket: `control` in its configuration, or `--control` of `dnsweir run`.
    #[arg(long = "control", value_name = "PATH", default_value = "/run/dnsweir/control")]
    pub path: PathBuf,
}

/// Whose child a process is, and what it may take.
#[derive(Debug, Clone, clap::Args)]
pub struct Child {
    /// Process ID of the parent.
    #[arg(long)]
    pub parent: u32,
    /// Memory limit in bytes.
    #[arg(long)]
    pub memory: usize,
    /// Limit of processor time in milliseconds.
    #[arg(long)]
    pub milliseconds: u64,
}

/// node-cache's command line. A switch is turned off with `=false`.
#[derive(Debug, clap::Args)]
pub struct NodeCacheFlags {
    /// Addresses to listen on, separated by commas.
    #[arg(
        long = "localip",
        value_name = "ADDRESSES",
        required = true,
        value_delimiter = ','
    )]
    localip: Vec<IpAddr>,
    /// Port to listen on.
    #[arg(long = "dns.port", short = 'p', alias = "p", value_name = "PORT", default_value_t = 53, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Whether to set up an interface with the addresses.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    setupinterface: bool,
    /// Name of that interface.
    #[arg(long, value_name = "NAME", default_value = "nodelocaldns")]
    interfacename: String,
    /// Whether to set up iptables rules.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    setupiptables: bool,
    /// Whether to leave rules and interface in place when the process ends.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    skipteardown: bool,
    /// How often to check rules and interface: in seconds, or with a unit such as 60s, from 1s to 1h.
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = interval)]
    syncinterval: Duration,
    /// Template of the Corefile.
    #[arg(long, value_name = "FILE", default_value = "/etc/coredns/Corefile.base")]
    basecorefile: PathBuf,
    /// Folder of kube-dns's config map [default: /etc/kube-dns, if it exists].
    #[arg(long, value_name = "FOLDER")]
    kubednscm: Option<PathBuf>,
    /// Service whose address in the environment is the cluster's DNS.
    #[arg(long, value_name = "SERVICE", default_value = "kube-dns")]
    upstreamsvc: String,
    /// Another address for metrics.
    #[arg(
        long = "metrics-listen-address",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9353"
    )]
    metrics: String,
    /// Value of __PROMETHEUS__ENDPOINT__ in the template.
    #[arg(
        long = "prometheus-listen-address",
        value_name = "ADDRESS",
        default_value = ":9253"
    )]
    prometheus: String,
    /// Ignored: rules are made for the ports of the Corefile's `health` and `prometheus`.
    #[arg(long = "health-port", value_name = "PORT")]
    health_port: Option<String>,
    /// Ignored: changed files are loaded at once.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    reloadwithsignal: Option<bool>,
    /// Ignored: no Corefile is written.
    #[arg(long, value_name = "FILE")]
    corefile: Option<PathBuf>,
    /// Ignored: no Corefile is written.
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Ignored: rules are set up as soon as queries are answered.
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Ignored.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    quiet: Option<bool>,
}

impl NodeCacheFlags {
    /// Whether the node's network is to be set up.
    pub fn keeps_network(&self) -> bool {
        self.setupinterface || self.setupiptables
    }
}

/// Parses a duration as documented; node-cache's own parser overflows for all but the smallest.
fn interval(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    let time = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds));
    match time {
        Some(time @ 1..=3600) => Ok(Duration::from_secs(time)),
        _ => Err("write seconds, or a time such as 60s, from 1s to 1h".to_owned()),
    }
}

impl From<NodeCacheFlags> for nodecache::Options {
    fn from(flags: NodeCacheFlags) -> nodecache::Options {
        nodecache::Options {
            local_ips: flags.localip,
            port: flags.port,
            interface: flags.setupinterface.then_some(flags.interfacename),
            iptables: flags.setupiptables,
            skip_teardown: flags.skipteardown,
            interval: flags.syncinterval,
            template: flags.basecorefile,
            config_map: flags.kubednscm,
            upstream_service: flags.upstreamsvc,
            metrics: flags.metrics,
            prometheus: flags.prometheus,
        }
    }
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
        /// Make the folder around it a Cargo workspace, or add the filter to the one that an earlier call created. Filters in a
        /// workspace share the SDK and the build folder.
        #[arg(long)]
        workspace: bool,
    },
    /// Show what a module imports and exports, and which queries it asks to see.
    Info {
        /// Module: a .wasm file, builtin:NAME or oci://REFERENCE.
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
    /// Push a module to a registry and print its reference with the digest.
    Push {
        /// Module: a .wasm file.
        #[arg(value_name = "FILE")]
        module: PathBuf,
        /// Destination: oci://REGISTRY/NAME:TAG.
        reference: String,
        /// How a registry is asked.
        #[command(flatten)]
        access: Access,
    },
    /// Pull a module from a registry into a file.
    Pull {
        /// Reference: oci://REGISTRY/NAME:TAG, with a digest or without.
        reference: String,
        /// Output file [default: the last part of NAME, with .wasm].
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// How a registry is asked.
        #[command(flatten)]
        access: Access,
    },
    /// Check that a module in a registry is signed, and print the signer.
    Verify {
        /// Reference: oci://REGISTRY/NAME:TAG, with a digest or without.
        reference: String,
        /// Whose signature will do.
        #[command(flatten)]
        signers: Signers,
        /// Repository that the signature must name, if it names one [default: that of the reference].
        #[arg(long = "for", value_name = "REPOSITORY")]
        repository: Option<String>,
        /// How a registry is asked.
        #[command(flatten)]
        access: Access,
    },
    /// Record test cases from the queries of real clients, which are anonymized.
    ///
    /// Any server with dnstap works.
    Record {
        /// Source of dnstap messages: unix:PATH or tcp:ADDRESS:PORT to listen on, or a file.
        #[arg(value_name = "PLACE", value_parser = TapReader::parse)]
        from: TapReader,
        /// Number of different questions to record.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        count: u32,
        /// How long to record, such as 30s or 5m [default: until there are enough questions].
        #[arg(long = "for", value_name = "TIME", value_parser = interval)]
        time: Option<Duration>,
        /// Record responses with their records instead of queries, for filters with a response phase.
        #[arg(long)]
        responses: bool,
        /// Output file [default: standard output].
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Run a module's test cases and show where the results differ from the snapshot.
    Test {
        /// Module: a .wasm file or builtin:NAME; without it, every filter in dnsweir.kdl that has test cases.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;
    use dnsweir_flags::LogFormat;

    use super::*;

    /// One sentence for each command, which begins with what it does. An option begins with what it is or does.
    #[test]
    fn help_texts_are_alike() {
        fn check(command: &clap::Command) {
            let visible = |command: &&clap::Command| !command.is_hide_set();
            for command in command.get_subcommands().filter(visible) {
                let about = command.get_about().unwrap().to_string();
                assert!(!about.contains(". ") && !about.contains('\n'), "{about}");
                for argument in command.get_arguments() {
                    let help = argument.get_help().unwrap().to_string();
                    let begins = |article: &&&str| help.starts_with(**article);
                    let article = ["The ", "A ", "An ", "Its ", "If ", "oci:"].iter().find(begins);
                    assert_eq!(article, None, "{}: {help}", command.get_name());
                }
                check(command);
            }
        }
        check(&Args::command());
    }

    #[test]
    fn a_flag_of_run_replaces_the_same_flag_before_it() {
        let words = "dnsweir run --wait --config /a --compiled-cache=/a --control=/a --log-format=text --log-level=info \
                     --wait --config /b --compiled-cache=/b --control=/b --log-format=json --log-level=debug";
        let args = Args::try_parse_from(words.split_whitespace()).unwrap();
        let Command::Run {
            config,
            compiled_cache,
            control,
            wait,
            log,
        } = args.command
        else {
            panic!("another command");
        };
        let paths = [config, compiled_cache.folder, control].map(Option::unwrap);
        assert_eq!(paths, [Path::new("/b"); 3]);
        assert!(
            wait && matches!(
                (log.log_level, log.log_format),
                (LogLevel::Debug, LogFormat::Json)
            )
        );
    }
}
