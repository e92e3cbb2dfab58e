//! `registries` and `signatures`: where modules are pulled from, and whose are taken.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, arguments, block, child, head, named_nodes, suggestion, text};
use super::error::{Diagnostic, Span};
use super::files::Files;
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

pub(super) const SIGNATURES: Shape = Shape {
    example: r#"signatures { key "platform" "/etc/dnsweir/cosign.pub" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &["key"],
    repeated: &["key"],
};

pub(super) const KEY: Shape = Shape::plain(2..=2, r#"key "platform" "/etc/dnsweir/cosign.pub""#);
pub(super) const SIGNED_BY: Shape = Shape::plain(1..=16, r#"signed-by "platform""#);

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

/// `key "NAME" "FILE"`: a public key whose signatures are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// What it is called in the configuration, and in what is shown.
    pub name: String,
    /// The text of the file.
    pub pem: String,
    /// Where it stands.
    pub span: Span,
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

/// Decodes `signatures`: the keys of which one must have signed each artifact.
pub(super) fn signatures(mistakes: &mut Mistakes, files: &mut Files<'_>, nodes: &[KdlNode]) -> Vec<Key> {
    let Some(node) = child(nodes, "signatures") else {
        return Vec::new();
    };
    mistakes.check(node, &SIGNATURES);
    if block(node).is_empty() {
        let empty = Diagnostic::new(head(node), "`signatures` names no key");
        mistakes.push(empty.help(format!("write: {}, or remove it", SIGNATURES.example)));
    }
    let mut keys: Vec<Key> = Vec::new();
    for node in named_nodes(block(node), "key") {
        mistakes.check(node, &KEY);
        let mut words = arguments(node).filter_map(|entry| mistakes.value("key", entry, text));
        let (Some(name), Some(file)) = (words.next(), words.next()) else {
            continue;
        };
        drop(words);
        let span = head(node);
        if let Some(first) = keys.iter().find(|key| key.name == name) {
            let twice = Diagnostic::new(span, format!("key {name:?} is defined twice"));
            mistakes.push(
                twice
                    .label("again")
                    .other(first.span, "first here")
                    .help("give one of them another name"),
            );
            continue;
        }
        let path = files.folder.join(file);
        match files.text(&path) {
            Ok(pem) => keys.push(Key { name, pem, span }),
            Err(error) => {
                let problem = format!("the key {} cannot be read: {error}", path.display());
                let help = "name a public key in PEM, as `cosign generate-key-pair` writes cosign.pub";
                mistakes.push(Diagnostic::new(span, problem).help(help));
            }
        }
    }
    keys
}

/// Decodes a filter's `signed-by`: names of `keys`.
pub(super) fn signed_by(mistakes: &mut Mistakes, keys: &[Key], node: &KdlNode) -> Vec<String> {
    mistakes.check(node, &SIGNED_BY);
    let known: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
    let key = |value: &KdlValue| {
        let name = text(value)?;
        match known.contains(&name.as_str()) {
            true => Ok(name),
            false => Err(Wrong::new(
                "is none of the keys in `signatures`",
                suggestion(&name, &known, SIGNATURES.example),
            )),
        }
    };
    arguments(node)
        .filter_map(|entry| mistakes.value("signed-by", entry, key))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{config, parse_in, problems};
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
            ("signatures", "`signatures` names no key"),
            ("signatures { key \"a\" }", "`key` needs a value"),
            (
                "signatures { key \"a\" \"no.pub\" }",
                "the key /nonexistent/no.pub cannot be read: No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(problems(&with(words)), [expected], "{words}");
        }
    }

    #[test]
    fn filters_are_signed_by_keys_that_there_are() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.pub"), "a").unwrap();
        let parse = |words: &str| {
            let text = format!("{REST}signatures {{ key \"alice\" \"a.pub\" }}\nfilter \"f\" {{ {words} }}");
            parse_in(folder.path(), &text)
        };
        let module = "module \"oci://r.example/f:1\"";
        assert!(parse(module).unwrap().filters[0].signed_by.is_empty());
        let named = parse(&format!("{module}; signed-by \"alice\"")).unwrap();
        assert_eq!(named.filters[0].signed_by, ["alice"]);
        assert_eq!(named.keys[0].pem, "a");
        for (words, expected) in [
            (
                format!("{module}; signed-by \"alcie\""),
                "`signed-by`: \"alcie\" is none of the keys in `signatures`",
            ),
            (
                "module \"builtin:log\"; signed-by \"alice\"".to_owned(),
                "`signed-by` is for modules from registries alone",
            ),
            (
                format!("{module}; sha256 \"{}\"", "0".repeat(64)),
                "a module from a registry takes no `sha256`",
            ),
            (
                "module \"oci://r.example/f\"".to_owned(),
                "\"oci://r.example/f\" needs a tag or a digest: write oci://REGISTRY/NAME:TAG or …@sha256:DIGEST",
            ),
        ] {
            let report = parse(&words).unwrap_err();
            assert_eq!(report.diagnostics()[0].message, expected, "{words}");
        }
    }
}
