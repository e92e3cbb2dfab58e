//! Named lists, as seen by clients, operators and the metrics.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use harness::guests::guest;
use harness::pods::{Cluster, PODS, put_pod};
use harness::web::WebServer;
use harness::{Message, Proxy, Upstream, client, forward_once, until};
use serde_json::json;

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

/// Writes a file into a folder, and returns its path.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn what_is_on_a_list_is_blocked() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), upstream());
    let write = |name: &str, text: &str| write(folder.path(), name, text);
    let ads = write(
        "ads",
        "! a list\n||ads.example^\n@@||good.ads.example^\nexample.com##.banner\n",
    );
    let kids = write("kids", "0.0.0.0 games.example\n");
    let text = format!(
        "zone \".\" {{\n lists {{ list \"ads\" {{ source {ads:?} }}; list \"kids\" {{ source {kids:?}; clients \"127.0.0.7\"; answer \"192.0.2.99\" }} }}\n\
         cache; forward \"{}\" }}",
        upstream.address
    );
    let proxy = Proxy::start_with(&text, &["--log-level", "debug"]);
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
    let line = proxy
        .process
        .logged("list=\"kids\" client=127.0.0.7 name=games.example.");
    assert!(line.contains("a list decided about a query"), "{line}");
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

/// No cache and no alias brings one client what a list says to another.
#[test]
fn a_list_may_be_for_some_pods() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), upstream());
    let games = write(folder.path(), "games", "games.example\n");
    let money = write(folder.path(), "money", "www.example\n");
    let zone = "$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\nplay CNAME games.example.\n";
    let zone = write(folder.path(), "zone", zone);
    let text = format!(
        "{PODS}\nzone \".\" {{\n lists {{ list \"kids\" {{ source {games:?}; namespaces \"shop\" }}\n\
         list \"money\" {{ source {money:?}; namespace-labels \"kind in (money)\"; answer \"nodata\" }} }}\n\
         cache; forward \"{}\" }}\n\
         zone \"alias.test\" {{ cache; file {zone:?} }}",
        upstream.address
    );
    let cluster = Cluster::start(&text, |server| {
        server.put(
            "namespaces",
            "bank",
            json!({"metadata": {"labels": {"kind": "money"}}}),
        );
        put_pod(server, "shop/web", "127.0.7.1", 1);
        put_pod(server, "bank/api", "127.0.7.2", 2);
    });
    let said = |address: &str, name: &str| {
        let reply = cluster.ask(address, name);
        (reply.rcode(), reply.answers())
    };
    let denied = || ("NXDOMAIN".to_owned(), Vec::new());
    let found = |answers: &[&str]| {
        let answers = answers.iter().map(|answer| (*answer).to_owned());
        ("NOERROR".to_owned(), answers.collect::<Vec<String>>())
    };
    let (play, game) = (
        "play.alias.test. CNAME games.example.",
        "games.example. A 192.0.2.3",
    );
    let (shop, bank, host) = ("127.0.7.1", "127.0.7.2", "127.0.0.1");
    for client in [bank, shop, host].repeat(2) {
        let is_kid = client == shop;
        let expected = if is_kid { denied() } else { found(&[game]) };
        assert_eq!(said(client, "games.example."), expected, "{client}");
        let expected = match is_kid {
            true => ("NXDOMAIN".to_owned(), vec![play.to_owned()]),
            false => found(&[play, game]),
        };
        assert_eq!(said(client, "play.alias.test."), expected, "{client}");
        let www: &[&str] = if client == bank {
            &[]
        } else {
            &["www.example. A 192.0.2.4"]
        };
        assert_eq!(said(client, "www.example."), found(www), "{client}");
    }
    // A change of the namespace is a change of who it is for.
    cluster.server.put("namespaces", "bank", json!({}));
    until("the list to be for nobody", || {
        said(bank, "www.example.") == found(&["www.example. A 192.0.2.4"])
    });
}

/// A filter asks a zone that has nothing but lists, and decides. What they say to one client is neither remembered
/// nor cached for another.
#[test]
fn a_filter_decides_about_names_of_a_list() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), upstream());
    let list = write(folder.path(), "list", "zone.asking.test\none.lists.test\n");
    for (clients, other, lookups) in [
        ("clients \"127.0.0.7\"", "Answered! 0", 8.0),
        ("", "Answered 1", 2.0),
    ] {
        let proxy = Proxy::start(&format!(
            "workers 1; filter \"asker\" {{ module \"{}\"; limits time=\"1s\"; config {{ under \"lists.test\" }} }}\n\
             zone \"asking.test\" {{ cache; use \"asker\"; {} }}\n\
             zone \"lists.test\" {{ lists {{ list \"l\" {{ source {list:?}; answer \"127.0.0.2\"; {clients} }} }} }}",
            guest("asker").display(),
            forward_once(upstream.address)
        ));
        let told = |client: [u8; 4], label: &str| {
            let query = Message::query(&format!("{label}.asking.test"), "TXT");
            client::ask_from(client.into(), proxy.address, &query).answers()
        };
        for (client, found) in [([127, 0, 0, 7], "Answered 1"), ([127, 0, 0, 1], other)].repeat(2) {
            // The name itself, in the zone of lists and in one that is not there.
            let zone = format!("zone.asking.test. TXT \"{found}, Failed! 0\"");
            assert_eq!(told(client, "zone"), [zone], "{client:?}");
            // A name of the zone, with a verdict that is remembered.
            let kept = format!("kept.asking.test. TXT \"{found}\"");
            assert_eq!(told(client, "kept"), [kept], "{client:?}");
        }
        let answered = [("filter", "asker"), ("status", "answered")];
        let made = proxy.metrics().sum("dnsweir_filter_lookups_total", &answered);
        assert_eq!(made, lookups, "{clients}");
    }
}

/// The same where the filter that asks is itself asked by another one.
#[test]
fn a_filter_decides_by_another_one_about_names_of_a_list() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), upstream());
    let list = write(folder.path(), "list", "zone.asking.test\n");
    let forward = forward_once(upstream.address);
    for (clients, lookups) in [("clients \"127.0.0.7\"", 4.0), ("", 1.0)] {
        let filter = |name: &str, under: &str| {
            let module = guest("asker");
            let module = module.display();
            format!(
                "filter \"{name}\" {{ module \"{module}\"; limits time=\"1s\"; config {{ under \"{under}\" }} }}"
            )
        };
        let (outer, inner) = (filter("outer", "inner.test"), filter("inner", "lists.test"));
        let proxy = Proxy::start(&format!(
            "workers 1; {outer}; {inner}\n\
             zone \"asking.test\" {{ cache; use \"outer\"; {forward} }}\n\
             zone \"inner.test\" {{ use \"inner\"; {forward} }}\n\
             zone \"lists.test\" {{ lists {{ list \"l\" {{ source {list:?}; answer \"127.0.0.2\"; {clients} }} }} }}"
        ));
        for client in [[127_u8, 0, 0, 7], [127, 0, 0, 1]].repeat(2) {
            let query = Message::query("zone.asking.test", "TXT");
            let told = client::ask_from(client.into(), proxy.address, &query).answers();
            assert_eq!(
                told,
                ["zone.asking.test. TXT \"Answered 1, Failed! 0\""],
                "{client:?}"
            );
        }
        let answered = [("filter", "outer"), ("status", "answered")];
        let made = proxy.metrics().sum("dnsweir_filter_lookups_total", &answered);
        assert_eq!(made, lookups, "{clients}");
    }
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
