//! `search-path`: one answer instead of a search.

use std::collections::BTreeSet;

use super::{documented, example};
use crate::harness::namespace::Namespace;
use crate::harness::pods::{Cluster, put_pod};
use crate::harness::process::Process;
use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, Proxy, Upstream, client, forward_once, needs, proxy, tools, until};

/// The cluster's DNS server, and the public one.
struct Servers {
    cluster: Upstream,
    outside: Upstream,
}

impl Servers {
    fn start() -> Servers {
        Servers {
            cluster: Upstream::zone(&[
                "cluster.local. 30 SOA ns.cluster.local. root.cluster.local. 1 2 3 4 5",
                "db.shop.svc.cluster.local. 5 A 10.96.1.1",
                "db.prod.svc.cluster.local. 5 A 10.96.1.2",
                "shop-0.db.shop.svc.cluster.local. 5 A 10.244.1.2",
            ]),
            outside: Upstream::zone(&[
                ". 300 SOA ns. root. 1 2 3 4 5",
                "api.example.com. 300 A 192.0.2.1",
                "wiki.eu.corp.example. 300 A 192.0.2.2",
                "www.example.com. 300 CNAME web.example.com.",
                "web.example.com. 300 A 192.0.2.3",
            ]),
        }
    }

    fn proxy(&self, config: &str) -> Proxy {
        Proxy::start(&format!(
            "filter \"f\" {{ module \"{}\"; limits time=\"1s\"; config {{ {config} }} }}\n\
             zone \"cluster.local\" {{ use \"f\"; cache; {} }}\nzone \".\" {{ cache; {} }}",
            example("search-path").display(),
            forward_once(self.cluster.address),
            forward_once(self.outside.address)
        ))
    }
}

#[test]
fn the_documented_configuration_searches_inside() {
    let servers = Servers::start();
    let cluster = servers.cluster.address.to_string();
    let replaced = [("10.96.0.11", cluster.as_str())];
    let proxy = Proxy::start(&documented("search-path", servers.outside.address, &replaced));
    // Twice: afterwards, the cache has each name separately.
    for _ in 0..2 {
        assert_eq!(
            proxy
                .query("api.example.com.shop.svc.cluster.local", "A")
                .answers(),
            [
                "api.example.com.shop.svc.cluster.local. CNAME api.example.com.",
                "api.example.com. A 192.0.2.1"
            ]
        );
    }
    for name in [
        "api.example.com.shop.svc.cluster.local",
        "api.example.com.svc.cluster.local",
        "api.example.com.cluster.local",
    ] {
        assert_eq!(servers.cluster.count(name), 1, "{name}");
    }
    assert_eq!(servers.outside.count("api.example.com"), 1);
    // The node's search list.
    assert_eq!(
        proxy.query("wiki.eu.shop.svc.cluster.local", "A").answers(),
        [
            "wiki.eu.shop.svc.cluster.local. CNAME wiki.eu.corp.example.",
            "wiki.eu.corp.example. A 192.0.2.2"
        ]
    );
}

#[test]
fn the_first_name_that_exists_is_the_answer() {
    let servers = Servers::start();
    let proxy = servers.proxy("cluster \"cluster.local\"; search \"eu.corp.example\"; dots 1");
    // A service of another namespace.
    assert_eq!(
        proxy.query("db.prod.shop.svc.cluster.local", "A").answers(),
        [
            "db.prod.shop.svc.cluster.local. CNAME db.prod.svc.cluster.local.",
            "db.prod.svc.cluster.local. A 10.96.1.2"
        ]
    );
    // It exists without AAAA: a client that asks for both gets both from one name.
    let empty = proxy.query("db.prod.shop.svc.cluster.local", "AAAA");
    assert_eq!(
        empty.answers(),
        ["db.prod.shop.svc.cluster.local. CNAME db.prod.svc.cluster.local."]
    );
    assert_eq!(empty.rcode(), "NOERROR");
    assert_eq!(empty.authority.len(), 1, "{empty}");
    for name in ["db.prod.cluster.local", "db.prod.eu.corp.example", "db.prod"] {
        assert_eq!(
            servers.cluster.count(name) + servers.outside.count(name),
            0,
            "{name}"
        );
    }
    // The first name itself needs no alias.
    assert_eq!(
        proxy.query("shop-0.db.shop.svc.cluster.local", "A").answers(),
        ["shop-0.db.shop.svc.cluster.local. A 10.244.1.2"]
    );
    assert_eq!(
        proxy.query("db.shop.svc.cluster.local", "A").answers(),
        ["db.shop.svc.cluster.local. A 10.96.1.1"]
    );
    // An alias in the answer is followed.
    assert_eq!(
        proxy
            .query("www.example.com.shop.svc.cluster.local", "A")
            .answers(),
        [
            "www.example.com.shop.svc.cluster.local. CNAME www.example.com.",
            "www.example.com. CNAME web.example.com.",
            "web.example.com. A 192.0.2.3"
        ]
    );
    // A query for CNAME gets only the alias.
    assert_eq!(
        proxy
            .query("api.example.com.shop.svc.cluster.local", "CNAME")
            .answers(),
        ["api.example.com.shop.svc.cluster.local. CNAME api.example.com."]
    );
}

/// Searches only if the name is the first of the client's own search list, whichever client asked before.
#[test]
fn a_pod_gets_its_own_search_only() {
    let servers = Servers::start();
    let text = format!(
        "pods {{ node \"worker-1\" }}\n\
         filter \"f\" {{ module \"{}\"; limits time=\"1s\"; config {{ own; dots 0 }} }}\n\
         zone \"cluster.local\" {{ use \"f\"; cache; {} }}\nzone \".\" {{ cache; {} }}",
        example("search-path").display(),
        forward_once(servers.cluster.address),
        forward_once(servers.outside.address)
    );
    let cluster = Cluster::start(&text, |server| {
        put_pod(server, "shop/web", "127.0.9.1", 1);
        put_pod(server, "bank/api", "127.0.9.2", 2);
    });
    let asked = |client: &str, namespace: &str| {
        let answer = cluster.ask(client, &format!("api.example.com.{namespace}.svc.cluster.local"));
        (answer.rcode(), answer.answers().len())
    };
    let (found, none) = (("NOERROR".to_owned(), 2), ("NXDOMAIN".to_owned(), 0));
    for _ in 0..2 {
        assert_eq!(asked("127.0.9.1", "shop"), found);
        assert_eq!(asked("127.0.9.2", "shop"), none);
        assert_eq!(asked("127.0.9.2", "bank"), found);
        assert_eq!(asked("127.0.9.1", "bank"), none);
        assert_eq!(asked("127.0.0.1", "shop"), none, "the host");
    }
}

/// The alias shows which name is denied (RFC 2308 section 2.1, RFC 6604).
#[test]
fn what_exists_nowhere_does_not_exist() {
    let servers = Servers::start();
    let proxy = servers.proxy("");
    let answer = proxy.query("nowhere.test.shop.svc.cluster.local", "A");
    assert_eq!(answer.rcode(), "NXDOMAIN", "{answer}");
    assert_eq!(
        answer.answers(),
        ["nowhere.test.shop.svc.cluster.local. CNAME nowhere.test."]
    );
    assert_eq!(answer.authority[0].name, ".", "{answer}");
    // A full name of the cluster is not searched for elsewhere.
    let answer = proxy.query("gone.shop.svc.cluster.local", "A");
    assert_eq!(
        (answer.rcode().as_str(), answer.answers.len()),
        ("NXDOMAIN", 0),
        "{answer}"
    );
    assert_eq!(servers.outside.count("gone"), 0);
}

/// Pods with the same query at the same time cause one search.
#[test]
fn those_who_ask_together_search_together() {
    const CLIENTS: usize = 20;
    // Another worker may have missed the cache just before the answer arrived.
    const MOST: usize = 4;
    let servers = Servers::start();
    let gate = Gate::default();
    let behind = gate.clone();
    servers.cluster.becomes(move |asked| {
        let denial = asked.denial(
            "NXDOMAIN",
            Some("cluster.local. 30 SOA ns.cluster.local. root.cluster.local. 1 2 3 4 5"),
        );
        Reply::Behind(behind.clone(), Box::new(denial))
    });
    let proxy = servers.proxy("");
    let query = Message::query("api.example.com.shop.svc.cluster.local", "A");
    let sockets: Vec<_> = (0..CLIENTS).map(|_| client::socket(proxy.address)).collect();
    for socket in &sockets {
        socket.send(&query.encode()).expect("a sent query");
    }
    // Their arrival is not enough: a query that missed the cache, and has not joined a search yet, starts its
    // own.
    proxy.await_metric(
        "dnsweir_cache_coalesced_total",
        &[("zone", "cluster.local.")],
        (CLIENTS - 1) as f64,
    );
    gate.open();
    for socket in &sockets {
        let answer = Message::decode(&client::receive(socket)).expect("a whole message");
        assert_eq!(answer.answers.len(), 2, "{answer}");
    }
    for name in [
        "api.example.com.shop.svc",
        "api.example.com.svc",
        "api.example.com",
    ] {
        let asked = servers.cluster.count(&format!("{name}.cluster.local"));
        assert!((1..=MOST).contains(&asked), "{name}: {asked}");
    }
    let asked = servers.outside.count("api.example.com");
    assert!((1..=MOST).contains(&asked), "{asked}");
}

/// It is then unknown whether the name exists: to continue could return another name's answer.
#[test]
fn a_failure_ends_the_search() {
    let servers = Servers::start();
    servers.cluster.becomes(|asked| asked.denial("SERVFAIL", None));
    let proxy = servers.proxy("");
    let answer = proxy.query("api.example.com.shop.svc.cluster.local", "A");
    assert_eq!(
        (answer.rcode().as_str(), answer.answers.len()),
        ("SERVFAIL", 0),
        "{answer}"
    );
    assert_eq!(servers.outside.count("api.example.com"), 0);
}

/// What a pod with `ndots:5` sends for an external name, using glibc's own resolver.
#[test]
fn getaddrinfo_sends_a_fifth_of_its_queries() {
    if !needs(&["root", "ip", "nsenter", "getent"]) {
        return;
    }
    let (plain, found) = getaddrinfo("");
    assert_eq!(
        plain,
        [
            "api.example.com.shop.svc.cluster.local.",
            "api.example.com.svc.cluster.local.",
            "api.example.com.cluster.local.",
            "api.example.com.eu.corp.example.",
            "api.example.com.",
        ]
        .map(|name| [format!("A {name}"), format!("AAAA {name}")])
        .as_flattened()
    );
    let (shortened, same) = getaddrinfo("use \"search\"");
    let first = "api.example.com.shop.svc.cluster.local.";
    assert_eq!(shortened, [format!("A {first}"), format!("AAAA {first}")]);
    assert_eq!(found, same);
    assert_eq!(
        found,
        BTreeSet::from(["192.0.2.1".to_owned(), "2001:db8::1".to_owned()])
    );
}

/// The queries of getaddrinfo to a proxy whose cluster zone has this stage, sorted by round, and its result.
fn getaddrinfo(stage: &str) -> (Vec<String>, BTreeSet<String>) {
    let network = Namespace::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let resolv_conf = "nameserver 127.0.0.1\noptions ndots:5\n\
        search shop.svc.cluster.local svc.cluster.local cluster.local eu.corp.example\n";
    network.replace("/etc/resolv.conf", &write("resolv.conf", resolv_conf));
    network.replace("/etc/nsswitch.conf", &write("nsswitch.conf", "hosts: dns\n"));
    let search = if stage.is_empty() {
        String::new()
    } else {
        let module = example("search-path");
        format!(
            "filter \"search\" {{ module \"{}\"; limits time=\"1s\"; config {{ search \"eu.corp.example\" }} }}\n",
            module.display()
        )
    };
    let configuration = format!(
        "listen \"127.0.0.1\"\nworkers 1\n{search}\
         filter \"log\" {{ module \"builtin:log\"; limits time=\"1s\"; config {{ format \"{{type}} {{name}}\" }} }}\n\
         filter \"cluster\" {{ module \"builtin:hosts\"; limits time=\"1s\"; config {{ zone \"cluster.local\" }} }}\n\
         filter \"outside\" {{\n  module \"builtin:hosts\"\n  limits time=\"1s\"\n  config {{\n    zone \".\"\n\
         host \"api.example.com\" \"192.0.2.1\" \"2001:db8::1\"\n  }}\n}}\n\
         zone \"cluster.local\" {{\n  use \"log\"\n  {stage}\n  use \"cluster\"\n}}\n\
         zone \".\" {{ use \"log\"; use \"outside\" }}\n"
    );
    let file = write("dnsweir.kdl", &configuration);
    let mut process = Process::start(proxy::command_in(&network).arg("run").arg("--config").arg(&file));
    until("the proxy to answer", || {
        assert!(process.running(), "the proxy ended: {:#?}", process.stderr());
        let mut probe = network.tool("getent");
        probe.args(["ahosts", "api.example.com."]);
        probe.output().is_ok_and(|output| output.status.success())
    });
    let text = tools::output(network.tool("getent").args(["ahosts", "api.example.com"]));
    // Its line in the log follows all lines of earlier queries.
    let mut end = network.tool("getent");
    end.args(["ahosts", "end.test."]).output().expect("getent");
    process.printed("the last query", |line| line.ends_with(" end.test."));
    let mut asked: Vec<String> = process
        .stdout()
        .iter()
        .skip_while(|line| !line.ends_with("shop.svc.cluster.local."))
        .take_while(|line| !line.ends_with(" end.test."))
        .cloned()
        .collect();
    // glibc sends A and AAAA at the same time; the order of the answers is random.
    asked.chunks_mut(2).for_each(<[String]>::sort);
    let found = text
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    (asked, found)
}
