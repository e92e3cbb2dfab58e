//! Services by their addresses outside the cluster.

use super::*;

const A: u16 = rtype::A;
const AAAA: u16 = rtype::AAAA;
const SRV: u16 = rtype::SRV;

/// Services with outside addresses, and some without.
fn outside(headless: bool) -> Zoo {
    let mut zoo = zoo(config::Kubernetes {
        external: Some(config::External {
            zones: vec!["example.org.".into()],
            headless,
            apex: "dns".into(),
        }),
        ..config()
    });
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]);
    for (name, spec, status) in [
        (
            "front",
            json!({"clusterIP": "10.96.0.20", "externalIPs": ["192.0.2.1"], "ports": ports}),
            json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"ip": "2001:db8::2"}, {"ip": "192.0.2.1"}]}}),
        ),
        (
            "named",
            json!({"clusterIP": "10.96.0.21", "ports": ports}),
            json!({"loadBalancer": {"ingress": [{"hostname": "Lb.example.com"}, {"hostname": "b.example.com"}]}}),
        ),
        (
            "both",
            json!({"clusterIP": "10.96.0.22", "ports": ports}),
            json!({"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "192.0.2.3"}]}}),
        ),
        // A headless one with its own address, as in CoreDNS's documentation.
        (
            "lone",
            json!({"clusterIPs": ["None"], "externalIPs": ["192.0.2.4"]}),
            json!({}),
        ),
    ] {
        let object = json!({"metadata": {"name": name, "namespace": "zoo"}, "spec": spec, "status": status});
        zoo.add(Interest::service, object);
    }
    zoo
}

fn check(zoo: &Zoo, rows: &[(&str, u16, &[&str])]) {
    for (name, qtype, expected) in rows {
        let name = match *name {
            "@" => "example.org".to_owned(),
            name => format!("{name}.example.org"),
        };
        assert_eq!(
            zoo.ask_in("example.org.", &name, *qtype),
            *expected,
            "{name} {qtype}"
        );
    }
}

#[test]
fn services_have_their_outside_addresses() {
    check(
        &outside(false),
        &[
            (
                "front.zoo",
                A,
                &[
                    "front.zoo.example.org. 5 IN A 192.0.2.1",
                    "front.zoo.example.org. 5 IN A 192.0.2.2",
                ],
            ),
            (
                "front.zoo",
                AAAA,
                &["front.zoo.example.org. 5 IN AAAA 2001:db8::2"],
            ),
            ("front.zoo", rtype::TXT, &["NODATA"]),
            ("lone.zoo", A, &["lone.zoo.example.org. 5 IN A 192.0.2.4"]),
            ("lone.zoo", SRV, &["NODATA"]),
            ("both.zoo", A, &["both.zoo.example.org. 5 IN A 192.0.2.3"]),
            ("zoo", A, &["NODATA"]),
            // Services without outside addresses, and endpoints, have no name here.
            ("web.zoo", A, &["NXDOMAIN"]),
            ("peers.zoo", A, &["NXDOMAIN"]),
            ("peer-0.peers.zoo", A, &["NXDOMAIN"]),
            ("any.front.zoo", A, &["NXDOMAIN"]),
            ("front.zoo.svc", A, &["NXDOMAIN"]),
            ("front.farm", A, &["NXDOMAIN"]),
            ("x._http._tcp.front.zoo", A, &["NXDOMAIN"]),
        ],
    );
}

#[test]
fn ports_have_names() {
    check(
        &outside(false),
        &[
            (
                "_http._tcp.front.zoo",
                SRV,
                &[
                    "_http._tcp.front.zoo.example.org. 5 IN SRV 0 33 80 front.zoo.example.org.",
                    "+ front.zoo.example.org. 5 IN A 192.0.2.1",
                    "+ front.zoo.example.org. 5 IN A 192.0.2.2",
                    "+ front.zoo.example.org. 5 IN AAAA 2001:db8::2",
                ],
            ),
            ("_tcp.front.zoo", SRV, &["NODATA"]),
            ("_udp.front.zoo", SRV, &["NXDOMAIN"]),
            ("_dns._tcp.front.zoo", SRV, &["NXDOMAIN"]),
        ],
    );
}

/// A load balancer with a name: that name is the answer.
#[test]
fn a_balancers_name_leads_on() {
    check(
        &outside(false),
        &[
            ("named.zoo", A, &["alias of lb.example.com. for 5"]),
            ("named.zoo", rtype::TXT, &["alias of lb.example.com. for 5"]),
            (
                "named.zoo",
                rtype::CNAME,
                &["named.zoo.example.org. 5 IN CNAME lb.example.com."],
            ),
            (
                "named.zoo",
                SRV,
                &[
                    "named.zoo.example.org. 5 IN SRV 0 50 443 lb.example.com.",
                    "named.zoo.example.org. 5 IN SRV 0 50 80 lb.example.com.",
                ],
            ),
            (
                "_http._tcp.named.zoo",
                SRV,
                &["_http._tcp.named.zoo.example.org. 5 IN SRV 0 100 80 lb.example.com."],
            ),
            ("_tcp.named.zoo", A, &["NODATA"]),
            ("_dns._tcp.named.zoo", SRV, &["NXDOMAIN"]),
            ("x.named.zoo", A, &["NXDOMAIN"]),
        ],
    );
}

#[test]
fn headless_services_have_their_endpoints_if_that_is_wanted() {
    check(
        &outside(true),
        &[
            (
                "peers.zoo",
                A,
                &[
                    "peers.zoo.example.org. 5 IN A 10.244.0.1",
                    "peers.zoo.example.org. 5 IN A 10.244.0.2",
                ],
            ),
            (
                "peer-0.peers.zoo",
                A,
                &["peer-0.peers.zoo.example.org. 5 IN A 10.244.0.1"],
            ),
            (
                "_http._tcp.peers.zoo",
                SRV,
                &[
                    "_http._tcp.peers.zoo.example.org. 5 IN SRV 0 50 80 10-244-0-2.peers.zoo.example.org.",
                    "_http._tcp.peers.zoo.example.org. 5 IN SRV 0 50 80 peer-0.peers.zoo.example.org.",
                    "+ 10-244-0-2.peers.zoo.example.org. 5 IN A 10.244.0.2",
                    "+ peer-0.peers.zoo.example.org. 5 IN A 10.244.0.1",
                ],
            ),
            ("_tcp.peers.zoo", A, &["NODATA"]),
            ("nobody.zoo", A, &["NXDOMAIN"]),
            // Its own address takes precedence over its endpoints.
            ("lone.zoo", A, &["lone.zoo.example.org. 5 IN A 192.0.2.4"]),
        ],
    );
}

/// The zone's own names: `dns` is not a namespace here.
#[test]
fn the_zone_has_a_server() {
    let mut zoo = outside(false);
    zoo.hosts = vec!["10.244.0.9".parse().unwrap()];
    let soa = "example.org. 5 IN SOA ns1.dns.example.org. hostmaster.dns.example.org. 7 7200 1800 86400 5";
    check(
        &zoo,
        &[
            ("@", rtype::SOA, &[soa]),
            ("@", A, &["NODATA"]),
            // The service with this host as an endpoint has no outside address.
            ("@", rtype::NS, &["example.org. 5 IN NS ns1.dns.example.org."]),
            ("dns", A, &["NODATA"]),
            ("ns1.dns", A, &["NODATA"]),
            ("ns2.dns", A, &["NXDOMAIN"]),
            ("x.ns1.dns", A, &["NXDOMAIN"]),
        ],
    );
    zoo.slice("front", Value::Null, json!([{"addresses": ["10.244.0.9"]}]));
    check(
        &zoo,
        &[
            (
                "@",
                rtype::NS,
                &[
                    "example.org. 5 IN NS ns1.dns.example.org.",
                    "+ ns1.dns.example.org. 5 IN A 192.0.2.1",
                    "+ ns1.dns.example.org. 5 IN A 192.0.2.2",
                    "+ ns1.dns.example.org. 5 IN AAAA 2001:db8::2",
                ],
            ),
            ("ns1.dns", AAAA, &["ns1.dns.example.org. 5 IN AAAA 2001:db8::2"]),
        ],
    );
}

#[test]
fn outside_addresses_lead_back() {
    let mut zoo = outside(false);
    let ask = |zoo: &Zoo, name: &str| zoo.ask_in("in-addr.arpa.", name, rtype::PTR);
    assert_eq!(
        ask(&zoo, "2.2.0.192.in-addr.arpa"),
        ["2.2.0.192.in-addr.arpa. 5 IN PTR front.zoo.example.org."]
    );
    assert_eq!(
        ask(&zoo, "20.0.96.10.in-addr.arpa"),
        ["20.0.96.10.in-addr.arpa. 5 IN PTR front.zoo.svc.cluster.local."]
    );
    zoo.config.external = None;
    assert_eq!(ask(&zoo, "2.2.0.192.in-addr.arpa"), ["NXDOMAIN"]);
}

#[test]
fn what_is_outside_goes_with_its_service() {
    let mut index = Index::default();
    let object =
        json!({"metadata": {"name": "front", "namespace": "zoo"}, "spec": {"externalIPs": ["192.0.2.1"]}});
    let read = Interest::default().service(serde_json::from_value(object).unwrap());
    let Ok(Reading::Present(service)) = read else {
        panic!("{read:?}")
    };
    let (service, address) = (Arc::new(service), "192.0.2.1".parse().unwrap());
    service.enter(&mut index);
    assert_eq!(index.holders(address).len(), 1);
    service.leave(&mut index);
    assert_eq!(index.holders(address).len(), 0);
}
