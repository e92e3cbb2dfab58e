//! Multi-cluster services.

use super::super::imports::ServiceImport;
use super::*;

/// Multi-cluster services beside those of the zoo.
fn several() -> Zoo {
    let mut zoo = zoo(config::Kubernetes {
        multicluster: vec!["clusterset.local.".into()],
        pods: Pods::Insecure,
        ..config()
    });
    zoo.index.imports_complete = true;
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    for (name, spec) in [
        (
            "shared",
            json!({"type": "ClusterSetIP", "ips": ["10.112.0.1", "fd00::70"], "ports": ports}),
        ),
        ("waiting", json!({"type": "ClusterSetIP", "ports": ports})),
        ("peers", json!({"type": "Headless", "ports": ports})),
    ] {
        let object = json!({"metadata": {"name": name, "namespace": "zoo"}, "spec": spec});
        zoo.add(Interest::import, object);
    }
    for (name, cluster, address) in [("peer-0", "east", "10.1.0.1"), ("peer-0", "west", "10.2.0.1")] {
        let labels = json!({
            "multicluster.kubernetes.io/service-name": "peers",
            "multicluster.kubernetes.io/source-cluster": cluster,
        });
        zoo.add(
            Interest::imported_slice,
            json!({"metadata": {"name": format!("peers-{cluster}"), "namespace": "zoo", "labels": labels}, "addressType": "IPv4",
                   "ports": ports, "endpoints": [{"addresses": [address], "hostname": name}]}),
        );
    }
    zoo
}

fn check(zoo: &Zoo, rows: &[(&str, u16, &[&str])]) {
    for (name, qtype, expected) in rows {
        let asked = format!("{name}.clusterset.local");
        assert_eq!(
            zoo.ask_in("clusterset.local.", &asked, *qtype),
            *expected,
            "{name} {qtype}"
        );
    }
}

#[test]
fn imported_services_have_addresses_and_ports() {
    let zoo = several();
    check(
        &zoo,
        &[
            (
                "shared.zoo.svc",
                rtype::A,
                &["shared.zoo.svc.clusterset.local. 5 IN A 10.112.0.1"],
            ),
            (
                "shared.zoo.svc",
                rtype::AAAA,
                &["shared.zoo.svc.clusterset.local. 5 IN AAAA fd00::70"],
            ),
            (
                "_http._tcp.shared.zoo.svc",
                rtype::SRV,
                &[
                    "_http._tcp.shared.zoo.svc.clusterset.local. 5 IN SRV 0 50 80 shared.zoo.svc.clusterset.local.",
                    "+ shared.zoo.svc.clusterset.local. 5 IN A 10.112.0.1",
                    "+ shared.zoo.svc.clusterset.local. 5 IN AAAA fd00::70",
                ],
            ),
            ("_tcp.shared.zoo.svc", rtype::SRV, &["NODATA"]),
            ("waiting.zoo.svc", rtype::A, &["NODATA"]),
            // A service of this cluster only, a pod, and names that do not exist.
            ("web.zoo.svc", rtype::A, &["NXDOMAIN"]),
            ("10-244-1-1.zoo.pod", rtype::A, &["NXDOMAIN"]),
            ("shared.farm.svc", rtype::A, &["NXDOMAIN"]),
            ("zoo.svc", rtype::A, &["NODATA"]),
        ],
    );
    assert_eq!(
        zoo.ask("shared.zoo.svc", rtype::A),
        ["NXDOMAIN"],
        "it has no name in this cluster"
    );
}

/// Endpoints in different clusters may have the same hostname.
#[test]
fn endpoints_are_told_apart_by_their_clusters() {
    check(
        &several(),
        &[
            (
                "peers.zoo.svc",
                rtype::A,
                &[
                    "peers.zoo.svc.clusterset.local. 5 IN A 10.1.0.1",
                    "peers.zoo.svc.clusterset.local. 5 IN A 10.2.0.1",
                ],
            ),
            (
                "peer-0.west.peers.zoo.svc",
                rtype::A,
                &["peer-0.west.peers.zoo.svc.clusterset.local. 5 IN A 10.2.0.1"],
            ),
            (
                "_http._tcp.peers.zoo.svc",
                rtype::SRV,
                &[
                    "_http._tcp.peers.zoo.svc.clusterset.local. 5 IN SRV 0 50 80 peer-0.east.peers.zoo.svc.clusterset.local.",
                    "_http._tcp.peers.zoo.svc.clusterset.local. 5 IN SRV 0 50 80 peer-0.west.peers.zoo.svc.clusterset.local.",
                    "+ peer-0.east.peers.zoo.svc.clusterset.local. 5 IN A 10.1.0.1",
                    "+ peer-0.west.peers.zoo.svc.clusterset.local. 5 IN A 10.2.0.1",
                ],
            ),
            ("east.peers.zoo.svc", rtype::A, &["NODATA"]),
            ("st.peers.zoo.svc", rtype::A, &["NXDOMAIN"]),
            ("peer-0.peers.zoo.svc", rtype::A, &["NXDOMAIN"]),
            ("peer-0.north.peers.zoo.svc", rtype::A, &["NXDOMAIN"]),
            ("x.peer-0.west.peers.zoo.svc", rtype::A, &["NXDOMAIN"]),
        ],
    );
}

#[test]
fn the_domain_has_a_server() {
    let mut zoo = several();
    zoo.hosts = vec!["10.244.0.9".parse().unwrap()];
    assert_eq!(
        zoo.ask_in("clusterset.local.", "clusterset.local", rtype::NS),
        [
            "clusterset.local. 5 IN NS ns.dns.clusterset.local.",
            "+ ns.dns.clusterset.local. 5 IN A 10.96.0.10",
            "+ ns.dns.clusterset.local. 5 IN AAAA fd00::10",
        ]
    );
    check(
        &zoo,
        &[(
            "ns.dns",
            rtype::A,
            &["ns.dns.clusterset.local. 5 IN A 10.96.0.10"],
        )],
    );
}

/// The cluster's own names do not wait for kinds of objects that it may lack.
#[test]
fn what_is_not_known_yet_is_no_denial() {
    let mut zoo = several();
    zoo.index.imports_complete = false;
    let failed = zoo.resolve("clusterset.local.", "shared.zoo.svc.clusterset.local.", rtype::A);
    assert!(matches!(failed, Resolution::Failed { local: true, .. }));
    assert_eq!(zoo.ask("single.zoo.svc", rtype::AAAA), ["NODATA"]);
}

#[test]
fn imported_objects_come_and_go() {
    let mut index = Index::default();
    let object = json!({"metadata": {"name": "shared", "namespace": "zoo"}, "spec": {"ips": ["10.112.0.1"]}});
    let read = |object: &Value| -> Result<_, Malformed> {
        let object: ServiceImport = serde_json::from_value(object.clone()).unwrap();
        Interest::default().import(object)
    };
    let Ok(Reading::Present(import)) = read(&object) else {
        panic!("{:?}", read(&object))
    };
    let import = Arc::new(import);
    import.enter(&mut index);
    assert!(index.import(b"\x06shared\x03zoo").is_some());
    import.leave(&mut index);
    assert!(index.import(b"\x06shared\x03zoo").is_none());
    let nameless = json!({"metadata": {"namespace": "zoo"}});
    assert_eq!(
        read(&nameless).unwrap_err().to_string(),
        "the name \"\" is not valid in DNS"
    );
    let elsewhere = Interest {
        namespaces: vec!["farm".into()],
        ..Interest::default()
    };
    let object = serde_json::from_value(object).unwrap();
    assert_eq!(elsewhere.import(object).unwrap(), Reading::Nothing);
}
