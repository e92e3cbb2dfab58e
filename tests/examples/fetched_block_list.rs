//! `fetched-block-list`: lists over HTTPS, and what happens while their server is down.

use std::fs;
use std::path::Path;

use super::{anything, documented, upstream_says};
use crate::harness::web::{self, WebServer, page};
use crate::harness::{Proxy, forward_once, until};

/// The source of a blocked name.
fn source(proxy: &Proxy, name: &str) -> String {
    let answer = proxy.query_edns(name, "A");
    assert_eq!(answer.rcode(), "NXDOMAIN", "{name}: {answer}");
    let error = answer.find_option(15).expect("an extended error");
    String::from_utf8_lossy(&error[2..]).into_owned()
}

fn is_blocked(proxy: &Proxy, name: &str) -> bool {
    proxy.query(name, "A").rcode() == "NXDOMAIN"
}

/// A list over HTTPS, refreshed each second.
fn fetching(server: &WebServer, folder: &Path, upstream: std::net::SocketAddr) -> String {
    let authority = folder.join("ca.pem");
    fs::write(&authority, web::authority()).expect("an authority");
    format!(
        "filter \"f\" {{\n    module \"{}\"\n    limits time=\"1s\" data=\"1MiB\"\n\
         refresh {{ every \"1s\"; source \"ads\" \"https://lists.example:{}/ads\" ca={authority:?} address=\"127.0.0.1\" }}\n}}\n\
         zone \".\" {{\n    use \"f\"\n    cache\n    {}\n}}\n",
        crate::harness::guests::example("fetched-block-list").display(),
        server.address.port(),
        forward_once(upstream)
    )
}

fn refreshes(proxy: &Proxy, result: &str) -> f64 {
    let labels = [("filter", "f"), ("result", result)];
    proxy.metrics().sum("dnsweir_filter_refreshes_total", &labels)
}

#[test]
fn the_documented_configuration_blocks_what_is_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("ca.pem"), web::authority()).expect("an authority");
    fs::create_dir(path("lists")).expect("a folder");
    fs::write(path("lists/mine"), "own.example\n").expect("a list");
    let server = WebServer::over_tls("127.0.0.1");
    server.serve("0.0.0.0 ads.example\n", "a");
    let upstream = anything();
    let url = format!("https://{}/ads.txt", server.address);
    let replaced = [
        ("https://lists.example/ads.txt", &*url),
        ("/etc/dnsweir/ca.pem", &*path("ca.pem")),
        ("/etc/dnsweir/lists/", &*path("lists")),
        ("at-least 1000", "at-least 2"),
    ];
    let proxy = Proxy::start(&documented("fetched-block-list", upstream.address, &replaced));
    assert_eq!(source(&proxy, "www.ads.example"), "ads");
    assert_eq!(source(&proxy, "own.example"), "own");
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        upstream_says("www.example")
    );
    // A file is moved into the folder; then the first one is rewritten.
    fs::write(path("new"), "new.example\n").expect("a list");
    fs::rename(path("new"), path("lists/new")).expect("a list");
    until("the new file counts", || is_blocked(&proxy, "new.example"));
    fs::write(path("lists/mine"), "other.example\n").expect("a list");
    until("the changed file counts", || is_blocked(&proxy, "other.example"));
    assert!(!is_blocked(&proxy, "own.example"));
    // A list with fewer than two names is rejected.
    fs::remove_file(path("lists/new")).expect("a list");
    fs::remove_file(path("lists/mine")).expect("a list");
    proxy.process.logged("there are only 1 names");
    assert!(is_blocked(&proxy, "other.example"));
}

#[test]
fn lists_are_fetched_again_and_outlast_their_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().join("cache").display().to_string();
    let arguments = ["--compiled-cache", &*cache];
    let (server, upstream) = (WebServer::over_tls("lists.example"), anything());
    let text = fetching(&server, folder.path(), upstream.address);
    server.serve("one.example\n", "a");
    let proxy = Proxy::start_with(&text, &arguments);
    assert_eq!(source(&proxy, "one.example"), "ads");
    until("it is asked whether there is another", || {
        refreshes(&proxy, "unchanged") >= 1.0
    });
    assert!(server.requests()[1].contains("if-none-match: \"a\""));
    // Remembered verdicts are cleared with their list.
    assert!(!is_blocked(&proxy, "two.example"));
    server.serve("two.example\n", "b");
    until("the new list counts", || is_blocked(&proxy, "two.example"));
    assert!(!is_blocked(&proxy, "one.example"));
    // A missing or invalid list changes nothing.
    for answer in [
        page("503 Service Unavailable", "", ""),
        page("200 OK", "", "<html></html>"),
    ] {
        let failed = refreshes(&proxy, "failed");
        server.answer(move |_| answer.clone());
        until("a refresh failed", || refreshes(&proxy, "failed") > failed);
        assert!(is_blocked(&proxy, "two.example"));
    }
    let (_, status) = proxy.get("/status");
    assert!(status.contains("there are only 0 names"), "{status}");
    // A reload of something else keeps the list.
    let made = refreshes(&proxy, "new");
    proxy.reload(&format!("{text}local-zones\n"));
    assert!(is_blocked(&proxy, "two.example"));
    assert_eq!(refreshes(&proxy, "new"), made);
}

#[test]
fn a_start_needs_no_server_if_there_is_a_copy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().join("cache").display().to_string();
    let arguments = ["--compiled-cache", &*cache];
    let (server, upstream) = (WebServer::over_tls("lists.example"), anything());
    let text = fetching(&server, folder.path(), upstream.address);
    server.answer(|_| page("503 Service Unavailable", "", ""));
    // Without a list, it answers queries all the same.
    let proxy = Proxy::start_with(&text, &arguments);
    proxy
        .process
        .logged("the server answered 503 Service Unavailable");
    assert!(!is_blocked(&proxy, "one.example"));
    server.serve("one.example\n", "a");
    until("the list counts", || is_blocked(&proxy, "one.example"));
    drop(proxy);
    server.answer(|_| page("503 Service Unavailable", "", ""));
    let proxy = Proxy::start_with(&text, &arguments);
    assert!(is_blocked(&proxy, "one.example"));
    assert!(refreshes(&proxy, "failed") >= 1.0);
}

#[test]
fn a_server_with_a_wrong_certificate_is_not_believed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (server, upstream) = (WebServer::over_tls("other.example"), anything());
    server.serve("one.example\n", "a");
    let proxy = Proxy::start(&fetching(&server, folder.path(), upstream.address));
    proxy
        .process
        .logged("certificate not valid for name \"lists.example\"");
    assert!(!is_blocked(&proxy, "one.example"));
    assert!(server.requests().is_empty());
}
