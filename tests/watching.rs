//! Queries and problems as shown by `/status`, the browser page and `dnsweir top`.

use std::net::SocketAddr;
use std::process::Output;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::address::fresh_socket;
use crate::harness::browser::Browser;

use crate::harness::namespace::Namespace;
use crate::harness::process::Process;
use crate::harness::upstream::Gate;
use crate::harness::{Message, Proxy, Reply, Upstream, client, forward_once, needs, proxy, tools, until};

/// A proxy in front of an upstream that answers most names, fails some, and delays others until the gate
/// opens.
fn start(more: &str) -> (Proxy, Upstream, Gate) {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let name = asked.name();
        let answer = asked.answer(&[&format!("{name} 300 A 192.0.2.1")]);
        match name {
            name if name.starts_with("broken") => asked.denial("SERVFAIL", None),
            name if name.starts_with("slow") => Reply::Behind(behind.clone(), Box::new(answer)),
            _ => answer,
        }
    });
    let forward = forward_once(upstream.address);
    let proxy = Proxy::start(&format!("{more}\nzone \".\" {{ cache; {forward} }}\n"));
    (proxy, upstream, gate)
}

fn ask_everything(proxy: &Proxy, upstream: &Upstream, gate: &Gate) {
    for _ in 0..5 {
        proxy.query("often.test", "A");
    }
    proxy.query("once.test", "A");
    proxy.query("broken.test", "AAAA");
    let slow = client::socket(proxy.address);
    let query = Message::query("slow.test", "A");
    slow.send(&query.encode()).expect("a sent query");
    // Long enough to count as slow, measured from when the proxy certainly had the query.
    upstream.await_count("slow.test", 1);
    thread::sleep(Duration::from_millis(700));
    gate.open();
    until("the slow answer", || {
        proxy.query("slow.test", "A").rcode() == "NOERROR"
    });
}

/// Waits until a failed query is recorded: what cannot be recorded soon is left out.
fn await_failure(proxy: &Proxy) {
    until("a failed query", || {
        proxy.query("broken.test", "AAAA");
        !queries(proxy)["failed"][0].is_null()
    });
}

fn queries(proxy: &Proxy) -> Value {
    let (_, status) = proxy.get("/status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    status["queries"].clone()
}

fn top(admin: SocketAddr, more: &[&str]) -> Output {
    let mut command = proxy::command();
    command.args(["top", "--admin", &admin.to_string(), "--interval", "1"]);
    command.args(more).output().expect("dnsweir")
}

#[test]
fn names_clients_and_troubles_are_known() {
    let (proxy, upstream, gate) = start("");
    ask_everything(&proxy, &upstream, &gate);
    await_failure(&proxy);
    let queries = queries(&proxy);
    let names: Vec<&str> = queries["names"]
        .as_array()
        .expect("names")
        .iter()
        .filter_map(|name| name["name"].as_str())
        .collect();
    assert_eq!(names.first(), Some(&"often.test."), "{queries:#}");
    assert!(names.contains(&"once.test."), "{queries:#}");
    assert_eq!(queries["clients"][0]["address"], "127.0.0.1");
    let failed = &queries["failed"][0];
    assert_eq!(
        [&failed["name"], &failed["type"], &failed["rcode"]],
        ["broken.test.", "AAAA", "SERVFAIL"]
    );
    let slow = &queries["slow"][0];
    assert_eq!([&slow["name"], &slow["source"]], ["slow.test.", "upstream"]);
    assert!(
        slow["milliseconds"].as_f64().is_some_and(|time| time >= 700.0),
        "{slow:#}"
    );
}

/// Unique names from all possible clients do not make it grow.
#[test]
fn what_is_kept_is_bounded() {
    let (proxy, _upstream, _gate) = start("");
    let socket = client::socket(proxy.address);
    for index in 0..2000 {
        let query = Message::query(&format!("broken-{index}.test"), "A");
        socket.send(&query.encode()).expect("a sent query");
        if index % 50 == 0 {
            proxy.query(&format!("name-{index}.test"), "A");
        }
    }
    until("all of them", || {
        proxy.metrics().sum("dnsweir_responses_total", &[]) >= 2000.0
    });
    let queries = queries(&proxy);
    let length = |list: &str| queries[list].as_array().map_or(0, Vec::len);
    assert!(
        length("failed") > 1 && length("failed") <= 50,
        "{}",
        length("failed")
    );
    assert!(length("names") <= 20 && length("clients") == 1, "{queries:#}");
}

#[test]
fn the_configuration_may_keep_it_to_itself() {
    let (proxy, upstream, gate) = start("admin \"$ADMIN\" queries=#false");
    ask_everything(&proxy, &upstream, &gate);
    assert_eq!(queries(&proxy), Value::Null);
    let shown = String::from_utf8(top(proxy.admin, &["--once"]).stdout).expect("text");
    assert!(
        shown.contains("dnsweir ") && !shown.contains("often.test"),
        "{shown}"
    );
}

/// On an address that others can reach, names and clients are shown only if the configuration allows it.
#[test]
fn names_and_clients_are_shown_on_loopback() {
    if !needs(&["root", "ip", "nsenter", "dig"]) {
        return;
    }
    let network = Namespace::new();
    tools::output(
        network
            .tool("ip")
            .args(["addr", "add", "192.0.2.77/32", "dev", "lo"]),
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = "listen \"127.0.0.1\"\nadmin \"127.0.0.1\" \"192.0.2.77\"\n\
                filter \"table\" { module \"builtin:hosts\"; config { host \"often.test\" \"192.0.2.7\" } }\n\
                zone \".\" { use \"table\" }\n";
    std::fs::write(&file, text).expect("a configuration file");
    let _process = Process::start(proxy::command_in(&network).arg("run").arg("--config").arg(&file));
    let shows = |admin: &str| {
        let mut dig = network.tool("dig");
        dig.args(["@127.0.0.1", "+notcp", "+tries=1", "+time=1", "often.test"]);
        let _ = dig.output().expect("dig");
        let mut top = proxy::command_in(&network);
        top.args(["top", "--once", "--interval", "1", "--admin", admin]);
        let shown = String::from_utf8(top.output().expect("a program").stdout).expect("text");
        shown.contains("dnsweir ").then(|| shown.contains("often.test"))
    };
    until("the name to be shown on loopback", || {
        shows("127.0.0.1:9253") == Some(true)
    });
    assert_eq!(shows("192.0.2.77:9253"), Some(false));
    std::fs::write(
        &file,
        text.replace("192.0.2.77\"\n", "192.0.2.77\" queries=#true\n"),
    )
    .expect("a configuration file");
    until("the name to be shown when asked for", || {
        shows("192.0.2.77:9253") == Some(true)
    });
}

#[test]
fn top_prints_what_an_interval_has_shown() {
    let (proxy, upstream, gate) = start("");
    ask_everything(&proxy, &upstream, &gate);
    await_failure(&proxy);
    let done = top(proxy.admin, &["--once"]);
    let text = String::from_utf8(done.stdout).expect("text");
    assert!(done.status.success(), "{text}");
    for words in [
        "ready",
        "ZONE",
        "cache → forward",
        "UPSTREAM",
        &upstream.address.to_string(),
        "in use",
        "often.test.",
        "127.0.0.1",
        "FAILED",
        "broken.test. AAAA",
        "SLOW",
        "slow.test. A",
    ] {
        assert!(text.contains(words), "`{words}` is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn top_says_who_does_not_answer() {
    let nobody = fresh_socket();
    let done = top(nobody, &["--once"]);
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success());
    assert!(
        complaint.contains(&format!("cannot read {nobody}: ")) && complaint.contains("--admin"),
        "{complaint}"
    );
    let (proxy, _upstream, _gate) = start("");
    // A listener for queries is not an admin address.
    let done = top(proxy.address, &["--once"]);
    assert!(
        !done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stdout)
    );
}

#[test]
fn the_page_shows_who_asks_and_what_failed() {
    if !needs(&["chromium"]) {
        return;
    }
    let (proxy, upstream, gate) = start("");
    ask_everything(&proxy, &upstream, &gate);
    await_failure(&proxy);
    for (width, dark) in [(1280, false), (390, true)] {
        let mut browser = Browser::start(width, 900, dark);
        browser.open(&format!("http://{}/", proxy.admin));
        for words in [
            "Busiest names",
            "often.test.",
            "Busiest clients",
            "Recent failures",
            "broken.test. AAAA",
            "Recent slow queries",
        ] {
            until(words, || {
                let text = browser.value("document.body ? document.body.innerText : \"\"");
                text.as_str().unwrap_or_default().contains(words)
            });
        }
        let across = browser.value("document.documentElement.scrollWidth").as_u64();
        assert!(
            across.is_some_and(|across| across <= u64::from(width)),
            "{across:?} of {width}"
        );
        assert_eq!(browser.complaints, Vec::<String>::new());
    }
}
