//! The admin address: `/health`, `/ready`, `/status`, `/metrics`.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::harness::address::fresh_socket;
use crate::harness::api_server::ApiServer;
use crate::harness::browser::Browser;
use crate::harness::certificates::Authority;
use crate::harness::encrypted::TlsFront;
use crate::harness::guests::root;
use crate::harness::metrics::Metrics;
use crate::harness::process::Process;
use crate::harness::{
    Message, Proxy, Upstream, address, eventually, forward_once, needs, proxy, tools, until,
};

const SOA: &str = "example. 300 SOA ns.example. root.example. 1 2 3 4 5";

fn start() -> (Proxy, Upstream) {
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

/// The status code for a request with these headers, beside those that it needs.
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

/// A page whose name leads here reads nothing of what clients ask. Whoever checks health is not asked by which name.
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

/// Clients that connect and say nothing are not in the way of one that asks.
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

/// A process that is up but not ready says so, and why: what is stopping takes no more queries.
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

/// What docs/metrics.md lists is there, what is there is listed, and everything is described.
#[test]
fn metrics_are_documented_and_described() {
    let (proxy, upstream) = start();
    proxy.query("www.example", "A");
    proxy.query("a.test", "A");
    let metrics = proxy.metrics();
    assert_eq!(metrics.undescribed(), BTreeSet::new());
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).expect("the page about metrics");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect();
    assert!(listed.len() > 20, "{listed:?}");
    let mut served: BTreeSet<String> = metrics.families();
    // What only those show who follow a cluster or a node's pods, have a zone file or a tap, or ask over TLS.
    let (server, folder) = (ApiServer::start(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).expect("a kubeconfig");
    let zone = folder.path().join("zone");
    std::fs::write(&zone, "@ 60 SOA ns admin 1 2 3 4 5\n").expect("a zone file");
    let (authority, ca) = (Authority::new(), folder.path().join("ca.pem"));
    std::fs::write(&ca, authority.pem()).expect("a certificate");
    let certificate = authority.issue(&["dns.example"]);
    let front = TlsFront::before(upstream.address, certificate.server(None));
    let (ip, port) = (front.address.ip(), front.address.port());
    let (pem, key) = certificate.write(folder.path(), "server");
    let (tls, tap) = (fresh_socket(), folder.path().join("tap"));
    let primary = Proxy::start(&format!(
        "zone \"s\" {{ file {zone:?} {{ transfer {{ to \"127.0.0.0/8\" }} }} }}"
    ));
    let special = Proxy::start(&format!(
        "listen \"$LISTEN\" \"tls://{tls}\" {{ certificate {pem:?} key={key:?} }}\nadmin \"$ADMIN\"\n\
         pods {{ node \"here\"; kubeconfig {file:?} }}\ndnstap {tap:?}\n\
         zone \"x\" {{ kubernetes {{ kubeconfig {file:?} }} }}\nzone \"y\" {{ file {zone:?} {{ transfer {{ to \"192.0.2.1\" }} }} }}\n\
         zone \"z\" {{ service-entries {{ kubeconfig {file:?}; wait \"0s\" }}; forward \"192.0.2.1\" }}\n\
         zone \"s\" {{ secondary \"{}\" }}\n\
         zone \".\" {{ forward \"tls://{ip}%dns.example:{port}\" {{ tls {{ ca {ca:?} }} }} }}",
        primary.address
    ));
    special.query("www.example", "A");
    let more = special.metrics();
    assert_eq!(more.undescribed(), BTreeSet::new());
    served.extend(more.families());
    let served: BTreeSet<&str> = served.iter().map(String::as_str).collect();
    assert_eq!(listed, served);
    assert!(metrics.has("dnsweir_build_info", &[("version", env!("CARGO_PKG_VERSION"))]));
}

/// The numbers are those of what was asked, by zone, server, transport, type and rcode.
#[test]
fn metrics_agree_with_what_was_asked() {
    let (proxy, upstream) = start();
    let server = proxy.address.to_string();
    for _ in 0..3 {
        proxy.query("www.example", "A");
    }
    proxy.query("none.example", "AAAA");
    proxy.connect().ask(&Message::query("www.example", "A"));
    proxy.query("a.test", "A");
    proxy.query("a.test", "A");

    let root: [(&str, &str); 2] = [("server", &server), ("zone", ".")];
    let with = |label: &'static str, value: &'static str| [root[0], root[1], (label, value)];
    proxy.await_metric("dnsweir_requests_total", &root, 5.0);
    proxy.await_metric("dnsweir_requests_total", &with("proto", "tcp"), 1.0);
    proxy.await_metric("dnsweir_requests_total", &with("type", "AAAA"), 1.0);
    proxy.await_metric(
        "dnsweir_requests_total",
        &[("server", &server), ("zone", "test.")],
        2.0,
    );
    proxy.await_metric("dnsweir_responses_total", &with("rcode", "NOERROR"), 4.0);
    proxy.await_metric("dnsweir_responses_total", &with("rcode", "NXDOMAIN"), 1.0);
    proxy.await_metric("dnsweir_request_duration_seconds_count", &root, 5.0);
    proxy.await_metric("dnsweir_cache_hits_total", &[("zone", ".")], 3.0);
    proxy.await_metric("dnsweir_cache_misses_total", &[("zone", ".")], 2.0);
    let to = upstream.address.to_string();
    let sent = upstream.count("www.example") + upstream.count("none.example");
    proxy.await_metric(
        "dnsweir_forward_requests_total",
        &[("to", &to), ("proto", "udp")],
        sent as f64,
    );
    // The second time the verdict may have been remembered; each worker remembers its own.
    let of_table = [("filter", "table"), ("verdict", "answer")];
    let said = |metrics: &Metrics| metrics.sum("dnsweir_filter_verdicts_total", &of_table);
    let remembered = |metrics: &Metrics| metrics.sum("dnsweir_filter_remembered_total", &of_table[..1]);
    until("both verdicts to be counted", || {
        let metrics = proxy.metrics();
        said(&metrics) >= 1.0 && said(&metrics) + remembered(&metrics) == 2.0
    });
    let metrics = proxy.metrics();
    let calls = metrics.sum(
        "dnsweir_filter_calls_total",
        &[("filter", "table"), ("phase", "query")],
    );
    assert_eq!(calls, said(&metrics));
    histograms_are_cumulative(&metrics);
}

/// Buckets count up, and the last of them is the count.
fn histograms_are_cumulative(metrics: &Metrics) {
    let buckets = metrics
        .samples()
        .iter()
        .filter(|sample| sample.name.ends_with("_bucket"));
    let mut series: std::collections::BTreeMap<String, Vec<(f64, f64)>> = std::collections::BTreeMap::new();
    for bucket in buckets {
        let mut labels = bucket.labels.clone();
        let bound = labels.remove("le").expect("a bound");
        let bound = if bound == "+Inf" {
            f64::INFINITY
        } else {
            bound.parse().expect("a number")
        };
        series
            .entry(format!("{} {labels:?}", bucket.name))
            .or_default()
            .push((bound, bucket.value));
    }
    assert!(!series.is_empty());
    for (name, buckets) in series {
        assert!(
            buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1),
            "{name}: {buckets:?}"
        );
        assert_eq!(
            buckets.last().map(|(bound, _)| *bound),
            Some(f64::INFINITY),
            "{name}"
        );
    }
}

/// A real Prometheus reads the page: types and help, labels and values.
#[test]
fn prometheus_scrapes_the_metrics() {
    if !needs(&["prometheus"]) {
        return;
    }
    let (proxy, _upstream) = start();
    proxy.query("www.example", "A");
    let server = SocketAddr::new(address::fresh().into(), 9090);
    let file = proxy.folder().join("prometheus.yml");
    let scrape = format!(
        "scrape_configs:\n- job_name: dnsweir\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  static_configs:\n  \
         - targets: [\"{}\"]\n",
        proxy.admin
    );
    std::fs::write(&file, scrape).expect("a file");
    let _prometheus = Process::start(
        tools::command("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                proxy.folder().join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={server}")),
    );
    // What it answers to a query: the values of all series that match.
    let ask = |query: &str| -> Option<Vec<String>> {
        let (_, body) = proxy::try_get(server, &format!("/api/v1/query?query={query}"))?;
        let json: serde_json::Value = serde_json::from_str(&body).ok()?;
        let series = json["data"]["result"].as_array()?;
        Some(
            series
                .iter()
                .map(|one| one["value"][1].as_str().unwrap_or_default().to_owned())
                .collect(),
        )
    };
    until("Prometheus to scrape", || {
        ask("up").is_some_and(|values| values == ["1"])
    });
    let counted = "sum(dnsweir_requests_total%7Bzone=%22.%22,type=%22A%22%7D)";
    until("the query to be counted", || {
        ask(counted).is_some_and(|values| values == ["1"])
    });
    // The same under CoreDNS's name and labels.
    let counted = "sum(coredns_dns_requests_total%7Bzone=%22.%22,type=%22A%22,family=%221%22,view=%22%22%7D)";
    until("the query to be counted under CoreDNS's name", || {
        ask(counted).is_some_and(|values| values == ["1"])
    });
    let page = "/api/v1/metadata?metric=dnsweir_requests";
    let (_, metadata) = eventually("what Prometheus knows of a metric", || {
        proxy::try_get(server, page)
    });
    assert!(
        metadata.contains("\"counter\"") && metadata.contains("Queries received"),
        "{metadata}"
    );
}

/// The page for a browser shows what there is, on a wide screen and on a phone's, and complains of nothing.
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
        // Rates need two looks. A query or more between them is one.
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
