//! What nobody on the way can read: upstreams that are asked so, and clients that ask so.

mod https;
mod listeners;
mod quic;
mod upstreams;

use std::net::SocketAddr;
use std::path::Path;

use crate::harness::certificates::Authority;

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
