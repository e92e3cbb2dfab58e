//! Every name and type of the zoo.

use super::*;

const A: u16 = rtype::A;
const AAAA: u16 = rtype::AAAA;
const SRV: u16 = rtype::SRV;
const TXT: u16 = rtype::TXT;

/// A name below the domain, a type, and the answer.
type Row = (&'static str, u16, &'static [&'static str]);

fn check(zoo: &Zoo, rows: &[Row]) {
    for (name, qtype, expected) in rows {
        assert_eq!(zoo.ask(name, *qtype), *expected, "{name} {qtype}");
    }
}

#[test]
fn services_have_addresses() {
    check(
        &zoo(config()),
        &[
            (
                "web.zoo.svc",
                A,
                &["web.zoo.svc.cluster.local. 5 IN A 10.96.0.10"],
            ),
            (
                "web.zoo.svc",
                AAAA,
                &["web.zoo.svc.cluster.local. 5 IN AAAA fd00::10"],
            ),
            ("web.zoo.svc", rtype::MX, &["NODATA"]),
            ("web.zoo.svc", TXT, &["NODATA"]),
            ("web.zoo.svc", rtype::HTTPS, &["NODATA"]),
            ("web.zoo.svc", rtype::CNAME, &["NODATA"]),
            ("web.zoo.svc", rtype::SOA, &["NODATA"]),
            ("web.zoo.svc", rtype::NS, &["NODATA"]),
            ("web.zoo.svc", rtype::PTR, &["NODATA"]),
            (
                "single.zoo.svc",
                A,
                &["single.zoo.svc.cluster.local. 5 IN A 10.96.0.11"],
            ),
            ("single.zoo.svc", AAAA, &["NODATA"]),
            // Endpoints of services with a cluster IP have names, too.
            (
                "10-244-0-9.web.zoo.svc",
                A,
                &["10-244-0-9.web.zoo.svc.cluster.local. 5 IN A 10.244.0.9"],
            ),
        ],
    );
}

#[test]
fn ports_have_names() {
    check(
        &zoo(config()),
        &[
            (
                "_http._tcp.web.zoo.svc",
                SRV,
                &[
                    "_http._tcp.web.zoo.svc.cluster.local. 5 IN SRV 0 50 80 web.zoo.svc.cluster.local.",
                    "+ web.zoo.svc.cluster.local. 5 IN A 10.96.0.10",
                    "+ web.zoo.svc.cluster.local. 5 IN AAAA fd00::10",
                ],
            ),
            (
                "_http._tcp.web.zoo.svc",
                A,
                &["_http._tcp.web.zoo.svc.cluster.local. 5 IN A 10.96.0.10"],
            ),
            ("_http._udp.web.zoo.svc", SRV, &["NXDOMAIN"]),
            ("_tcp.web.zoo.svc", SRV, &["NODATA"]),
            ("_sctp.web.zoo.svc", SRV, &["NXDOMAIN"]),
            ("_tcp.single.zoo.svc", SRV, &["NXDOMAIN"]),
            (
                "single.zoo.svc",
                SRV,
                &[
                    "single.zoo.svc.cluster.local. 5 IN SRV 0 100 9 single.zoo.svc.cluster.local.",
                    "+ single.zoo.svc.cluster.local. 5 IN A 10.96.0.11",
                ],
            ),
        ],
    );
}

#[test]
fn headless_services_have_endpoints() {
    check(
        &zoo(config()),
        &[
            (
                "peers.zoo.svc",
                A,
                &[
                    "peers.zoo.svc.cluster.local. 5 IN A 10.244.0.1",
                    "peers.zoo.svc.cluster.local. 5 IN A 10.244.0.2",
                ],
            ),
            (
                "peers.zoo.svc",
                AAAA,
                &["peers.zoo.svc.cluster.local. 5 IN AAAA fd00:1::"],
            ),
            (
                "peer-0.peers.zoo.svc",
                A,
                &["peer-0.peers.zoo.svc.cluster.local. 5 IN A 10.244.0.1"],
            ),
            ("10-244-0-1.peers.zoo.svc", A, &["NXDOMAIN"]),
            (
                "10-244-0-2.peers.zoo.svc",
                A,
                &["10-244-0-2.peers.zoo.svc.cluster.local. 5 IN A 10.244.0.2"],
            ),
            // Endpoints that are not ready have no name.
            ("peer-3.peers.zoo.svc", A, &["NXDOMAIN"]),
            (
                "fd00-1--0.peers.zoo.svc",
                AAAA,
                &["fd00-1--0.peers.zoo.svc.cluster.local. 5 IN AAAA fd00:1::"],
            ),
            (
                "_http._tcp.peers.zoo.svc",
                SRV,
                &[
                    "_http._tcp.peers.zoo.svc.cluster.local. 5 IN SRV 0 50 80 10-244-0-2.peers.zoo.svc.cluster.local.",
                    "_http._tcp.peers.zoo.svc.cluster.local. 5 IN SRV 0 50 80 peer-0.peers.zoo.svc.cluster.local.",
                    "+ 10-244-0-2.peers.zoo.svc.cluster.local. 5 IN A 10.244.0.2",
                    "+ peer-0.peers.zoo.svc.cluster.local. 5 IN A 10.244.0.1",
                ],
            ),
            ("_udp.peers.zoo.svc", A, &["NODATA"]),
            ("nobody.zoo.svc", A, &["NXDOMAIN"]),
            ("_x._tcp.nobody.zoo.svc", SRV, &["NXDOMAIN"]),
            (
                "portless.zoo.svc",
                A,
                &["portless.zoo.svc.cluster.local. 5 IN A 10.244.0.7"],
            ),
            ("portless.zoo.svc", SRV, &["NODATA"]),
        ],
    );
}

#[test]
fn endpoints_may_be_called_like_their_pods() {
    let by_pod = config::Kubernetes {
        endpoint_pod_names: true,
        ..config()
    };
    check(
        &zoo(by_pod),
        &[
            (
                "pod-2.peers.zoo.svc",
                A,
                &["pod-2.peers.zoo.svc.cluster.local. 5 IN A 10.244.0.2"],
            ),
            ("10-244-0-2.peers.zoo.svc", A, &["NXDOMAIN"]),
        ],
    );
}

#[test]
fn external_names_are_aliases() {
    check(
        &zoo(config()),
        &[
            ("outside.zoo.svc", A, &["alias of www.example.org. for 5"]),
            ("outside.zoo.svc", TXT, &["alias of www.example.org. for 5"]),
            (
                "outside.zoo.svc",
                rtype::CNAME,
                &["outside.zoo.svc.cluster.local. 5 IN CNAME www.example.org."],
            ),
            ("_a._tcp.outside.zoo.svc", SRV, &["NXDOMAIN"]),
            ("a.outside.zoo.svc", A, &["NXDOMAIN"]),
            ("address.zoo.svc", A, &["NXDOMAIN"]),
        ],
    );
}

#[test]
fn names_exist_or_do_not() {
    check(
        &zoo(config()),
        &[
            ("svc", A, &["NODATA"]),
            ("pod", A, &["NODATA"]),
            ("dns", A, &["NODATA"]),
            ("zoo.svc", A, &["NODATA"]),
            ("zoo.svc", TXT, &["NODATA"]),
            ("zoo.pod", A, &["NXDOMAIN"]),
            ("moon.svc", A, &["NXDOMAIN"]),
            ("moon", A, &["NXDOMAIN"]),
            ("web", A, &["NXDOMAIN"]),
            ("moon.zoo.svc", A, &["NXDOMAIN"]),
            ("moon.zoo.svc", rtype::SOA, &["NXDOMAIN"]),
            ("a.web.zoo.svc", A, &["NXDOMAIN"]),
            ("a.b.web.zoo.svc", A, &["NXDOMAIN"]),
            ("a.b.c.web.zoo.svc", A, &["NXDOMAIN"]),
            ("a.b.c.d.e.f.g.h.web.zoo.svc", A, &["NXDOMAIN"]),
            (
                "dns-version",
                TXT,
                &["dns-version.cluster.local. 28800 IN TXT \"1.1.0\""],
            ),
            ("dns-version", A, &["NODATA"]),
        ],
    );
}

#[test]
fn pods_have_names_of_their_addresses() {
    let with = |pods| zoo(config::Kubernetes { pods, ..config() });
    check(
        &with(Pods::Insecure),
        &[
            ("zoo.pod", A, &["NODATA"]),
            (
                "192-0-2-1.zoo.pod",
                A,
                &["192-0-2-1.zoo.pod.cluster.local. 5 IN A 192.0.2.1"],
            ),
            ("192-0-2-1.zoo.pod", AAAA, &["NODATA"]),
            ("192-0-2-1.zoo.pod", SRV, &["NODATA"]),
            (
                "fd00--1.zoo.pod",
                AAAA,
                &["fd00--1.zoo.pod.cluster.local. 5 IN AAAA fd00::1"],
            ),
            ("192-0-2-1.moon.pod", A, &["NXDOMAIN"]),
            ("192-0-2-256.zoo.pod", A, &["NXDOMAIN"]),
            ("one.zoo.pod", A, &["NXDOMAIN"]),
        ],
    );
    check(
        &with(Pods::Verified),
        &[
            (
                "10-244-1-1.zoo.pod",
                A,
                &["10-244-1-1.zoo.pod.cluster.local. 5 IN A 10.244.1.1"],
            ),
            (
                "fd00-2--1.zoo.pod",
                AAAA,
                &["fd00-2--1.zoo.pod.cluster.local. 5 IN AAAA fd00:2::1"],
            ),
            ("192-0-2-1.zoo.pod", A, &["NXDOMAIN"]),
        ],
    );
    check(&with(Pods::Disabled), &[("10-244-1-1.zoo.pod", A, &["NXDOMAIN"])]);
}

#[test]
fn addresses_have_names() {
    let zoo = zoo(config());
    for (name, qtype, expected) in [
        (
            "10.0.96.10.in-addr.arpa",
            rtype::PTR,
            "10.0.96.10.in-addr.arpa. 5 IN PTR web.zoo.svc.cluster.local.",
        ),
        (
            "1.0.244.10.in-addr.arpa",
            rtype::PTR,
            "1.0.244.10.in-addr.arpa. 5 IN PTR peer-0.peers.zoo.svc.cluster.local.",
        ),
        ("3.0.244.10.in-addr.arpa", rtype::PTR, "NXDOMAIN"),
        ("1.0.244.10.in-addr.arpa", A, "NODATA"),
        ("0.244.10.in-addr.arpa", rtype::PTR, "NXDOMAIN"),
        ("010.0.96.10.in-addr.arpa", rtype::PTR, "NXDOMAIN"),
        ("in-addr.arpa", rtype::PTR, "NODATA"),
        ("web.zoo.svc.in-addr.arpa", A, "NXDOMAIN"),
        ("svc.in-addr.arpa", A, "NXDOMAIN"),
    ] {
        assert_eq!(
            zoo.ask_in("in-addr.arpa", name, qtype),
            [expected],
            "{name} {qtype}"
        );
    }
    let six = "0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa";
    assert_eq!(
        zoo.ask_in("ip6.arpa", six, rtype::PTR),
        [format!("{six}. 5 IN PTR web.zoo.svc.cluster.local.")]
    );
}

#[test]
fn the_zone_has_an_apex() {
    let mut zoo = zoo(config());
    let soa = "cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5";
    let apex = |zoo: &Zoo, qtype| zoo.ask_in("cluster.local.", "cluster.local", qtype);
    assert_eq!(apex(&zoo, rtype::SOA), [soa]);
    assert_eq!(apex(&zoo, A), ["NODATA"]);
    assert_eq!(apex(&zoo, TXT), ["NODATA"]);
    zoo.hosts = vec!["192.0.2.7".parse().unwrap()];
    assert_eq!(
        apex(&zoo, rtype::NS),
        [
            "cluster.local. 5 IN NS ns.dns.cluster.local.",
            "+ ns.dns.cluster.local. 5 IN A 192.0.2.7"
        ]
    );
    assert_eq!(zoo.ask("ns.dns", A), ["ns.dns.cluster.local. 5 IN A 192.0.2.7"]);
    // A service is named if this host is one of its endpoints.
    zoo.hosts = vec!["10.244.0.9".parse().unwrap()];
    assert_eq!(
        apex(&zoo, rtype::NS),
        [
            "cluster.local. 5 IN NS web.zoo.svc.cluster.local.",
            "+ web.zoo.svc.cluster.local. 5 IN A 10.96.0.10",
            "+ web.zoo.svc.cluster.local. 5 IN AAAA fd00::10",
        ]
    );
    assert_eq!(zoo.ask("ns.dns", A), ["ns.dns.cluster.local. 5 IN A 10.96.0.10"]);
}

#[test]
fn denials_have_the_soa_of_their_zone() {
    let mut config = config();
    config.ttl = std::time::Duration::from_secs(600);
    let zoo = zoo(config);
    let Resolution::Answer { answer, .. } = zoo.resolve("cluster.local.", "x.zoo.svc.cluster.local", A)
    else {
        panic!("no answer");
    };
    assert_eq!(
        record_lines(&answer.message, Section::Authority),
        ["cluster.local. 300 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 600"]
    );
}

#[test]
fn what_does_not_exist_may_fall_through() {
    let zoo = zoo(config::Kubernetes {
        fallthrough: vec!["in-addr.arpa.".into()],
        ..config()
    });
    for (name, qtype, expected) in [
        ("8.8.8.8.in-addr.arpa", rtype::PTR, "not mine"),
        ("10.in-addr.arpa", rtype::SOA, "not mine"),
        ("10.0.96.10.in-addr.arpa", A, "NODATA"),
        ("moon.zoo.svc.cluster.local", A, "NXDOMAIN"),
    ] {
        let zone = if name.ends_with("arpa") {
            "in-addr.arpa"
        } else {
            "cluster.local"
        };
        assert_eq!(zoo.ask_in(zone, name, qtype), [expected], "{name}");
    }
    // A zone may contain much more than the domain.
    let all = super::zoo(config::Kubernetes {
        fallthrough: vec![".".into()],
        ..config()
    });
    assert_eq!(all.ask_in(".", "www.example.org", A), ["not mine"]);
    assert_eq!(all.ask_in(".", ".", rtype::NS), ["not mine"]);
    assert_eq!(all.ask_in(".", "web.zoo.svc", A), ["not mine"]);
    assert_eq!(all.ask_in(".", "single.zoo.svc.cluster.local", A).len(), 1);
}

#[test]
fn services_without_endpoints_may_be_ignored() {
    let zoo = zoo(config::Kubernetes {
        ignore_empty_services: true,
        ..config()
    });
    check(
        &zoo,
        &[
            ("single.zoo.svc", A, &["NXDOMAIN"]),
            (
                "web.zoo.svc",
                AAAA,
                &["web.zoo.svc.cluster.local. 5 IN AAAA fd00::10"],
            ),
            ("outside.zoo.svc", A, &["alias of www.example.org. for 5"]),
        ],
    );
}

/// RFC 2181 section 9: records that do not fit are left out, and TC is set.
#[test]
fn more_than_a_message_holds_is_truncated() {
    let mut zoo = Zoo::new(config());
    zoo.service("many", json!({"clusterIPs": ["None"]}));
    for group in 0..5 {
        let endpoints =
            (0..1000).map(|n| json!({"addresses": [format!("10.{group}.{}.{}", n / 250, n % 250)]}));
        zoo.slice("many", json!([{"name": "p", "port": 1}]), endpoints.collect());
    }
    let Resolution::Answer { answer, .. } = zoo.resolve("cluster.local.", "many.zoo.svc.cluster.local", A)
    else {
        panic!("no answer");
    };
    assert!(answer.message.len() <= crate::dns::MESSAGE_MAXIMUM && answer.answer_count() > 4000);
    assert_eq!(answer.message[2] & 2, 2);
    let Resolution::Answer { answer, .. } = zoo.resolve("cluster.local.", "many.zoo.svc.cluster.local", SRV)
    else {
        panic!("no answer");
    };
    assert_eq!(answer.message[2] & 2, 2);
    crate::dns::records::Answer::read(answer.message.clone()).unwrap();
}

#[test]
fn nothing_is_said_before_everything_is_known() {
    let mut zoo = zoo(config());
    zoo.index.complete = false;
    for name in ["web.zoo.svc", "moon"] {
        assert!(zoo.ask(name, A)[0].starts_with("Failed"));
    }
}
