//! The admin address: `/health`, `/ready`, `/status`, and the page for a browser.

use crate::harness::browser::Browser;
use crate::harness::{Message, Proxy, Upstream, eventually, forward_once, needs, proxy, until};

const SOA: &str = "example. 300 SOA ns.example. root.example. 1 2 3 4 5";

/// A proxy with a filter, two zones and an upstream.
pub fn start() -> (Proxy, Upstream) {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1", SOA]);
    let proxy = Proxy::start(&format!(
        "filter \"table\" {{ module \"builtin:hosts\"; limits time=\"1s\"; config {{ host \"a.test\" \"192.0.2.7\" }} }}\n\
         zone \"test\" {{ use \"table\"; {0} }}\nzone \".\" {{ cache; {0} }}",
        forward_once(upstream.address)
    ));
    (proxy, upstream)
}

#[test]
fn health_and_readiness() {
    let (proxy, _upstream) = start();
    assert_eq!(proxy.get("/health").0, 200);
    assert_eq!(proxy.get("/ready").0, 200);
    assert_eq!(proxy.get("/nothing").0, 404);
    assert_eq!(
        proxy::request(proxy.admin, "POST", "/metrics").map(|(status, _)| status),
        Some(405)
    );
}

/// The status code for a request with these additional headers.
fn asked_with(proxy: &Proxy, path: &str, headers: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(proxy.admin).expect("a connection");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"
    )
    .expect("a sent request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let code = response.split_whitespace().nth(1).expect("a status");
    code.parse().expect("a number")
}

/// A web page whose name resolves to this address cannot read client data. Health checks work with any Host.
#[test]
fn pages_of_other_sites_read_no_status() {
    let proxy = Proxy::start("admin \"$ADMIN\" host=\"dns.lan\"\nzone \".\" { forward \"127.0.0.1:9\" }");
    let own = format!("Host: {}\r\n", proxy.admin);
    for (headers, expected) in [
        (own.as_str(), 200),
        ("Host: localhost:9253\r\n", 200),
        ("Host: DNS.lan:9253\r\n", 200),
        (&format!("{own}Origin: http://{}\r\n", proxy.admin), 200),
        ("Host: evil.example:9253\r\n", 421),
        (
            "Host: evil.example:9253\r\nOrigin: http://evil.example:9253\r\n",
            421,
        ),
        (&format!("{own}Origin: http://evil.example\r\n"), 421),
    ] {
        for path in ["/", "/status"] {
            assert_eq!(asked_with(&proxy, path, headers), expected, "{path} {headers}");
        }
        for path in ["/health", "/ready", "/metrics"] {
            assert_eq!(asked_with(&proxy, path, headers), 200, "{path} {headers}");
        }
    }
}

#[test]
fn an_address_may_serve_health_and_metrics_alone() {
    let text = "admin \"$ADMIN\" status=#false\nzone \".\" { forward \"127.0.0.1:9\" }";
    let proxy = Proxy::start(text);
    let codes =
        |proxy: &Proxy| ["/health", "/ready", "/metrics", "/", "/status"].map(|path| proxy.get(path).0);
    assert_eq!(codes(&proxy), [200, 200, 200, 404, 404]);
    let top = proxy::command()
        .args(["top", "--once", "--admin", &proxy.admin.to_string()])
        .output()
        .expect("a program");
    let complaint = String::from_utf8_lossy(&top.stderr);
    assert!(
        !top.status.success() && complaint.contains("status=#false"),
        "{complaint}"
    );
    proxy.reload(&text.replace(" status=#false", ""));
    assert_eq!(codes(&proxy), [200; 5]);
}

/// Silent connections do not block others.
#[test]
fn silent_clients_do_not_keep_others_out() {
    let (proxy, _upstream) = start();
    let silent: Vec<std::net::TcpStream> = (0..300)
        .map(|_| std::net::TcpStream::connect(proxy.admin).expect("a connection"))
        .collect();
    assert_eq!(proxy.get("/health").0, 200);
    let open = proxy.process.descriptors();
    assert!(
        open < 200,
        "{open} descriptors beside {} silent clients",
        silent.len()
    );
}

/// A running process that is not ready says so, and why: a stopping proxy must get no new queries.
#[test]
fn a_stopping_proxy_is_not_ready() {
    let gate = crate::harness::upstream::Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        crate::harness::Reply::Behind(
            behind.clone(),
            Box::new(asked.answer(&["slow.example. 1 A 192.0.2.1"])),
        )
    });
    let mut proxy = Proxy::start(&format!("zone \".\" {{ {} }}", forward_once(upstream.address)));
    let socket = crate::harness::client::socket(proxy.address);
    socket
        .send(&Message::query("slow.example", "A").encode())
        .expect("a sent query");
    upstream.await_count("slow.example", 1);
    proxy.process.signal("TERM");
    let reasons = eventually("the proxy to be unready", || {
        match proxy::try_get(proxy.admin, "/ready") {
            Some((503, reasons)) => Some(reasons),
            _ => None,
        }
    });
    assert!(!reasons.trim().is_empty());
    gate.open();
    assert!(proxy.process.ended().success());
}

#[test]
fn status_is_json_about_this_process() {
    let (proxy, _upstream) = start();
    let (status, body) = proxy.get("/status");
    assert_eq!(status, 200);
    let json: serde_json::Value =
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    for expected in [proxy.address.to_string(), "table".to_owned(), "test.".to_owned()] {
        assert!(body.contains(&expected), "`{expected}` is not in {json:#}");
    }
    assert!(
        json.get("generation").is_some_and(serde_json::Value::is_number),
        "{json:#}"
    );
    assert!(
        json.get("version").is_some_and(serde_json::Value::is_string),
        "{json:#}"
    );
}

/// The browser page shows everything, on wide and on small screens, without errors.
#[test]
fn the_page_shows_what_there_is() {
    if !needs(&["chromium"]) {
        return;
    }
    let (proxy, upstream) = start();
    let address = format!("http://{}/", proxy.admin);
    for (width, dark) in [(1280, false), (390, true)] {
        let mut browser = Browser::start(width, 900, dark);
        browser.open(&address);
        let shown = |browser: &mut Browser| {
            let text = browser.value("document.body ? document.body.innerText : \"\"");
            text.as_str().unwrap_or_default().to_owned()
        };
        let to = upstream.address.to_string();
        for words in [
            "ready",
            "use table",
            "builtin:hosts",
            "test.",
            &to,
            "in use",
            "From the cache",
        ] {
            until(words, || shown(&mut browser).contains(words));
        }
        // Rates need two samples, with a query in between.
        until("a rate", || {
            proxy.query("www.example", "A");
            let text = shown(&mut browser);
            let queries = text
                .split("Queries\n")
                .nth(1)
                .and_then(|rest| rest.split("/s").next());
            queries
                .and_then(|rate| rate.parse::<f64>().ok())
                .is_some_and(|rate| rate > 0.0)
        });
        let across = browser.value("document.documentElement.scrollWidth").as_u64();
        assert!(
            across.is_some_and(|across| across <= u64::from(width)),
            "{across:?} of {width}"
        );
        let ground = browser.value("getComputedStyle(document.body).backgroundColor");
        assert_eq!(ground == "rgb(17, 21, 27)", dark, "{ground}");
        assert_eq!(browser.complaints, Vec::<String>::new());
    }
}
