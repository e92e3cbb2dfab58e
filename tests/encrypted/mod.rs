//! What nobody on the way can read: upstreams that are asked so, and clients that ask so.

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

/// A folder for files of certificates.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The authority's file in a folder.
fn authority_in(folder: &Path, authority: &Authority) -> String {
    let path = folder.join("ca.pem");
    std::fs::write(&path, authority.pem()).expect("a file");
    path.display().to_string()
}

/// A server at an address that should have this name, behind a scheme.
fn named(address: SocketAddr, name: &str) -> String {
    format!("{}%{name}:{}", address.ip(), address.port())
}

/// kdig before a server whose certificate is to be the authority's and for this name, with these options in front.
fn kdig(server: SocketAddr, ca: &str, name: &str, options: &[&str]) -> Command {
    let mut command = tools::command("kdig");
    command.arg(format!("@{}", server.ip()));
    command.args(["-p", &server.port().to_string(), "+time=20", "+retry=0"]);
    command.args(options);
    command.args([format!("+tls-ca={ca}"), format!("+tls-hostname={name}")]);
    command
}
