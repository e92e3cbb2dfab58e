//! Hosts of Istio's service entries, as reported by an API server.

use harness::api_server::ApiServer;
use harness::{Proxy, Upstream, until};
use serde_json::json;

/// An API server with these versions of the API group.
fn server(versions: &[&str]) -> ApiServer {
    let server = ApiServer::start();
    server.serve_group("networking.istio.io", versions);
    server
}

/// A proxy with the server's entries, in front of an upstream.
fn proxy(server: &ApiServer, upstream: &Upstream) -> (Proxy, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ service-entries {{ kubeconfig {file:?}; range \"240.240.0.0/16\" }}; cache; forward \"{}\" }}",
        upstream.address
    ));
    (proxy, folder)
}

fn put(server: &ApiServer, name: &str, spec: serde_json::Value, status: serde_json::Value) {
    server.put(
        "serviceentries",
        &format!("shop/{name}"),
        json!({"spec": spec, "status": status}),
    );
}

/// Hosts are answered, whichever version has them, and everything else goes to the upstream.
#[test]
fn hosts_of_service_entries_are_answered() {
    for (versions, used) in [
        (&["v1", "v1beta1", "v1alpha3"][..], "v1"),
        (&["v1alpha3", "v1"], "v1alpha3"),
        (&["v1beta1"], "v1beta1"),
    ] {
        let server = server(versions);
        put(
            &server,
            "own",
            json!({"hosts": ["api.example.com", "*.example.org"], "addresses": ["192.0.2.1"]}),
            json!({}),
        );
        let status = json!({"addresses": [{"value": "240.240.0.7", "host": "db.example.com"}]});
        let spec = json!({"hosts": ["db.example.com"], "resolution": "STATIC"});
        put(&server, "assigned", spec, status);
        let spec = json!({"hosts": ["hashed.example.com"], "resolution": "DNS"});
        put(&server, "hashed", spec, json!({}));
        let upstream = Upstream::zone(&[
            ". 300 SOA ns. root. 1 2 3 4 5",
            "api.example.com. 60 TXT other",
            "example.org. 60 A 192.0.2.9",
        ]);
        let (proxy, _folder) = proxy(&server, &upstream);
        let answers = |name: &str, qtype: &str| proxy.query(name, qtype).answers();
        assert_eq!(answers("API.example.com.", "A"), ["API.example.com. A 192.0.2.1"]);
        assert_eq!(answers("x.y.example.org.", "A"), ["x.y.example.org. A 192.0.2.1"]);
        assert_eq!(answers("db.example.com.", "A"), ["db.example.com. A 240.240.0.7"]);
        let hashed = answers("hashed.example.com.", "A");
        assert!(
            hashed[0].starts_with("hashed.example.com. A 240.240."),
            "{hashed:?}"
        );
        let other_family = proxy.query("api.example.com.", "AAAA");
        assert_eq!(
            (other_family.rcode(), other_family.answers().len()),
            ("NOERROR".into(), 0)
        );
        // Names that are no hosts, and queries that no entry answers.
        assert_eq!(answers("example.org.", "A"), ["example.org. A 192.0.2.9"]);
        assert_eq!(answers("api.example.com.", "TXT").len(), 1);
        assert_eq!(proxy.query("www.example.com.", "A").rcode(), "NXDOMAIN");
        let listed = format!("/apis/networking.istio.io/{used}/serviceentries");
        assert!(server.count(&listed) > 0, "{listed}");
        put(
            &server,
            "own",
            json!({"hosts": ["api.example.com"], "addresses": ["192.0.2.2"]}),
            json!({}),
        );
        until("the change", || {
            answers("api.example.com.", "A") == ["api.example.com. A 192.0.2.2"]
        });
        server.delete("serviceentries", "shop/hashed");
        until("the entry to go", || {
            proxy.query("hashed.example.com.", "A").rcode() == "NXDOMAIN"
        });
    }
}

/// Other proxies give a host the same address. Of two hosts with the same one, the second is reported and
/// counted.
#[test]
fn hashed_addresses_are_the_same_everywhere() {
    let server = server(&["v1"]);
    let hosts: Vec<String> = (0..700).map(|number| format!("h{number}.example.com")).collect();
    put(
        &server,
        "many",
        json!({"hosts": hosts, "resolution": "DNS"}),
        json!({}),
    );
    let upstream = Upstream::zone(&[". 300 SOA ns. root. 1 2 3 4 5"]);
    let proxies = [proxy(&server, &upstream), proxy(&server, &upstream)];
    let collisions = |proxy: &Proxy| proxy.metrics().sum("dnsweir_service_entries_collisions", &[]);
    let without = |proxy: &Proxy| {
        let all = hosts.iter().map(|host| proxy.query(host, "A").answers());
        all.collect::<Vec<_>>()
    };
    let [first, second] = proxies.each_ref().map(|(proxy, _)| without(proxy));
    assert_eq!(first, second);
    let missing = first.iter().filter(|answers| answers.is_empty()).count();
    assert!(missing > 0, "of 700 hosts some meet");
    assert_eq!(collisions(&proxies[0].0), missing as f64);
    proxies[0]
        .0
        .process
        .logged("of shop/many has no address, because 240.240.");
}

/// In a cluster without Istio, the upstream answers the names, and the proxy reports what is missing.
#[test]
fn without_istio_everything_is_left_to_others() {
    let server = server(&[]);
    let upstream = Upstream::zone(&["www.example. 60 A 192.0.2.9"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ service-entries {{ kubeconfig {file:?}; wait \"0s\" }}; forward \"{}\" }}",
        upstream.address
    ));
    assert_eq!(
        proxy.query("www.example.", "A").answers(),
        ["www.example. A 192.0.2.9"]
    );
    until("the problem to be told", || {
        proxy
            .get("/status")
            .1
            .contains("no networking.istio.io in a supported version")
    });
}

/// Objects of one namespace affect all clients' names, so `check` warns about a file that does not select
/// namespaces.
#[test]
fn check_says_that_every_namespace_counts() {
    let server = server(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, file) = (
        folder.path().join("kubeconfig"),
        folder.path().join("dnsweir.kdl"),
    );
    std::fs::write(&kubeconfig, server.kubeconfig("secret")).unwrap();
    let said = |whose: &str| {
        let text = format!(
            "listen \"127.0.0.1\"\nzone \".\" {{ service-entries {{ kubeconfig {kubeconfig:?}; {whose} }}; forward \"192.0.2.1\" }}\n"
        );
        std::fs::write(&file, text).unwrap();
        let output = harness::proxy::check(&file);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let warning = "`service-entries` takes objects of every namespace";
    assert!(said("").contains(warning), "{}", said(""));
    assert!(!said("namespaces \"istio-system\"").contains(warning));
}
