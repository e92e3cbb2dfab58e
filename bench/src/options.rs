//! Options that several commands have.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Which processor does what.
#[derive(Debug, Clone, Copy, Args)]
pub struct Cores {
    /// Processor for what is measured
    #[arg(
        id = "server-core",
        long = "server-core",
        value_name = "N",
        default_value_t = 0
    )]
    pub server: usize,
    /// Processor for everything else
    #[arg(
        id = "client-core",
        long = "client-core",
        value_name = "N",
        default_value_t = 1
    )]
    pub client: usize,
}

/// How a rotation measures.
#[derive(Debug, Clone, Copy, Args)]
pub struct Pace {
    /// How many times everything is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,
    /// How long each measurement takes
    #[arg(id = "seconds", long = "seconds", value_name = "S", default_value = "4", value_parser = seconds)]
    pub duration: Duration,
    /// Queries sent at once at a fixed rate: a few pods' searches that coincide
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub burst: usize,
    #[command(flatten)]
    pub cores: Cores,
}

/// The proxy that is measured.
#[derive(Debug, Clone, Args)]
pub struct Proxy {
    /// Path of the proxy
    #[arg(long = "dnsweir", value_name = "FILE", default_value = "target/release/dnsweir", value_parser = absolute)]
    pub dnsweir: PathBuf,
}

/// Filters that are called for every query.
#[derive(Debug, Clone, Args)]
pub struct Called {
    /// The modules that bench/called-filters.sh made, for what is to be called for every query
    #[arg(long = "called-modules", value_name = "FOLDER", value_parser = absolute)]
    pub modules: Option<PathBuf>,
}

/// Parses seconds: at least a sensible measurement, and below a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("not between 0.1 and 86400".to_owned()),
    }
}

/// Makes a path absolute: servers run in their own folders.
pub fn absolute(text: &str) -> io::Result<PathBuf> {
    std::path::absolute(text)
}
