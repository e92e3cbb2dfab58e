//! Encrypted transports: upstreams and clients.

mod hoarding;
mod https;
mod listeners;
mod names;
mod quic;
mod upstreams;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::harness::certificates::Authority;
use crate::harness::tools;

const NAME: &str = "dns.example";

/// A folder for certificate files.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Writes the authority's file into a folder, and returns its path.
fn authority_in(folder: &Path, authority: &Authority) -> String {
    let path = folder.join("ca.pem");
    std::fs::write(&path, authority.pem()).expect("a file");
    path.display().to_string()
}

/// A server's address with its expected name, to go after a scheme.
fn named(address: SocketAddr, name: &str) -> String {
    format!("{}%{name}:{}", address.ip(), address.port())
}

/// kdig for a server whose certificate must be from this authority and for this name, with these options
/// first.
fn kdig(server: SocketAddr, ca: &str, name: &str, options: &[&str]) -> Command {
    let mut command = tools::command("kdig");
    command.arg(format!("@{}", server.ip()));
    command.args(["-p", &server.port().to_string(), "+time=20", "+retry=0"]);
    command.args(options);
    command.args([format!("+tls-ca={ca}"), format!("+tls-hostname={name}")]);
    command
}
