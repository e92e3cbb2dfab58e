//! Records of a cluster, and an API server with every fault: known records stay, and new ones arrive later.

use std::net::SocketAddr;

use harness::api_server::{ApiServer, failure, reply};
use harness::certificates::Authority;
use harness::message::Message;
use harness::{Proxy, Upstream, client, until};
use serde_json::json;

/// A proxy that follows a cluster through a kubeconfig in a separate folder.
fn follow(server: &ApiServer, block: &str) -> (Proxy, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    let kubeconfig = format!("kubeconfig {file:?}");
    let proxy = Proxy::start(&format!(
        "zone \"cluster.local\" \"in-addr.arpa\" {{ kubernetes {{ {kubeconfig}; {block} }} }}"
    ));
    (proxy, folder)
}

/// The first address for a name below `zoo.svc.cluster.local`, or the rcode.
fn address(proxy: &Proxy, service: &str) -> String {
    let answer = proxy.query(&format!("{service}.zoo.svc.cluster.local."), "A");
    match answer.answers().first() {
        Some(record) => record.rsplit(' ').next().unwrap().to_owned(),
        None => answer.rcode(),
    }
}

fn await_address(proxy: &Proxy, service: &str, expected: &str) {
    until(&format!("{service} to be {expected}"), || {
        address(proxy, service) == expected
    });
}

/// Waits until a fault has occurred, and checks that nothing was lost.
fn await_failures(proxy: &Proxy) {
    let failures = |proxy: &Proxy| {
        proxy
            .metrics()
            .sum("dnsweir_kubernetes_failures_total", &[("kind", "services")])
    };
    let before = failures(proxy);
    until("the fault to be met", || failures(proxy) > before + 1.0);
    assert_eq!(address(proxy, "web"), "10.0.0.1");
}

#[test]
fn objects_become_answers() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let (proxy, _folder) = follow(&server, "ttl \"30s\"");
    let answer = proxy.query("WEB.zoo.svc.Cluster.local.", "A");
    assert_eq!(answer.answers(), ["WEB.zoo.svc.Cluster.local. A 10.0.0.1"]);
    assert_eq!(answer.ttl(), 30);
    assert!(answer.has(harness::flags::AA));
    let serial = |proxy: &Proxy| proxy.metrics().sum("dnsweir_kubernetes_serial", &[]);
    let before = serial(&proxy);
    server.put_service("api", "10.0.0.2");
    await_address(&proxy, "api", "10.0.0.2");
    assert!(serial(&proxy) > before);
    server.delete("services", "zoo/web");
    await_address(&proxy, "web", "NXDOMAIN");
    // A change without effect on answers does not change the serial.
    let before = serial(&proxy);
    let events = |proxy: &Proxy| {
        proxy
            .metrics()
            .sum("dnsweir_kubernetes_events_total", &[("kind", "services")])
    };
    let heard = events(&proxy);
    server.put_service("api", "10.0.0.2");
    until("the event", || events(&proxy) > heard);
    assert_eq!(serial(&proxy), before);
    server.put_service("more", "10.0.0.3");
    await_address(&proxy, "more", "10.0.0.3");
    let (status, page) = proxy.get("/status");
    assert!(status == 200 && page.contains("2 services"), "{page}");
}

/// `ExternalName` is resolved through the zone that owns its target, also with a cache in front.
#[test]
fn external_names_are_resolved_onward() {
    let server = ApiServer::start();
    for (name, target) in [
        ("out", "www.example"),
        ("gone", "no.example"),
        ("loop", "loop.zoo.svc.cluster.local"),
    ] {
        let spec = json!({"type": "ExternalName", "externalName": target});
        server.put("services", &format!("zoo/{name}"), json!({"spec": spec}));
    }
    let upstream = Upstream::zone(&["www.example. 60 A 192.0.2.2"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    for cache in ["", "cache;"] {
        let proxy = Proxy::start(&format!(
            "zone \"cluster.local\" {{ {cache} kubernetes {{ kubeconfig {file:?} }} }}\n\
             zone \"example\" {{ forward \"{}\" }}",
            upstream.address
        ));
        for _ in 0..2 {
            let answer = proxy.query("out.zoo.svc.cluster.local.", "A");
            let lines = [
                "out.zoo.svc.cluster.local. CNAME www.example.",
                "www.example. A 192.0.2.2",
            ];
            assert_eq!(
                (answer.rcode(), answer.answers()),
                ("NOERROR".into(), lines.map(String::from).into())
            );
            let cname = proxy.query("out.zoo.svc.cluster.local.", "CNAME");
            assert_eq!(cname.answers(), lines[..1]);
            let gone = proxy.query("gone.zoo.svc.cluster.local.", "A");
            assert_eq!((gone.rcode(), gone.answers().len()), ("NXDOMAIN".into(), 1));
            assert_eq!(
                proxy.query("loop.zoo.svc.cluster.local.", "A").rcode(),
                "SERVFAIL"
            );
        }
    }
}

/// Services of several clusters. The API server lacks their kind at first: the cluster's names do not wait
/// for it.
#[test]
fn services_of_several_clusters_are_answered() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    server.fail(|request| {
        request
            .contains("serviceimports")
            .then(|| failure(404, "NotFound", 0))
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \"cluster.local\" \"clusterset.local\" {{ kubernetes {{ kubeconfig {file:?}; wait \"0s\"; multicluster \"clusterset.local\" }} }}"
    ));
    await_address(&proxy, "web", "10.0.0.1");
    let shared = || proxy.query("shared.zoo.svc.clusterset.local.", "A");
    assert_eq!(shared().rcode(), "SERVFAIL");
    let (_, page) = proxy.get("/status");
    assert!(page.contains(" ago; none yet about serviceimports"), "{page}");
    let spec = json!({"type": "ClusterSetIP", "ips": ["10.9.0.1"], "ports": [{"port": 80}]});
    server.put("serviceimports", "zoo/shared", json!({"spec": spec}));
    let slice = |name: &str, labels: serde_json::Value, address: &str| {
        let object = json!({"metadata": {"labels": labels}, "addressType": "IPv4", "ports": [{"port": 80}],
                            "endpoints": [{"addresses": [address], "hostname": "peer-0"}]});
        server.put("endpointslices", name, object);
    };
    let spec = json!({"type": "Headless", "ports": [{"port": 80}]});
    server.put("serviceimports", "zoo/peers", json!({"spec": spec}));
    let labels = json!({"multicluster.kubernetes.io/service-name": "peers", "multicluster.kubernetes.io/source-cluster": "east"});
    slice("zoo/peers-east", labels, "10.1.0.1");
    server.recover();
    until("the imports", || shared().rcode() == "NOERROR");
    assert_eq!(
        shared().answers(),
        ["shared.zoo.svc.clusterset.local. A 10.9.0.1"]
    );
    let peer = "peer-0.east.peers.zoo.svc.clusterset.local.";
    until("the endpoints", || {
        proxy.query(peer, "A").answers() == [format!("{peer} A 10.1.0.1")]
    });
    assert!(server.count("labelselector=multicluster.kubernetes.io%2fservice-name") > 0);
    server.delete("serviceimports", "zoo/shared");
    until("the import to go", || shared().rcode() == "NXDOMAIN");
}

/// A zone for external addresses beside the cluster's, from the same watch; a load balancer's name is
/// resolved.
#[test]
fn services_are_found_from_outside() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let put = |ingress: serde_json::Value| {
        let spec = json!({"clusterIP": "10.0.0.2", "ports": [{"name": "http", "port": 80}]});
        let status = json!({"loadBalancer": {"ingress": ingress}});
        server.put("services", "zoo/front", json!({"spec": spec, "status": status}));
    };
    put(json!([{"ip": "192.0.2.1"}]));
    let upstream = Upstream::zone(&["lb.example. 60 A 192.0.2.9"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \"cluster.local\" {{ kubernetes {{ kubeconfig {file:?} }} }}\n\
         zone \"out.test\" {{ kubernetes {{ kubeconfig {file:?}; domain \"cluster.local\"; external \"out.test\"; ttl \"60s\" }} }}\n\
         zone \"example\" {{ forward \"{}\" }}",
        upstream.address
    ));
    let front = || proxy.query("front.zoo.out.test.", "A");
    assert_eq!(front().answers(), ["front.zoo.out.test. A 192.0.2.1"]);
    assert_eq!(front().ttl(), 60);
    let port = proxy.query("_http._tcp.front.zoo.out.test.", "SRV");
    assert_eq!(
        port.answers(),
        ["_http._tcp.front.zoo.out.test. SRV 0 100 80 front.zoo.out.test."]
    );
    assert_eq!(proxy.query("web.zoo.out.test.", "A").rcode(), "NXDOMAIN");
    assert_eq!(address(&proxy, "web"), "10.0.0.1");
    assert_eq!(server.count("get /api/v1/services?limit"), 1, "one list for both");
    put(json!([{"hostname": "lb.example"}]));
    until("the balancer's name", || {
        front().answers() == ["front.zoo.out.test. CNAME lb.example.", "lb.example. A 192.0.2.9"]
    });
    put(json!([]));
    until("the balancer to go", || front().rcode() == "NXDOMAIN");
    assert_eq!(address(&proxy, "front"), "10.0.0.2");
}

/// A cluster with pods of two namespaces, and an upstream.
struct Searching {
    server: ApiServer,
    upstream: Upstream,
    proxy: Proxy,
    _folder: tempfile::TempDir,
}

impl Searching {
    fn start() -> Searching {
        let server = ApiServer::start();
        server.put("namespaces", "shop", json!({}));
        server.put_service("web", "10.0.0.1");
        let upstream = Upstream::zone(&[
            ". 300 SOA ns. root. 1 2 3 4 5",
            "api.example. 60 A 192.0.2.2",
            "wiki.corp.example. 60 A 192.0.2.3",
        ]);
        put_pod(&server, "zoo/cage", "127.0.11.1");
        put_pod(&server, "shop/web", "127.0.11.2");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, server.kubeconfig("secret")).unwrap();
        let proxy = Proxy::start(&format!(
            "zone \"cluster.local\" {{ kubernetes {{ kubeconfig {file:?}; pods \"verified\"; autopath \"corp.example\" }} }}\n\
             zone \".\" {{ cache; forward \"{}\" }}",
            upstream.address
        ));
        Searching {
            server,
            upstream,
            proxy,
            _folder: folder,
        }
    }

    /// A client's answer for a name below `svc.cluster.local`.
    fn ask(&self, client: &str, name: &str) -> Message {
        let query = Message::query(&format!("{name}.svc.cluster.local."), "A");
        client::ask_from(client.parse().unwrap(), self.proxy.address, &query)
    }
}

fn put_pod(server: &ApiServer, name: &str, address: &str) {
    let object = json!({"spec": {"containers": []}, "status": {"podIP": address}});
    server.put("pods", name, object);
}

/// One answer in place of a pod's search, for the client's namespace, cached or not; other clients do not get
/// it.
#[test]
fn pods_searches_are_answered_at_once() {
    let cluster = Searching::start();
    let found = [
        "api.example.zoo.svc.cluster.local. CNAME api.example.",
        "api.example. A 192.0.2.2",
    ];
    for _ in 0..2 {
        assert_eq!(cluster.ask("127.0.11.1", "api.example.zoo").answers(), found);
        for client in ["127.0.11.2", "127.0.0.1"] {
            let other = cluster.ask(client, "api.example.zoo");
            assert_eq!(
                (other.rcode(), other.answers().len()),
                ("NXDOMAIN".into(), 0),
                "{client}"
            );
        }
        let own = cluster.ask("127.0.11.2", "api.example.shop");
        assert_eq!(own.answers()[1..], found[1..]);
    }
    assert_eq!(cluster.upstream.count("api.example"), 1, "for all");
    // The address now belongs to another pod, in another namespace.
    cluster.server.delete("pods", "zoo/cage");
    put_pod(&cluster.server, "shop/new", "127.0.11.1");
    until("the new pod", || {
        cluster.ask("127.0.11.1", "api.example.shop").rcode() == "NOERROR"
    });
    assert_eq!(cluster.ask("127.0.11.1", "api.example.zoo").rcode(), "NXDOMAIN");
}

#[test]
fn pods_searches_go_through_the_whole_list() {
    let cluster = Searching::start();
    let answers = |client: &str, name: &str| cluster.ask(client, name).answers();
    assert_eq!(
        answers("127.0.11.1", "wiki.zoo"),
        [
            "wiki.zoo.svc.cluster.local. CNAME wiki.corp.example.",
            "wiki.corp.example. A 192.0.2.3"
        ]
    );
    assert_eq!(
        answers("127.0.11.1", "web.zoo"),
        ["web.zoo.svc.cluster.local. A 10.0.0.1"]
    );
    assert_eq!(
        answers("127.0.11.2", "web.zoo.shop")[0],
        "web.zoo.shop.svc.cluster.local. CNAME web.zoo.svc.cluster.local."
    );
    assert_eq!(cluster.ask("127.0.11.1", "no.such.zoo").rcode(), "NXDOMAIN");
}

#[test]
fn what_does_not_exist_falls_through() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let upstream = Upstream::zone(&["8.8.8.8.in-addr.arpa. 60 PTR dns.example."]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \"cluster.local\" \"in-addr.arpa\" {{ cache; kubernetes {{ kubeconfig {file:?}; fallthrough \"in-addr.arpa\" }}\n\
         forward \"{}\" }}",
        upstream.address
    ));
    let names = |name: &str| proxy.query(name, "PTR").answers();
    assert_eq!(
        names("8.8.8.8.in-addr.arpa."),
        ["8.8.8.8.in-addr.arpa. PTR dns.example."]
    );
    assert_eq!(
        names("1.0.0.10.in-addr.arpa."),
        ["1.0.0.10.in-addr.arpa. PTR web.zoo.svc.cluster.local."]
    );
    assert_eq!(proxy.query("x.zoo.svc.cluster.local.", "A").rcode(), "NXDOMAIN");
}

/// While the API server is down or returns nonsense, the known records are served; then the missed changes
/// appear.
#[test]
fn what_was_known_outlives_every_fault() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let (proxy, _folder) = follow(&server, "");
    assert_eq!(address(&proxy, "web"), "10.0.0.1");
    type Fault = fn(&str) -> Option<Vec<u8>>;
    let faults: [(&str, Fault); 8] = [
        ("cut off", |_| Some(Vec::new())),
        ("not HTTP", |_| Some(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())),
        ("not JSON", |_| {
            Some(reply("200 OK", "<html>Sign in to the airport's network</html>"))
        }),
        ("other JSON", |_| {
            Some(reply("200 OK", "{\"items\": [{\"metadata\": 7}], \"type\": 1}"))
        }),
        ("half an answer", |_| {
            Some(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"items\": [".to_vec())
        }),
        ("overloaded", |_| Some(failure(429, "TooManyRequests", 1))),
        ("unauthorized", |_| Some(failure(401, "Unauthorized", 0))),
        ("forgetful", |request| {
            request.contains("watch=true").then(|| failure(410, "Expired", 0))
        }),
    ];
    for (index, (what, fault)) in faults.into_iter().enumerate() {
        println!("{what}");
        server.fail(fault);
        await_failures(&proxy);
        let (name, expected) = (format!("new{index}"), format!("10.0.1.{index}"));
        server.put_service(&name, &expected);
        server.recover();
        await_address(&proxy, &name, &expected);
        assert_eq!(address(&proxy, "web"), "10.0.0.1");
    }
}

/// A broken watch resumes where it stopped; everything is listed again only if that is too long ago.
#[test]
fn watches_are_resumed() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let (proxy, _folder) = follow(&server, "");
    let lists = || {
        proxy
            .metrics()
            .sum("dnsweir_kubernetes_lists_total", &[("kind", "services")])
    };
    server.fail(|_| Some(Vec::new()));
    await_failures(&proxy);
    server.put_service("web", "10.0.0.2");
    server.recover();
    await_address(&proxy, "web", "10.0.0.2");
    assert_eq!(lists(), 1.0);
    // Deleted while no watch was open, and no longer in the server's history.
    let failures = || {
        proxy
            .metrics()
            .sum("dnsweir_kubernetes_failures_total", &[("kind", "services")])
    };
    let before = failures();
    server.fail(|_| Some(Vec::new()));
    until("the fault to be met", || failures() > before);
    server.delete("services", "zoo/web");
    server.forget();
    server.recover();
    await_address(&proxy, "web", "NXDOMAIN");
    assert_eq!(lists(), 2.0);
}

/// A server that was restored from a backup accepts a watch from its future, and says nothing.
#[test]
fn a_restored_server_is_listed_again() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let backup = server.back_up();
    let (proxy, _folder) = follow(&server, "");
    server.put_service("web", "10.0.0.2");
    server.put_service("new", "10.0.0.3");
    await_address(&proxy, "new", "10.0.0.3");
    server.restore(backup);
    await_address(&proxy, "web", "10.0.0.1");
    await_address(&proxy, "new", "NXDOMAIN");
    // Its version is still lower than the last one before.
    server.put_service("web", "10.0.0.4");
    await_address(&proxy, "web", "10.0.0.4");
}

/// Nonsense in a watch changes nothing: everything is listed again.
#[test]
fn events_that_cannot_be_read_lose_nothing() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let (proxy, _folder) = follow(&server, "");
    let count = |proxy: &Proxy| {
        proxy
            .metrics()
            .sum("dnsweir_kubernetes_lists_total", &[("kind", "services")])
    };
    server.say(
        "services",
        json!({"type": "MODIFIED", "object": {"metadata": {"name": 7}}}),
    );
    until("another list", || count(&proxy) > 1.0);
    assert_eq!(address(&proxy, "web"), "10.0.0.1");
    server.put_service("web", "10.0.0.2");
    await_address(&proxy, "web", "10.0.0.2");
}

/// An object that is invalid in DNS is reported, and its old records stay.
#[test]
fn malformed_objects_are_named() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let (proxy, _folder) = follow(&server, "");
    let spec = json!({"clusterIP": "10.0.0.9", "ports": [{"name": "a b", "port": 80}]});
    server.put("services", "zoo/web", json!({"spec": spec}));
    server.put_service("after", "10.0.0.2");
    await_address(&proxy, "after", "10.0.0.2");
    assert_eq!(address(&proxy, "web"), "10.0.0.1");
    proxy
        .process
        .logged("zoo/web: the port \"a b\" is not valid in DNS");
    let refused = proxy
        .metrics()
        .sum("dnsweir_kubernetes_refused_objects_total", &[]);
    assert_eq!(refused, 1.0);
}

/// Another token, another address: a changed kubeconfig is read again.
#[test]
fn credentials_are_renewed() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let (proxy, folder) = follow(&server, "");
    server.fail(|request| match request.contains("bearer renewed") {
        true => None,
        false => Some(failure(401, "Unauthorized", 0)),
    });
    await_failures(&proxy);
    server.put_service("new", "10.0.0.2");
    let (next, file) = (folder.path().join("next"), folder.path().join("kubeconfig"));
    std::fs::write(&next, server.kubeconfig("renewed")).unwrap();
    std::fs::rename(next, file).unwrap();
    await_address(&proxy, "new", "10.0.0.2");
    // Known objects are not listed again.
    let lists = proxy
        .metrics()
        .sum("dnsweir_kubernetes_lists_total", &[("kind", "services")]);
    assert_eq!(lists, 1.0);
}

/// A kubeconfig that now leads to another cluster: its objects take the place of those of the one before,
/// whatever its versions.
#[test]
fn another_cluster_behind_the_same_file_is_listed() {
    let (before, after) = (ApiServer::start(), ApiServer::start());
    before.put_service("web", "10.0.0.1");
    after.put_service("api", "10.0.0.2");
    for n in 0..8 {
        after.put_service("more", &format!("10.0.1.{n}"));
    }
    after.fail(|_| Some(failure(503, "ServiceUnavailable", 0)));
    let (proxy, folder) = follow(&before, "");
    let (next, file) = (folder.path().join("next"), folder.path().join("kubeconfig"));
    std::fs::write(&next, after.kubeconfig("secret")).unwrap();
    std::fs::rename(next, file).unwrap();
    before.fail(|_| Some(Vec::new()));
    // What was known stays until everything is listed.
    until("the other cluster to be asked", || after.count("get ") > 0);
    await_failures(&proxy);
    after.recover();
    await_address(&proxy, "api", "10.0.0.2");
    await_address(&proxy, "web", "NXDOMAIN");
}

/// What a kubeconfig says about certificates holds, and is logged if it is that none is verified.
#[test]
fn certificates_are_verified_unless_the_kubeconfig_says_otherwise() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    server.present(&Authority::new().issue(&["elsewhere.example"]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let verifying = server.kubeconfig("secret").replace("http://", "https://");
    std::fs::write(&file, &verifying).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \"cluster.local\" {{ kubernetes {{ kubeconfig {file:?}; wait \"0s\" }} }}"
    ));
    proxy.process.logged("invalid peer certificate");
    let trusting = verifying.replace("\"cluster\":{", "\"cluster\":{\"insecure-skip-tls-verify\":true,");
    assert_ne!(trusting, verifying);
    std::fs::write(&file, trusting).unwrap();
    await_address(&proxy, "web", "10.0.0.1");
    proxy.process.logged("certificate is not verified");
}

/// A page of a list that would take too much memory is asked for in parts.
#[test]
fn large_pages_are_made_smaller() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    server.fail(|request| {
        let is_large = ["limit=500&", "limit=250&", "limit=500 ", "limit=250 "];
        let is_large = is_large.iter().any(|limit| request.contains(limit));
        is_large.then(|| b"HTTP/1.1 200 OK\r\ncontent-length: 70000000\r\n\r\n{".to_vec())
    });
    let (proxy, _folder) = follow(&server, "");
    await_address(&proxy, "web", "10.0.0.1");
    assert!(server.count("get /api/v1/services?limit=125") > 0);
}

/// A server certificate from a new authority is trusted once the authority's file has it.
#[test]
fn authorities_are_renewed() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let [before, after] = [Authority::new(), Authority::new()];
    server.present(&before.issue(&["127.0.0.1"]));
    let folder = tempfile::tempdir().unwrap();
    let [file, authority] = ["kubeconfig", "ca.crt"].map(|name| folder.path().join(name));
    std::fs::write(&authority, before.pem()).unwrap();
    std::fs::write(&file, server.kubeconfig_over_tls("secret", &authority)).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \"cluster.local\" \"in-addr.arpa\" {{ kubernetes {{ kubeconfig {file:?} }} }}"
    ));
    await_address(&proxy, "web", "10.0.0.1");
    server.present(&after.issue(&["127.0.0.1"]));
    await_failures(&proxy);
    server.put_service("new", "10.0.0.2");
    let next = folder.path().join("next");
    std::fs::write(&next, after.pem()).unwrap();
    std::fs::rename(next, authority).unwrap();
    await_address(&proxy, "new", "10.0.0.2");
}

/// Before the first list, queries fail instead of being denied, and the proxy is not ready, for a limited
/// time.
#[test]
fn it_waits_for_the_first_list() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    server.fail(|_| Some(failure(503, "ServiceUnavailable", 0)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    let zone =
        |block: &str| format!("zone \"cluster.local\" {{ kubernetes {{ kubeconfig {file:?}; {block} }} }}");
    let mut waiting = Proxy::launch(&zone("wait \"1h\""), &[]);
    let ready = |proxy: &Proxy| harness::proxy::try_get(SocketAddr::new(proxy.address.ip(), 9253), "/ready");
    until("the first failure", || {
        ready(&waiting).is_some_and(|(status, why)| status == 503 && why.contains("ServiceUnavailable"))
    });
    let other = Proxy::start(&zone("wait \"0s\""));
    let answer = other.query("web.zoo.svc.cluster.local.", "A");
    assert_eq!((answer.rcode(), answer.answers().len()), ("SERVFAIL".into(), 0));
    server.recover();
    waiting.await_ready();
    assert_eq!(address(&waiting, "web"), "10.0.0.1");
    await_address(&other, "web", "10.0.0.1");
}

/// A reload keeps the records, even if it changes how they are answered.
#[test]
fn reloads_keep_what_is_known() {
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let (proxy, folder) = follow(&server, "");
    server.fail(|_| Some(Vec::new()));
    let file = folder.path().join("kubeconfig");
    proxy.reload(&format!(
        "zone \"cluster.local\" {{ kubernetes {{ kubeconfig {file:?}; ttl \"7s\" }} }}"
    ));
    let answer = proxy.query("web.zoo.svc.cluster.local.", "A");
    assert_eq!(
        (answer.answers(), answer.ttl()),
        (vec!["web.zoo.svc.cluster.local. A 10.0.0.1".into()], 7)
    );
}

/// A reload to another cluster waits until its records are known: no name is missing in between.
#[test]
fn a_reload_waits_for_another_cluster() {
    let (before, after) = (ApiServer::start(), ApiServer::start());
    before.put_service("web", "10.0.0.1");
    after.put_service("web", "10.0.0.2");
    after.fail(|_| Some(failure(503, "ServiceUnavailable", 0)));
    let (proxy, folder) = follow(&before, "");
    let file = folder.path().join("other");
    std::fs::write(&file, after.kubeconfig("secret")).unwrap();
    proxy.rewrite(&format!(
        "zone \"cluster.local\" {{ kubernetes {{ kubeconfig {file:?} }} }}"
    ));
    proxy.process.signal("HUP");
    until("the other cluster to be asked", || after.count("get ") > 4);
    assert_eq!(address(&proxy, "web"), "10.0.0.1");
    after.recover();
    until("the other cluster's answer", || {
        let address = address(&proxy, "web");
        assert!(address.starts_with("10.0.0."), "{address}");
        address == "10.0.0.2"
    });
}

/// Objects beyond the memory limit are left out, and reported.
#[test]
fn memory_is_bounded() {
    let server = ApiServer::start();
    for n in 0..4000 {
        server.put_service(&format!("s{n}"), &format!("10.1.{}.{}", n / 250, n % 250));
    }
    let (proxy, _folder) = follow(&server, "memory \"1MiB\"");
    let metrics = proxy.metrics();
    assert!(metrics.sum("dnsweir_kubernetes_memory_bytes", &[]) <= f64::from(1 << 20));
    assert!(metrics.sum("dnsweir_kubernetes_refused_objects_total", &[]) > 0.0);
    proxy.process.logged("does not fit into `memory`");
}
