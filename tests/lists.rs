//! Named lists, as seen by clients, operators and the metrics.

use std::net::IpAddr;

use harness::web::WebServer;
use harness::{Message, Proxy, Upstream, client, until};

/// An upstream that has an address for each of these.
fn upstream() -> Upstream {
    Upstream::zone(&[
        ". 300 SOA ns. root. 1 2 3 4 5",
        "ads.example. 300 A 192.0.2.1",
        "good.ads.example. 300 A 192.0.2.2",
        "games.example. 300 A 192.0.2.3",
        "www.example. 300 A 192.0.2.4",
    ])
}

#[test]
fn what_is_on_a_list_is_blocked() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), upstream());
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "ads",
        "! a list\n||ads.example^\n@@||good.ads.example^\nexample.com##.banner\n",
    );
    write("kids", "0.0.0.0 games.example\n");
    let at = |name: &str| folder.path().join(name);
    let text = format!(
        "zone \".\" {{\n lists {{ list \"ads\" {{ source {:?} }}; list \"kids\" {{ source {:?}; clients \"127.0.0.7\"; answer \"192.0.2.99\" }} }}\n\
         cache; forward \"{}\" }}",
        at("ads"),
        at("kids"),
        upstream.address
    );
    let proxy = Proxy::start(&text);
    let said = |name: &str| {
        let reply = proxy.query_edns(name, "A");
        (reply.rcode(), reply.answers(), reply.extended_errors())
    };
    let denied = || ("NXDOMAIN".to_owned(), Vec::new(), vec![15]);
    for _ in 0..2 {
        assert_eq!(said("ads.example."), denied());
        assert_eq!(said("x.Ads.example."), denied());
        assert_eq!(said("good.ads.example.").1, ["good.ads.example. A 192.0.2.2"]);
        assert_eq!(said("www.example.").1, ["www.example. A 192.0.2.4"]);
        assert_eq!(said("games.example.").1, ["games.example. A 192.0.2.3"]);
        let kid: IpAddr = [127, 0, 0, 7].into();
        let reply = client::ask_from(kid, proxy.address, &Message::query("games.example.", "A"));
        assert_eq!(reply.answers(), ["games.example. A 192.0.2.99"]);
    }
    let metrics = proxy.metrics();
    let queries = |list: &str, result: &str| {
        metrics.sum(
            "dnsweir_list_queries_total",
            &[("list", list), ("result", result)],
        )
    };
    assert_eq!(
        (
            queries("ads", "blocked"),
            queries("ads", "passed"),
            queries("kids", "blocked")
        ),
        (4.0, 2.0, 2.0)
    );
    assert_eq!(metrics.sum("dnsweir_list_skipped_lines", &[("list", "ads")]), 1.0);
    let mut explain = harness::proxy::command();
    explain
        .args(["explain", "x.ads.example", "A", "--config"])
        .arg(&proxy.file);
    let told = harness::tools::output(&mut explain);
    assert!(told.contains("the list \"ads\" blocks ads.example."), "{told}");
    // A change of the file takes effect, and no cache has the name.
    write("ads", "||www.example^\n");
    until("the list is read", || said("www.example.") == denied());
    assert_eq!(said("ads.example.").1, ["ads.example. A 192.0.2.1"]);
}

#[test]
fn a_list_is_fetched_when_it_changes() {
    let (server, upstream) = (WebServer::over_tls("lists.example"), upstream());
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, harness::web::authority()).unwrap();
    server.serve("ads.example\n", "one");
    let text = format!(
        "zone \".\" {{ lists {{ list \"l\" {{ source \"https://lists.example:{}/l\" address=\"127.0.0.1\" ca={ca:?} }}; every \"1s\" }}\n\
         cache; forward \"{}\" }}",
        server.address.port(),
        upstream.address
    );
    let proxy = Proxy::start(&text);
    let rcode = |name: &str| proxy.query(name, "A").rcode();
    assert_eq!(
        (rcode("ads.example."), rcode("www.example.")),
        ("NXDOMAIN".into(), "NOERROR".into())
    );
    until("it is asked for another version", || {
        server
            .requests()
            .iter()
            .any(|request| request.contains("if-none-match: \"one\""))
    });
    server.serve("www.example\n", "two");
    until("the other version is there", || {
        rcode("www.example.") == "NXDOMAIN"
    });
    assert_eq!(rcode("ads.example."), "NOERROR");
    // A broken server removes nothing from the list.
    server.answer(|_| harness::web::page("500 Internal Server Error", "", "www2.example\n"));
    let failed = || {
        proxy
            .metrics()
            .sum("dnsweir_list_reads_total", &[("list", "l"), ("result", "failed")])
            > 0.0
    };
    until("it fails", failed);
    assert_eq!(rcode("www.example."), "NXDOMAIN");
}
