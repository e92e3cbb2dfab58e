//! Which room may name which other room, and which crate only some of them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::{files, read, relative, root};
use crate::tree::{File, Tree};

/// The rooms of the host, and which others each may use. A room is a file or folder at the top of `host/src`, or both.
const ARROWS: &[(&str, &[&str])] = &[
    ("tls", &[]),
    ("zonefile", &["dns"]),
    ("config", &["zonefile", "tls", "plain_text", "dns"]),
    ("corefile", &["config"]),
    ("nodecache", &["corefile", "config", "dns"]),
    ("dns", &[]),
    ("dnstap", &["output", "config", "dns"]),
    ("cache", &["config", "dns"]),
    ("admission", &[]),
    ("datagrams", &["dns"]),
    ("histogram", &[]),
    ("figures", &["histogram"]),
    ("ranking", &[]),
    ("top", &["plain_text"]),
    ("netstat", &[]),
    ("output", &[]),
    ("plain_text", &[]),
    ("log", &["output", "plain_text"]),
    ("control", &["background", "log", "serve", "cache", "dns"]),
    ("confine", &[]),
    ("private_folder", &[]),
    ("attempts", &[]),
    ("background", &[]),
    ("fetch", &["private_folder", "config", "tls", "dns"]),
    ("api_server", &["config"]),
    ("identity", &["api_server", "background", "figures", "config"]),
    (
        "source",
        &[
            "admission",
            "datagrams",
            "api_server",
            "background",
            "histogram",
            "figures",
            "dnstap",
            "config",
            "zonefile",
            "tls",
            "dns",
        ],
    ),
    (
        "filter",
        &[
            "plain_text",
            "attempts",
            "background",
            "confine",
            "private_folder",
            "output",
            "figures",
            "identity",
            "config",
            "dns",
        ],
    ),
    (
        "registry",
        &[
            "filter",
            "fetch",
            "confine",
            "private_folder",
            "figures",
            "config",
        ],
    ),
    ("cases", &["filter", "identity", "config", "dns"]),
    (
        "serve",
        &[
            "admission",
            "histogram",
            "figures",
            "ranking",
            "cases",
            "filter",
            "cache",
            "source",
            "identity",
            "dnstap",
            "config",
            "dns",
        ],
    ),
    (
        "listen",
        &["datagrams", "netstat", "serve", "filter", "config", "tls", "dns"],
    ),
    ("node", &["netstat", "config", "dns"]),
    (
        "ceiling",
        &[
            "identity", "registry", "listen", "serve", "filter", "source", "output", "config",
        ],
    ),
    (
        "state",
        &["registry", "ceiling", "confine", "listen", "node", "serve"],
    ),
    (
        "metrics",
        &[
            "log",
            "ceiling",
            "state",
            "node",
            "nodecache",
            "output",
            "dnstap",
            "figures",
            "serve",
            "filter",
            "source",
            "identity",
            "listen",
        ],
    ),
    (
        "admin",
        &[
            "identity",
            "registry",
            "ceiling",
            "metrics",
            "state",
            "netstat",
            "serve",
            "filter",
            "cache",
            "source",
            "listen",
            "plain_text",
            "config",
            "dns",
        ],
    ),
    // The words of a flag.
    ("args", &["nodecache", "tools", "webhook", "top", "config"]),
    (
        "measured",
        &["private_folder", "serve", "filter", "cache", "config", "dns"],
    ),
    (
        "tools",
        &[
            "registry",
            "run",
            "serve",
            "cases",
            "filter",
            "corefile",
            "dnstap",
            "plain_text",
            "config",
            "dns",
        ],
    ),
    (
        "webhook",
        &[
            "run",
            "admin",
            "metrics",
            "listen",
            "log",
            "output",
            "figures",
            "histogram",
            "tls",
            "dns",
        ],
    ),
    (
        "fuzzing",
        &["listen", "serve", "source", "filter", "cache", "config", "dns"],
    ),
    (
        "run",
        &[
            "log",
            "background",
            "registry",
            "ceiling",
            "fetch",
            "control",
            "admin",
            "metrics",
            "state",
            "node",
            "nodecache",
            "output",
            "listen",
            "serve",
            "filter",
            "cache",
            "source",
            "identity",
            "private_folder",
            "config",
            "dns",
        ],
    ),
];

/// Crates that only some rooms may name; `main` is the program, above all rooms.
const CRATES: &[(&str, &[&str])] = &[
    ("wasmtime", &["filter"]),
    ("wasmtime_wasi", &["filter"]),
    ("wit_component", &["filter"]),
    ("wit_parser", &["filter"]),
    ("wasmparser", &["filter"]),
    ("kdl", &["config", "cases"]),
    ("strsim", &["config"]),
    ("similar", &["cases"]),
    ("resolv_conf", &["config"]),
    ("miette", &["config"]),
    ("clap", &["args", "main", "tools"]),
    ("reqwest", &["fetch"]),
    (
        "rustls",
        &["tls", "fetch", "registry", "source", "listen", "webhook"],
    ),
    ("tokio_rustls", &["fetch", "source", "listen", "webhook"]),
    ("rustls_platform_verifier", &["tls"]),
    ("x509_parser", &["tls"]),
    ("rcgen", &["tls", "fetch"]),
    ("url", &["config"]),
    ("quinn", &["listen", "source"]),
    ("hyper", &["admin", "listen", "source", "top", "webhook"]),
    ("hyper_util", &["admin", "listen", "source", "top", "webhook"]),
    ("http_body_util", &["admin", "listen", "source", "top", "webhook"]),
    ("terminal_size", &["top"]),
    ("unicode_width", &["top"]),
    ("prometheus_client", &["metrics"]),
    ("socket2", &["datagrams", "listen", "source", "admin", "node"]),
    ("etherparse", &["node"]),
    ("oci_client", &["registry"]),
    ("ring", &["filter", "registry", "source"]),
    ("sigstore_verify", &["registry"]),
    (
        "base64",
        &["config", "listen", "registry", "source", "tls", "webhook"],
    ),
    ("notify", &["run", "tools"]),
    ("hickory_proto", &["dns", "config", "fetch"]),
    ("domain", &["dns"]),
    ("rtnetlink", &["node", "source"]),
    ("futures_util", &["api_server", "node", "registry", "source"]),
    ("kube", &["api_server", "identity", "source", "webhook"]),
    ("k8s_openapi", &["identity", "source", "webhook"]),
    ("rpds", &["source"]),
    ("arc_swap", &["identity", "source"]),
    (
        "rustix",
        &[
            "config",
            "confine",
            "control",
            "fetch",
            "filter",
            "node",
            "private_folder",
            "run",
            // The clock.
            "serve",
        ],
    ),
    (
        "sha2",
        &["config", "fetch", "filter", "registry", "tls", "zonefile"],
    ),
    (
        "rand",
        &["api_server", "fetch", "filter", "node", "serve", "source"],
    ),
    ("hashbrown", &["cache", "dns"]),
    ("tracing_subscriber", &["log"]),
    // System calls that no safe crate has: datagrams in batches, limits of a process, who has a port.
    (
        "libc",
        &[
            "confine",
            "datagrams",
            "filter",
            "listen",
            "netstat",
            "node",
            "private_folder",
            "run",
            "serve",
        ],
    ),
];

/// Types that open a socket, by the last part of their path.
const SOCKETS: &[&str] = &["UdpSocket", "TcpStream", "TcpListener", "TcpSocket"];

/// Who may.
const WITH_SOCKETS: &[&str] = &[
    "dnstap", "listen", "source", "admin", "fetch", "registry", "top", "webhook",
];

#[test]
fn rooms_use_only_what_their_arrows_say() {
    let tree = Tree::read("host/src/lib.rs");
    let mut wrong = Vec::new();
    for file in &tree.files {
        let room = room(&file.path);
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            continue;
        };
        for (line, used) in tree.rooms_named(file) {
            let known = ARROWS.iter().any(|(name, _)| *name == used);
            if known && used != room && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{}:{line}: {room} uses {used}", relative(&file.path)));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A room that nobody wrote down is one that nobody thought about.
#[test]
fn every_room_has_its_place() {
    let rooms: BTreeSet<String> = files(&root().join("host/src"), &["rs"])
        .iter()
        .map(|file| room(file))
        .filter(|room| !["main", "lib"].contains(&room.as_str()))
        .collect();
    let known: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(rooms, known, "rooms, and those with arrows");
}

#[test]
fn dependencies_stay_in_their_rooms() {
    let mut wrong = Vec::new();
    for tree in ["host/src/lib.rs", "host/src/main.rs"].map(Tree::read) {
        for file in &tree.files {
            let room = room(&file.path);
            for (line, path) in named(file) {
                for (dependency, allowed) in CRATES {
                    // A name alone is one of ours.
                    if path.len() > 1 && path[0] == *dependency && !allowed.contains(&room.as_str()) {
                        wrong.push(format!(
                            "{}:{line}: {room} names {dependency}",
                            relative(&file.path)
                        ));
                    }
                }
                for socket in SOCKETS {
                    if path.iter().any(|name| name == socket) && !WITH_SOCKETS.contains(&room.as_str()) {
                        let file = relative(&file.path);
                        wrong.push(format!("{file}:{line}: {room} opens a socket: {socket}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Filters and their SDK know nothing of the host, in code and in what they depend on.
#[test]
fn filters_do_not_know_the_host() {
    let mut wrong = Vec::new();
    for folder in ["filters", "guest-sdk", "examples"] {
        for file in files(&root().join(folder), &["rs", "toml"]) {
            for (number, line) in (1..).zip(read(&file).lines()) {
                let line = line.split("//").next().unwrap_or_default();
                let names = ["../host", "dnsweir.workspace", "dnsweir =", "use dnsweir::"];
                if names.iter().any(|name| line.contains(name)) {
                    wrong.push(format!("{}:{number}: {line}", relative(&file)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The room that a file belongs to: its folder, or its own name at the top.
fn room(file: &Path) -> String {
    let inside = file.strip_prefix(root().join("host/src")).unwrap_or(file);
    let first = inside.iter().next().map(Path::new).unwrap_or(inside);
    let name = first.file_stem().and_then(|stem| stem.to_str());
    name.unwrap_or_default().to_owned()
}

/// Every path that a file imports or names, with its line.
fn named(file: &File) -> impl Iterator<Item = (usize, &[String])> {
    let bindings = file.paths.bindings.iter().map(|binding| &binding.mention);
    let all = bindings.chain(&file.paths.mentions);
    all.map(|mention| (mention.line, &mention.path[..]))
}
