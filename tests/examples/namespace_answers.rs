//! `namespace-answers`: answers for a name by the pod's namespace.

use super::{anything, configured, documented, upstream_says};
use crate::harness::pods::{Cluster, annotate, put_pod};
use crate::harness::until;

const ANNOTATION: &str = "example.com/answers";

/// Each pod gets its namespace's answer, however often it asks and whichever client asked before; a pod that
/// reuses an address gets no answer meant for the previous one.
#[test]
fn the_documented_configuration_answers_by_namespace() {
    let upstream = anything();
    let text = documented("namespace-answers", upstream.address, &[]);
    let cluster = Cluster::start(&text, |server| {
        annotate(
            server,
            "shop",
            ANNOTATION,
            "db.example 10.0.0.7; api.example www.example",
        );
        annotate(server, "bank", ANNOTATION, "db.example 10.0.0.9");
        put_pod(server, "shop/web", "127.0.8.1", 1);
        put_pod(server, "bank/api", "127.0.8.2", 2);
        put_pod(server, "zoo/cage", "127.0.8.3", 3);
    });
    let address = |client: &str| cluster.ask(client, "db.example").answers();
    let is = |address: &str| [format!("db.example. A {address}")];
    let others = upstream_says("db.example");
    for _ in 0..3 {
        assert_eq!(address("127.0.8.1"), is("10.0.0.7"));
        assert_eq!(address("127.0.8.2"), is("10.0.0.9"));
        assert_eq!(address("127.0.8.3"), others);
        assert_eq!(address("127.0.0.1"), others, "the host");
        let alias = cluster.ask("127.0.8.1", "api.example").answers();
        assert_eq!(
            alias,
            ["api.example. CNAME www.example.", "www.example. A 192.0.2.1"]
        );
        assert_eq!(
            cluster.ask("127.0.8.2", "api.example").answers(),
            upstream_says("api.example")
        );
    }
    assert_eq!(
        upstream.count("db.example"),
        1,
        "once for all who get no other answer"
    );
    cluster.server.delete("pods", "shop/web");
    until("the pod to be gone", || address("127.0.8.1") == others);
    put_pod(&cluster.server, "bank/new", "127.0.8.1", 4);
    until("the new pod", || {
        let address = address("127.0.8.1");
        assert_ne!(address, is("10.0.0.7"), "what was said for another");
        address == is("10.0.0.9")
    });
    annotate(&cluster.server, "bank", ANNOTATION, "db.example 10.0.0.10");
    for client in ["127.0.8.1", "127.0.8.2"] {
        until("the new annotation", || address(client) == is("10.0.0.10"));
        assert_eq!(address(client), is("10.0.0.10"));
    }
}

#[test]
fn addresses_have_the_ttl_that_is_configured() {
    let upstream = anything();
    let options = format!("annotation \"{ANNOTATION}\"\nttl \"5s\"");
    let text = format!(
        "pods {{ node \"worker-1\" }}\n{}",
        configured("namespace-answers", &options, &upstream)
    );
    let cluster = Cluster::start(&text, |server| {
        annotate(server, "shop", ANNOTATION, "db.example 10.0.0.7");
        put_pod(server, "shop/web", "127.0.8.1", 1);
    });
    let answer = cluster.ask("127.0.8.1", "db.example");
    assert_eq!((answer.answers().len(), answer.ttl()), (1, 5));
}

/// The cache is shared by all clients.
#[test]
fn it_does_not_stand_below_the_cache() {
    let upstream = anything();
    let text = documented("namespace-answers", upstream.address, &[]);
    let text = text.replace("use \"answers\"\n    cache\n", "cache\n    use \"answers\"\n");
    let text = text.replace("\"$LISTEN\"", "\"127.0.0.1:15353\"");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dnsweir.kdl");
    let pods = "pods { node \"worker-1\" }";
    std::fs::write(&file, text.replace(pods, "")).unwrap();
    let output = crate::harness::proxy::check(&file);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("decides by client, but is below `cache`"), "{said}");
}
