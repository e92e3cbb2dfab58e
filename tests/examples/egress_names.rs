//! `egress-names`: what pods may resolve.

use super::{anything, configured, documented, upstream_says};
use crate::harness::pods::{Cluster, annotate, put_pod};
use crate::harness::until;

const ANNOTATION: &str = "example.com/egress";

#[test]
fn the_documented_configuration_lets_out_what_is_listed() {
    let upstream = anything();
    let text = documented("egress-names", upstream.address, &[]);
    let cluster = Cluster::start(&text, |server| {
        annotate(server, "shop", ANNOTATION, "api.example *.pkg.example");
        put_pod(server, "shop/web", "127.0.9.1", 1);
        put_pod(server, "bank/api", "127.0.9.2", 2);
        // An address with two pods is ambiguous.
        put_pod(server, "shop/one", "127.0.9.3", 3);
        put_pod(server, "bank/two", "127.0.9.3", 3);
    });
    let allowed = |client: &str, name: &str| {
        let answer = cluster.ask(client, name);
        if answer.rcode() == "NOERROR" {
            assert_eq!(answer.answers(), upstream_says(name), "{client} {name}");
            return true;
        }
        assert_eq!(
            (answer.rcode().as_str(), answer.extended_errors()),
            ("REFUSED", vec![15]),
            "{client} {name}"
        );
        false
    };
    // A name in the cache is answered only for clients that may resolve it, whichever client caused it.
    for _ in 0..2 {
        for (client, name, expected) in [
            ("127.0.9.2", "www.example", true),
            ("127.0.9.1", "www.example", false),
            ("127.0.9.1", "api.example", true),
            ("127.0.9.1", "a.pkg.example", true),
            ("127.0.9.1", "db.shop.svc.cluster.local", true),
            ("127.0.9.3", "www.example", false),
            ("127.0.9.3", "db.shop.svc.cluster.local", true),
            ("127.0.0.1", "www.example", true),
        ] {
            assert_eq!(allowed(client, name), expected, "{client} {name}");
        }
    }
    let refused = |namespace: &str| {
        let labels = [("name", "refused"), ("namespace", namespace)];
        cluster
            .proxy
            .metrics()
            .sum("dnsweir_filter_counter_total", &labels)
    };
    assert_eq!((refused("shop"), refused("-"), refused("bank")), (2.0, 2.0, 0.0));
    // Remembered verdicts change, too.
    annotate(&cluster.server, "shop", ANNOTATION, "www.example");
    until("the other list", || allowed("127.0.9.1", "www.example"));
    assert!(!allowed("127.0.9.1", "api.example"));
    annotate(&cluster.server, "bank", ANNOTATION, "");
    until("the empty list", || !allowed("127.0.9.2", "www.example"));
}

/// Pods without a list get what the configuration says.
#[test]
fn policies_are_turned_around() {
    let upstream = anything();
    let options = format!(
        "annotation \"{ANNOTATION}\"\nalways \"cluster.local\"\nunlisted \"refuse\"\nhost \"refuse\"\nunknown \"allow\""
    );
    let text = format!(
        "pods {{ node \"worker-1\" }}\n{}",
        configured("egress-names", &options, &upstream)
    );
    let cluster = Cluster::start(&text, |server| {
        put_pod(server, "shop/one", "127.0.9.3", 3);
        put_pod(server, "bank/two", "127.0.9.3", 3);
        put_pod(server, "bank/api", "127.0.9.2", 2);
    });
    let rcode = |client: &str, name: &str| cluster.ask(client, name).rcode();
    for (client, expected) in [
        ("127.0.9.2", "REFUSED"),
        ("127.0.0.1", "REFUSED"),
        ("127.0.9.3", "NOERROR"),
    ] {
        assert_eq!(rcode(client, "www.example"), expected, "{client}");
        assert_eq!(rcode(client, "a.cluster.local"), "NOERROR", "{client}");
    }
}
