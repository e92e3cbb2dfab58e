//! The part of `/status` that is shown.

use serde::Deserialize;

/// The status of a process.
#[derive(Debug, Deserialize)]
pub struct Status {
    pub version: String,
    pub uptime_seconds: u64,
    pub generation: u64,
    pub ready: bool,
    pub problems: Vec<Problem>,
    pub listen: Vec<String>,
    pub memory: Memory,
    pub zones: Vec<Zone>,
    pub filters: Vec<Filter>,
    pub upstreams: Vec<Upstream>,
    /// `None` if the configuration does not show them.
    pub queries: Option<Queries>,
}

/// A problem.
#[derive(Debug, Deserialize)]
pub struct Problem {
    pub about: String,
    pub what: String,
    #[serde(default)]
    pub advice: String,
    /// Unix time in milliseconds.
    pub since: u64,
}

#[derive(Debug, Deserialize)]
pub struct Memory {
    pub resident_bytes: Option<u64>,
    pub ceiling_bytes: u64,
}

#[derive(Debug, Deserialize)]
pub struct Zone {
    pub names: Vec<String>,
    pub stages: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Filter {
    pub name: String,
    pub traps: u64,
    pub suspended_workers: u64,
}

#[derive(Debug, Deserialize)]
pub struct Upstream {
    pub address: String,
    /// Its name in metrics.
    pub to: String,
    pub healthy: bool,
    pub looping: bool,
}

#[derive(Debug, Deserialize)]
pub struct Queries {
    pub names: Vec<Name>,
    pub clients: Vec<Client>,
    pub failed: Vec<Trouble>,
    pub slow: Vec<Trouble>,
}

#[derive(Debug, Deserialize)]
pub struct Name {
    pub name: String,
    pub per_second: f64,
}

#[derive(Debug, Deserialize)]
pub struct Client {
    pub address: String,
    pub per_second: f64,
}

#[derive(Debug, Deserialize)]
pub struct Trouble {
    pub time: u64,
    pub client: String,
    pub name: String,
    #[serde(rename = "type")]
    pub qtype: String,
    pub rcode: String,
    pub milliseconds: f64,
    pub source: String,
    pub error: Option<String>,
}
