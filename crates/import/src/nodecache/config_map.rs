//! Reads kube-dns's config map: `stubDomains` and `upstreamNameservers`, each a JSON file.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::config::{Diagnostic, Report, Span, read_source};
use crate::dns::name::is_subdomain;

/// The files that are read.
pub const FILES: [&str; 2] = ["stubDomains", "upstreamNameservers"];

/// The most upstreams that node-cache accepts.
const MOST_UPSTREAMS: usize = 3;

/// The contents of the config map.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// Zones and their upstreams.
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// The upstreams for everything else; if empty, the node's.
    pub upstreams: Vec<String>,
}

impl ConfigMap {
    /// Reads the files in a folder. Missing files are treated as empty.
    ///
    /// # Errors
    /// When a file cannot be read, is not JSON of the right shape, or contains an invalid name or address.
    pub fn read(folder: &Path) -> Result<ConfigMap, Report> {
        let [stub_domains, upstreams] = FILES.map(|file| folder.join(file));
        let stub_domains: BTreeMap<String, Vec<String>> =
            json(&stub_domains, |domains: &BTreeMap<String, Vec<String>>| {
                domains
                    .iter()
                    .find_map(|(domain, servers)| wrong_domain(domain, servers))
            })?;
        let upstreams = json(&upstreams, |upstreams: &Vec<String>| {
            let many =
                (upstreams.len() > MOST_UPSTREAMS).then(|| format!("more than {MOST_UPSTREAMS} upstreams"));
            many.or_else(|| upstreams.iter().find_map(|server| wrong_server(server)))
        })?;
        Ok(ConfigMap {
            stub_domains,
            upstreams,
        })
    }
}

/// Parses a JSON file; `wrong` checks its contents.
fn json<T: DeserializeOwned + Default>(
    path: &Path,
    wrong: impl Fn(&T) -> Option<String>,
) -> Result<T, Report> {
    if std::fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(T::default());
    }
    let source = read_source(path)?;
    let text = source.text();
    let read = match serde_json::from_str(text) {
        Ok(read) => read,
        Err(error) => {
            let before: usize = text
                .split_inclusive('\n')
                .take(error.line().saturating_sub(1))
                .map(str::len)
                .sum();
            let mut at = (before + error.column().saturating_sub(1)).min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let mistake = Diagnostic::new((at..at).into(), format!("this is not valid: {error}"));
            let help = "write stubDomains like {\"acme.local\": [\"192.0.2.1\"]} and upstreamNameservers like [\"192.0.2.1\"]";
            return Err(Report::new(source, vec![mistake.help(help)]));
        }
    };
    match wrong(&read) {
        None => Ok(read),
        Some(problem) => Err(Report::new(
            source,
            vec![Diagnostic::new(Span::default(), problem)],
        )),
    }
}

fn wrong_domain(domain: &str, servers: &[String]) -> Option<String> {
    if domain.len() > 253 || !is_subdomain(domain) {
        return Some(format!("{domain:?} is not a domain name"));
    }
    if servers.is_empty() {
        return Some(format!("{domain} has no server"));
    }
    servers.iter().find_map(|server| wrong_server(server))
}

fn wrong_server(server: &str) -> Option<String> {
    let is_server = server.parse::<IpAddr>().is_ok() || server.parse::<SocketAddr>().is_ok();
    (!is_server).then(|| format!("{server:?} is not an IP address"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_config_map_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ConfigMap::read(folder.path()).unwrap(), ConfigMap::default());
        fs::write(
            folder.path().join("stubDomains"),
            "{\n \"acme.local\": [\"192.0.2.1\", \"[::1]:5300\"]\n}",
        )
        .unwrap();
        fs::write(folder.path().join("upstreamNameservers"), "[\"192.0.2.2\"]").unwrap();
        fs::write(folder.path().join("federations"), "no").unwrap();
        let read = ConfigMap::read(folder.path()).unwrap();
        assert_eq!(read.stub_domains["acme.local"], ["192.0.2.1", "[::1]:5300"]);
        assert_eq!(read.upstreams, ["192.0.2.2"]);
    }

    #[test]
    fn mistakes_in_it_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text, line, expected) in [
            (
                "stubDomains",
                "{\n \"a\": \"192.0.2.1\"\n}",
                2,
                "this is not valid",
            ),
            (
                "stubDomains",
                "{\"A_b\": [\"192.0.2.1\"]}",
                1,
                "\"A_b\" is not a domain name",
            ),
            ("stubDomains", "{\"a\": []}", 1, "a has no server"),
            ("stubDomains", "{\"a\": [\"x {\\n}\"]}", 1, "is not an IP address"),
            ("stubDomains", "", 1, "this is not valid"),
            (
                "upstreamNameservers",
                "[\"::1\", \"::2\", \"::3\", \"::4\"]",
                1,
                "more than 3 upstreams",
            ),
            (
                "upstreamNameservers",
                "[\"dns.example\"]",
                1,
                "\"dns.example\" is not an IP address",
            ),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
            let report = ConfigMap::read(folder.path()).unwrap_err();
            assert!(report.to_string().contains(expected), "{text}: {report}");
            assert_eq!(report.lines(), [line], "{text}");
            fs::remove_file(folder.path().join(file)).unwrap();
        }
    }
}
