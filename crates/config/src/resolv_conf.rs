//! Reads a resolv.conf: the servers that can be used, and those that cannot, or not yet.
//!
//! Other programs write and read the file too. A line that is useless here does not prevent the use of the
//! others, and if the file is missing or lists no server, dnsweir waits for it to change.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

use super::address::{self, DNS_PORT};
use super::files::{self, Files};

/// Size limit in bytes: larger files are not a resolv.conf.
const LONGEST: u64 = 64 * 1024;

/// The name servers in a resolv.conf.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameServers {
    /// The usable servers, each once, in file order.
    pub usable: Vec<SocketAddr>,
    /// The unusable ones with the reasons, as text.
    pub unusable: Vec<String>,
    /// The interfaces in the addresses' scopes.
    pub interfaces: Vec<String>,
    /// Whether more may appear without correcting a mistake: when the file is written, or with an interface.
    pub awaited: bool,
}

/// Reads the servers in the file at `path`; `refused` returns why one must not be used.
///
/// # Errors
/// When the file exists but cannot be read.
pub(super) fn name_servers(
    path: &Path,
    refused: impl Fn(SocketAddr) -> Option<String>,
) -> Result<NameServers, String> {
    let text = match files::read(path, LONGEST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(NameServers {
                unusable: vec![format!("{}: not there yet", path.display())],
                awaited: true,
                ..NameServers::default()
            });
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let mut found = NameServers::default();
    for server in String::from_utf8_lossy(&text).lines().filter_map(name_server) {
        found.interfaces.extend(address::scope(server).map(str::to_owned));
        match usable(server) {
            // glibc asks a repeated server twice; there is no need to.
            Ok(server) if found.usable.contains(&server) => {}
            Ok(address) => match refused(address) {
                None => found.usable.push(address),
                Some(why) => found.note(path, server, &why),
            },
            Err((why, awaited)) => {
                found.awaited |= awaited;
                found.note(path, server, &why);
            }
        }
    }
    if found.usable.is_empty() && found.unusable.is_empty() {
        found
            .unusable
            .push(format!("{}: no `nameserver` line yet", path.display()));
        found.awaited = true;
    }
    Ok(found)
}

impl NameServers {
    fn note(&mut self, path: &Path, server: &str, why: &str) {
        self.unusable
            .push(format!("{}: nameserver {server}: {why}", path.display()));
    }
}

/// Returns the search list in the file at `path`.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn search_list(files: &mut Files, path: &Path) -> Result<Vec<String>, String> {
    let text = files
        .read(path, LONGEST)
        .map_err(|error| format!("cannot be read: {error}"))?;
    let (parsed, _) = resolv_conf::Config::parse_with_errors(&text);
    Ok(parsed.get_last_search_or_domain().cloned().collect())
}

/// Returns the server on a line; other directives are ignored.
fn name_server(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    (words.next()? == "nameserver").then(|| words.next())?
}

/// The address of a server; or why it cannot be used, and whether it may be later.
fn usable(server: &str) -> Result<SocketAddr, (String, bool)> {
    let Some(address) = address::parse(server, DNS_PORT) else {
        return Err(match server.split_once('%') {
            Some((ip, interface)) if ip.parse::<Ipv6Addr>().is_ok() => {
                (format!("there is no interface {interface} yet"), true)
            }
            _ => ("not an IP address".to_owned(), false),
        });
    };
    match address::check(address) {
        Err(wrong) => Err((wrong.problem, false)),
        Ok(()) if address.ip().is_unspecified() => Err(("not the address of a server".to_owned(), false)),
        Ok(()) => Ok(address),
    }
}
