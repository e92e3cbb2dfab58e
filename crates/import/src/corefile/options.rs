//! Context that a Corefile does not contain.

use std::net::IpAddr;
use std::path::PathBuf;

use super::document::Node;

/// Context that a Corefile does not contain.
#[derive(Debug, Default)]
pub struct Options {
    /// Port for keys without one.
    pub port: u16,
    /// `rewrite` runs after `cache`, as in CoreDNS until 1.14.7.
    pub cache_first: bool,
    /// The `node` section to write, if any.
    pub node: Option<Node>,
    /// An additional address for `admin`.
    pub admin: Option<String>,
    /// Where relative paths start: the working folder of CoreDNS.
    pub folder: PathBuf,
    /// Looks up the addresses of an interface.
    pub addresses_of: Option<fn(&str) -> Vec<IpAddr>>,
    /// Blocks that cannot be translated refuse all queries; the others are translated.
    pub partly: bool,
    /// A file of `hosts` that is not there is left out until it appears, as in CoreDNS; otherwise, it is a
    /// mistake.
    pub awaits_files: bool,
}
