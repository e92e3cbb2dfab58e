//! `registries`: where modules are pulled from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, arguments, block, child, named_nodes, text};
use super::reference::is_host;
use super::units::{duration, s, size};

pub(super) const REGISTRIES: Shape = Shape {
    example: r#"registries { credentials "/etc/dnsweir/registries.json" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &[
        "credentials",
        "ca",
        "proxy",
        "mirror",
        "plain-http",
        "interval",
        "time",
        "keep",
    ],
    repeated: &["mirror"],
};

pub(super) const MIRROR: Shape = Shape::plain(2..=16, r#"mirror "registry.example" "mirror.example:5000""#);
pub(super) const PLAIN_HTTP: Shape = Shape::plain(1..=16, r#"plain-http "10.0.0.5:5000""#);

/// The scheme that a proxy is named with.
const PROXY: &str = "http://";

/// `registries { … }`: how registries are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registries {
    /// `credentials "FILE"`: user names and passwords, as in docker's `config.json`.
    pub credentials: Option<PathBuf>,
    /// `ca "FILE"`: the authorities, in PEM, that certificates must be from; none: those of the system.
    pub ca: Option<PathBuf>,
    /// `proxy "http://HOST:PORT"`: who is asked to connect to registries.
    pub proxy: Option<String>,
    /// `mirror "REGISTRY" "HOST"…`: who is asked before a registry is.
    pub mirrors: Vec<(String, Vec<String>)>,
    /// `plain-http "HOST"…`: hosts that are asked without TLS, beside loopback.
    pub plain_http: Vec<String>,
    /// `interval "5m"`: how often a tag is looked at.
    pub interval: Duration,
    /// `time "1m"`: how long a pull may take.
    pub time: Duration,
    /// `keep "256MiB"`: octets of artifacts that are kept on disk.
    pub keep: usize,
}

impl Default for Registries {
    fn default() -> Registries {
        Registries {
            credentials: None,
            ca: None,
            proxy: None,
            mirrors: Vec::new(),
            plain_http: Vec::new(),
            interval: s(300),
            time: s(60),
            keep: 256 << 20,
        }
    }
}

/// Decodes `registries`, if it is there.
pub(super) fn decode(mistakes: &mut Mistakes, folder: &Path, nodes: &[KdlNode]) -> Registries {
    let Some(node) = child(nodes, "registries") else {
        return Registries::default();
    };
    mistakes.check(node, &REGISTRIES);
    let nodes = block(node);
    let default = Registries::default();
    let mirrors = named_nodes(nodes, "mirror").filter_map(|node| mirror(mistakes, node));
    let mirrors = mirrors.collect();
    let plain_http = child(nodes, "plain-http").map(|node| {
        mistakes.check(node, &PLAIN_HTTP);
        hosts(mistakes, node)
    });
    Registries {
        credentials: mistakes
            .scalar(nodes, "credentials \"FILE\"", text)
            .map(|path| folder.join(path)),
        ca: mistakes
            .scalar(nodes, "ca \"FILE.pem\"", text)
            .map(|path| folder.join(path)),
        proxy: mistakes.scalar(nodes, "proxy \"http://proxy.example:3128\"", proxy),
        mirrors,
        plain_http: plain_http.unwrap_or_default(),
        interval: mistakes
            .scalar(nodes, "interval \"5m\"", duration(s(1)..=s(7 * 86_400)))
            .unwrap_or(default.interval),
        time: mistakes
            .scalar(nodes, "time \"1m\"", duration(s(1)..=s(3600)))
            .unwrap_or(default.time),
        keep: mistakes
            .scalar(nodes, "keep \"256MiB\"", size(0..=64 << 30))
            .unwrap_or(default.keep),
    }
}

fn mirror(mistakes: &mut Mistakes, node: &KdlNode) -> Option<(String, Vec<String>)> {
    mistakes.check(node, &MIRROR);
    let mut hosts = hosts(mistakes, node).into_iter();
    Some((hosts.next()?, hosts.collect()))
}

fn hosts(mistakes: &mut Mistakes, node: &KdlNode) -> Vec<String> {
    let name = node.name().value();
    arguments(node)
        .filter_map(|entry| mistakes.value(name, entry, host))
        .collect()
}

fn host(value: &KdlValue) -> Result<String, Wrong> {
    let host = text(value)?;
    match is_host(&host) {
        true => Ok(host),
        false => Err(Wrong::new(
            "is not a host",
            "write it as in a reference, with a port or without: \"registry.example:5000\"",
        )),
    }
}

fn proxy(value: &KdlValue) -> Result<String, Wrong> {
    let proxy = text(value)?;
    let host = proxy.strip_prefix(PROXY).map(|host| host.trim_end_matches('/'));
    match host.is_some_and(is_host) {
        true => Ok(proxy),
        false => Err(Wrong::new(
            "is not an HTTP proxy",
            "write its address: \"http://proxy.example:3128\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
    use super::*;

    const REST: &str = "listen \"127.0.0.1\"\nzone \".\" { use \"f\"; forward \"192.0.2.1\" }\n";

    fn with(words: &str) -> String {
        format!("{REST}filter \"f\" {{ module \"oci://r.example/f:1\" }}\n{words}")
    }

    #[test]
    fn words_are_read() {
        assert_eq!(config(&with("")).registries, Registries::default());
        let all = "registries { credentials \"c.json\"; ca \"/ca.pem\"; proxy \"http://p.example:3128\"\n\
            mirror \"r.example\" \"m.example:5000\" \"n.example\"; mirror \"s.example\" \"m.example\"\n\
            plain-http \"10.0.0.5:5000\"; interval \"10s\"; time \"5s\"; keep \"1GiB\" }";
        let read = config(&with(all)).registries;
        assert_eq!(read.credentials, Some("/nonexistent/c.json".into()));
        assert_eq!(read.ca, Some("/ca.pem".into()));
        assert_eq!(read.mirrors.len(), 2);
        assert_eq!(read.mirrors[0].1, ["m.example:5000", "n.example"]);
        assert_eq!(read.plain_http, ["10.0.0.5:5000"]);
        assert_eq!((read.interval, read.time, read.keep), (s(10), s(5), 1 << 30));
    }

    #[test]
    fn mistakes_are_found() {
        for (words, expected) in [
            ("registries { mirror \"a\" }", "`mirror` needs a value"),
            (
                "registries { mirror \"a\" \"b/c\" }",
                "`mirror`: \"b/c\" is not a host",
            ),
            (
                "registries { proxy \"p.example\" }",
                "`proxy`: \"p.example\" is not an HTTP proxy",
            ),
            (
                "registries { interval \"0s\" }",
                "`interval`: \"0s\" is out of range",
            ),
        ] {
            assert_eq!(problems(&with(words)), [expected], "{words}");
        }
    }
}
