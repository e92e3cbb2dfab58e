//! How a Corefile is meant: what it does not say itself.

use std::net::IpAddr;
use std::path::PathBuf;

use super::document::Node;

/// How a Corefile is meant.
#[derive(Debug, Default)]
pub struct Options {
    /// Port of keys without one.
    pub port: u16,
    /// `rewrite` comes after `cache`, as it did in CoreDNS until 1.14.7.
    pub cache_first: bool,
    /// The `node` section, if there is to be one.
    pub node: Option<Node>,
    /// One more address of `admin`.
    pub admin: Option<String>,
    /// Where relative paths begin: the working folder of CoreDNS.
    pub folder: PathBuf,
    /// The addresses of an interface.
    pub addresses_of: Option<fn(&str) -> Vec<IpAddr>>,
    /// A block with something that cannot be said refuses what it is asked, and the others are translated.
    pub partly: bool,
}
