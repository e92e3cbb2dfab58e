//! `dnsweir node-cache`: node-cache's command line, template and config map.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::harness::metrics::Metrics;
use crate::harness::process::Process;
use crate::harness::{Message, Upstream, address, ask, proxy, until};

/// The manifest's template, with the cluster DNS's port, and free addresses for metrics.
const TEMPLATE: &str = "\
cluster.local:$PORT {
    errors
    cache {
            success 9984 30
            denial 9984 5
    }
    reload
    loop
    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__
    forward . __PILLAR__CLUSTER__DNS__:$CLUSTER {
            force_tcp
    }
    prometheus $ADMIN
    health $HEALTH
    }
.:$PORT {
    errors
    cache 30
    reload
    loop
    bind __PILLAR__LOCAL__DNS__
    forward . __PILLAR__UPSTREAM__SERVERS__ {
            force_tcp
    }
    prometheus __PROMETHEUS__ENDPOINT__
    }
";

/// A running `dnsweir node-cache`, without the node's network changes.
struct NodeCache {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    health: SocketAddr,
    folder: tempfile::TempDir,
    generation: std::cell::Cell<u32>,
}

impl NodeCache {
    fn start(cluster: SocketAddr, config_map: &[(&str, &str)]) -> NodeCache {
        NodeCache::start_with(TEMPLATE, cluster, config_map)
    }

    /// The same with another template, in which `$FOLDER` is the folder of its files.
    fn start_with(template: &str, cluster: SocketAddr, config_map: &[(&str, &str)]) -> NodeCache {
        let address = address::fresh_socket();
        let admin = SocketAddr::new(address.ip(), 9253);
        let health = SocketAddr::new(address.ip(), 8080);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let template = template
            .replace("$FOLDER", &folder.path().display().to_string())
            .replace("$PORT", &address.port().to_string())
            .replace("$CLUSTER", &cluster.port().to_string())
            .replace("$ADMIN", &admin.to_string())
            .replace("$HEALTH", &health.to_string());
        let file = folder.path().join("Corefile.base");
        std::fs::write(&file, template).expect("a template");
        let mut command = proxy::command();
        command
            .env("KUBE_DNS_UPSTREAM_SERVICE_HOST", cluster.ip().to_string())
            .args(["-localip", &address.ip().to_string(), "-conf", "/etc/Corefile"])
            .args(["-dns.port", &address.port().to_string()])
            .args([
                "-upstreamsvc",
                "kube-dns-upstream",
                "-setupinterface=false",
                "-setupiptables=false",
            ])
            .args(["-metrics-listen-address", &format!("{}:9353", address.ip())])
            .arg(format!("-prometheus-listen-address={admin}"))
            .arg(format!("-basecorefile={}", file.display()))
            .arg(format!("-kubednscm={}", folder.path().join("kube-dns").display()));
        publish(folder.path(), 0, config_map);
        let mut cache = NodeCache {
            process: Process::start_unread(&mut command),
            address,
            admin,
            health,
            folder,
            generation: 1.into(),
        };
        cache.process.read();
        cache
    }

    /// Updates the config map.
    fn publish(&self, files: &[(&str, &str)]) {
        let generation = self.generation.replace(self.generation.get() + 1);
        publish(self.folder.path(), generation, files);
    }

    fn first(&self, name: &str) -> Option<String> {
        let reply = ask(self.address, &Message::query(name, "A"));
        reply.answers().first().cloned()
    }

    fn await_ready(&self) {
        until("the proxy to be ready", || {
            proxy::try_get(self.health, "/ready").is_some_and(|(status, _)| status == 200)
        });
    }

    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        proxy::try_get(self.admin, "/metrics")
            .map_or(0.0, |(_, body)| Metrics::parse(&body).sum(name, labels))
    }
}

/// Updates a config map like a kubelet: writes all files to a new folder, then replaces the link to the old
/// one.
fn publish(folder: &Path, generation: u32, files: &[(&str, &str)]) {
    let at = |name: &str| -> PathBuf { folder.join("kube-dns").join(name) };
    std::fs::create_dir_all(at("")).expect("a folder");
    let new = format!("..{generation}");
    std::fs::create_dir(at(&new)).expect("a folder");
    for (name, text) in files {
        std::fs::write(at(&new).join(name), text).expect("a file");
        // This link exists from the first time on.
        let _ = symlink(Path::new("..data").join(name), at(name));
    }
    symlink(&new, at("..tmp")).expect("a link");
    std::fs::rename(at("..tmp"), at("..data")).expect("a link");
}

fn upstream(address: &'static str) -> Upstream {
    Upstream::start(move |asked| asked.answer(&[&format!("{} 300 A {address}", asked.name())]))
}

/// The manifest's arguments and files, and the effect of changes.
#[test]
fn the_config_map_is_followed() {
    let (cluster, outside, stub) = (
        upstream("192.0.2.1"),
        upstream("192.0.2.2"),
        upstream("192.0.2.3"),
    );
    let upstreams = format!("[\"{}\"]", outside.address);
    let cache = NodeCache::start(cluster.address, &[("upstreamNameservers", &upstreams)]);
    assert!(
        cache
            .process
            .logged("running in node-cache's place")
            .contains("Corefile.base")
    );
    cache.await_ready();
    until("the config map", || {
        cache.first("example.org") == Some("example.org. A 192.0.2.2".into())
    });
    assert_eq!(
        cache.first("a.cluster.local"),
        Some("a.cluster.local. A 192.0.2.1".into())
    );
    assert!(
        cluster.asked("a.cluster.local").iter().all(|asked| asked.tcp),
        "force_tcp"
    );
    assert!(
        outside.asked("example.org").iter().all(|asked| !asked.tcp),
        "UDP instead, as node-cache has it"
    );

    let stubs = format!("{{\"acme.local\": [\"{}\"]}}", stub.address);
    cache.publish(&[("upstreamNameservers", &upstreams), ("stubDomains", &stubs)]);
    until("the stub domain", || {
        cache.first("a.acme.local") == Some("a.acme.local. A 192.0.2.3".into())
    });

    // Invalid JSON changes nothing, and is reported.
    cache.publish(&[
        ("upstreamNameservers", &upstreams),
        ("stubDomains", "{\"acme.local\""),
    ]);
    until("the mistake to be counted", || {
        cache.sum("dnsweir_reloads_total", &[("result", "failed")]) == 1.0
    });
    assert_eq!(cache.sum("dnsweir_config_map_errors_total", &[]), 1.0);
    assert_eq!(
        cache.first("b.acme.local"),
        Some("b.acme.local. A 192.0.2.3".into())
    );

    // The stub domain is removed: its names go to the other upstreams again.
    cache.publish(&[("upstreamNameservers", &upstreams), ("stubDomains", "{}")]);
    until("the stub domain to go", || {
        cache.first("c.acme.local") == Some("c.acme.local. A 192.0.2.2".into())
    });
}

/// At startup, too, a mistake in the config map does not affect names in the cluster.
#[test]
fn a_config_map_that_is_wrong_at_the_start_is_left_out() {
    let cluster = upstream("192.0.2.1");
    let cache = NodeCache::start(cluster.address, &[("stubDomains", "no JSON")]);
    cache.await_ready();
    until("the mistake to be counted", || {
        cache.sum("dnsweir_config_map_errors_total", &[]) > 0.0
    });
    assert_eq!(
        cache.first("a.cluster.local"),
        Some("a.cluster.local. A 192.0.2.1".into())
    );
}

/// As in CoreDNS, a file of `hosts` may come later.
#[test]
fn a_hosts_file_is_read_when_it_appears() {
    let cluster = upstream("192.0.2.1");
    // Instead of the cache, which would keep what is asked too early.
    let cache = "    cache {\n            success 9984 30\n            denial 9984 5\n    }\n";
    let hosts = "    hosts $FOLDER/hosts {\n            fallthrough\n    }\n";
    let template = TEMPLATE.replace(cache, hosts);
    assert!(template.contains(hosts), "{template}");
    let cache = NodeCache::start_with(&template, cluster.address, &[]);
    cache.await_ready();
    assert_eq!(
        cache.first("a.cluster.local"),
        Some("a.cluster.local. A 192.0.2.1".into())
    );
    let hosts = cache.folder.path().join("hosts");
    std::fs::write(hosts, "192.0.2.77 a.cluster.local\n").expect("a file");
    until("the file to be loaded", || {
        cache.first("a.cluster.local") == Some("a.cluster.local. A 192.0.2.77".into())
    });
    assert_eq!(
        cache.first("b.cluster.local"),
        Some("b.cluster.local. A 192.0.2.1".into())
    );
}

#[test]
fn a_service_that_is_not_known_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("Corefile.base");
    std::fs::write(&file, TEMPLATE).expect("a template");
    let mut command = proxy::command();
    command
        .env_remove("MY_DNS_SERVICE_HOST")
        .args([
            "-localip",
            "127.0.0.1",
            "-upstreamsvc",
            "my-dns",
            "-setupinterface=false",
            "-setupiptables=false",
        ])
        .arg(format!("-basecorefile={}", file.display()));
    let done = command.output().expect("dnsweir");
    assert_eq!(done.status.code(), Some(64));
    let shown = String::from_utf8_lossy(&done.stderr);
    for part in [
        "Corefile.base:10:15",
        "\"my-dns\" is not known",
        "MY_DNS_SERVICE_HOST",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for words in [
        &["-localip", "x"][..],
        &["-localip", "127.0.0.1", "-syncinterval", "60ms"],
        &["-localip"],
    ] {
        let done = proxy::command().args(words).output().expect("dnsweir");
        assert_eq!(done.status.code(), Some(2), "{words:?}");
    }
}
