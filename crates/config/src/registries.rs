//! `registries`: where modules are pulled from.

use std::path::PathBuf;
use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, fitting};
use super::reference::is_host;
use super::units::{duration, s, size};
use super::words::{Table, words};

words! {
    /// `registries { … }`: how to access registries.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Registries in REGISTRIES(0..=0): r#"registries { credentials "/etc/dnsweir/registries.json" }"#;

    /// User names and passwords, as in docker's `config.json`; read for each pull.
    file "credentials" credentials: Option<PathBuf> = ("none": "FILE"), "a file";
    /// The authorities that sign the registries' certificates.
    file "ca" ca: Option<PathBuf> = ("the system's": "FILE.pem"), "a file in PEM";
    /// HTTP proxy.
    one "proxy" proxy: Option<String> = ("none": "http://proxy.example:3128") in proxy, "`\"http://HOST:PORT\"`";
    /// Hosts that are asked before the registry, in this order.
    tables "mirror" mirrors: Vec<(String, Vec<String>)> = none in MIRROR, "hosts: the registry, then its mirrors";
    /// Hosts that are asked without TLS.
    list "plain-http"(1..=16) plain_http: Vec<String> = ("none": "10.0.0.5:5000") in host, "hosts";
    /// How often tags are checked.
    one "interval" interval: Duration = "5m" in duration(s(1)..=s(7 * 86_400));
    /// How long a pull may take.
    one "time" time: Duration = "1m" in duration(s(1)..=s(3600));
    /// Disk space for modules; the oldest unused ones are removed.
    one "keep" keep: usize = "256MiB" in size(0..=64 << 30);
}

/// A registry and its mirrors.
const MIRROR: Table<Option<(String, Vec<String>)>> = Table::of_values(
    2..=16,
    r#"mirror "registry.example" "mirror.example:5000""#,
    read_mirror,
);

/// The scheme of a proxy.
const PROXY: &str = "http://";

fn read_mirror(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Option<(String, Vec<String>)> {
    let mut hosts = decoder.values(node, host).into_iter();
    Some((hosts.next()?, hosts.collect()))
}

fn host(value: &KdlValue) -> Result<String, Wrong> {
    let help = "write it as in a reference, with a port or without: \"registry.example:5000\"";
    fitting(value, is_host, "is not a host", help)
}

fn proxy(value: &KdlValue) -> Result<String, Wrong> {
    let fits = |proxy: &str| {
        let host = proxy.strip_prefix(PROXY);
        host.is_some_and(|host| is_host(host.trim_end_matches('/')))
    };
    let help = "write its address: \"http://proxy.example:3128\"";
    fitting(value, fits, "is not an HTTP proxy", help)
}
