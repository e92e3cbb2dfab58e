//! The flags of `dnsweir top`.

use std::net::SocketAddr;

/// How a running process is looked at.
#[derive(Debug, clap::Args)]
pub struct TopFlags {
    /// Address of `admin` in its configuration.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9253")]
    pub admin: SocketAddr,
    /// Seconds between updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=60))]
    pub interval: u8,
    /// Print the figures of one interval and exit.
    #[arg(long)]
    pub once: bool,
}
