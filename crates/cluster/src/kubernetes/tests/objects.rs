//! Valid and invalid objects of the API server.

use super::super::objects::{dashed, undashed};
use super::*;

fn service(object: Value) -> Result<(), String> {
    let read = Interest::default().service(serde_json::from_value(object).unwrap());
    read.map(|_| ()).map_err(|malformed| malformed.to_string())
}

#[test]
fn what_is_malformed_is_named() {
    let named = |name: &str| json!({"metadata": {"name": name, "namespace": "zoo"}});
    let long = "a".repeat(64);
    for (object, expected) in [
        (named("web"), None),
        (named("Web_1"), None),
        (named(""), Some("the name \"\" is not valid in DNS")),
        (named("a.b"), Some("the name \"a.b\" is not valid in DNS")),
        (named(&long), Some("is not valid in DNS")),
        (
            json!({"metadata": {"name": "web"}}),
            Some("the namespace \"\" is not valid in DNS"),
        ),
        (
            json!({"metadata": {"name": "w", "namespace": "zoo"}, "spec": {"ports": [{"name": "a b", "port": 1}]}}),
            Some("the port \"a b\" is not valid in DNS"),
        ),
        (
            json!({"metadata": {"name": "w", "namespace": "zoo"},
                   "spec": {"type": "ExternalName", "externalName": "a..b"}}),
            Some("the external name \"a..b\" is not valid in DNS"),
        ),
        (
            json!({"metadata": {"name": "w", "namespace": "zoo"}, "spec": {"type": "ExternalName"}}),
            Some("the external name \"\" is not valid in DNS"),
        ),
    ] {
        match (service(object.clone()), expected) {
            (Ok(()), None) => {}
            (Err(problem), Some(expected)) if problem.contains(expected) => {}
            (found, _) => panic!("{object}: {found:?}"),
        }
    }
}

#[test]
fn addresses_are_labels_and_back() {
    for (address, label) in [
        ("10.0.0.1", "10-0-0-1"),
        ("fd00::1", "fd00--1"),
        ("fd00::", "fd00--0"),
        ("::1", "--1"),
        ("2001:db8:1:2:3:4:5:6", "2001-db8-1-2-3-4-5-6"),
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(*dashed(address), *label.as_bytes());
        assert_eq!(undashed(label.as_bytes()), Some(address), "{label}");
    }
    for label in [
        "",
        "a",
        "1-2-3",
        "1-2-3-256",
        "01-2-3-4",
        "1-2-3-4-5",
        "1:2:3:4:5:6:7:8",
        "\u{fffd}",
    ] {
        assert_eq!(undashed(label.as_bytes()), None, "{label}");
    }
}

/// A pod keeps its address until it is gone.
#[test]
fn a_terminating_pod_is_as_before() {
    let read = |object| Interest::default().pod(serde_json::from_value(object).unwrap());
    let metadata = json!({"name": "p", "namespace": "zoo", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    let status = json!({"podIP": "10.0.0.1"});
    assert_eq!(
        read(json!({"metadata": metadata, "status": status})),
        Ok(Reading::Unchanged)
    );
    let metadata = json!({"name": "p", "namespace": "zoo"});
    assert_eq!(read(json!({"metadata": metadata})), Ok(Reading::Nothing));
}

/// Only configured namespaces, and only slices of a service.
#[test]
fn the_rest_is_of_no_interest() {
    let interest = Interest {
        namespaces: vec!["zoo".into()],
        ..Interest::default()
    };
    let slice = |namespace: &str, labels: Value| {
        let metadata = json!({"name": "s", "namespace": namespace, "labels": labels});
        let object = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []});
        interest.slice(serde_json::from_value(object).unwrap()).unwrap()
    };
    let of_web = json!({"kubernetes.io/service-name": "web"});
    assert_eq!(slice("moon", of_web.clone()), Reading::Nothing);
    assert_eq!(slice("zoo", json!({})), Reading::Nothing);
    assert!(matches!(slice("zoo", of_web), Reading::Present(_)));
}

/// Anyone who may write in a namespace can create this: what exceeds the limits is cut, and reported by name.
#[test]
fn a_wide_slice_is_cut_and_reported() {
    let ports: Vec<Value> = (1..=20_000)
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    let endpoints: Vec<Value> = (0..1000)
        .map(|at| {
            let addresses: Vec<String> = (0..10)
                .map(|host| format!("10.{}.{}.{host}", at >> 8, at & 255))
                .collect();
            json!({"addresses": addresses})
        })
        .collect();
    let mut zoo = Zoo::new(config());
    zoo.service("web", json!({"clusterIP": "None"}));
    zoo.slice("web", json!(ports), json!(endpoints));
    assert_eq!(
        zoo.index.refused,
        ["zoo/web-1: 19000 of 20000 ports and 5000 of 10000 addresses are left out"]
    );
    for (qtype, most) in [(rtype::A, 4093), (rtype::SRV, 2000)] {
        let Resolution::Answer { answer, .. } =
            zoo.resolve("cluster.local", "web.zoo.svc.cluster.local", qtype)
        else {
            panic!("{qtype}");
        };
        assert!(
            (100..=most).contains(&answer.answer_count()),
            "{}",
            answer.answer_count()
        );
        assert_eq!(answer.message[2] & 2, 2, "{qtype} is truncated");
    }
    // Every kept port is found by its name.
    let named = zoo.resolve(
        "cluster.local",
        "_p1000._tcp.web.zoo.svc.cluster.local",
        rtype::SRV,
    );
    let Resolution::Answer { answer, .. } = named else {
        panic!("a port");
    };
    assert!(answer.answer_count() > 500);
    // A datagram holds less than that: writing stops there.
    zoo.room = 512;
    let Resolution::Answer { answer, .. } =
        zoo.resolve("cluster.local", "web.zoo.svc.cluster.local", rtype::A)
    else {
        panic!("addresses");
    };
    assert!(answer.message.len() <= 512, "{}", answer.message.len());
    assert_eq!(answer.message[2] & 2, 2, "it is truncated");
}

/// A query looks through all slices of a service.
#[test]
fn slices_of_a_service_are_bounded() {
    let mut zoo = Zoo::new(config());
    zoo.service("web", json!({"clusterIP": "None"}));
    for at in 0..1001 {
        zoo.slice(
            "web",
            json!([]),
            json!([{"addresses": [format!("10.0.{}.{}", at >> 8, at & 255)]}]),
        );
    }
    assert_eq!(
        zoo.index.refused,
        ["web.zoo. has more than 1000 slices or 10000 ports in them: one is left out"]
    );
}
