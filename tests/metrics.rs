//! `/metrics`: its content, its formats, and its consumers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::admin::start;
use crate::harness::address::fresh_socket;
use crate::harness::api_server::ApiServer;
use crate::harness::certificates::Authority;
use crate::harness::encrypted::TlsFront;
use crate::harness::guests::root;
use crate::harness::metrics::Metrics;
use crate::harness::process::Process;
use crate::harness::{Message, Proxy, address, eventually, needs, proxy, tools, until};

/// The metrics match those in docs/reference/metrics.md, and all have descriptions.
#[test]
fn metrics_are_documented_and_described() {
    let (proxy, upstream) = start();
    proxy.query("www.example", "A");
    proxy.query("a.test", "A");
    let metrics = proxy.metrics();
    assert_eq!(metrics.undescribed(), BTreeSet::new());
    let page =
        std::fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page about metrics");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect();
    assert!(listed.len() > 20, "{listed:?}");
    let mut served: BTreeSet<String> = metrics.families();
    // Metrics that need a cluster, a node's pods, a zone file, dnstap, or TLS upstreams.
    let (server, folder) = (ApiServer::start(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("secret")).expect("a kubeconfig");
    let zone = folder.path().join("zone");
    std::fs::write(&zone, "@ 60 SOA ns admin 1 2 3 4 5\n").expect("a zone file");
    let names = folder.path().join("names");
    std::fs::write(&names, "ads.example\n").expect("a list");
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
         zone \"s\" {{ lists {{ list \"l\" {{ source {names:?} }} }}; secondary \"{}\" }}\n\
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
    if needs(&["promtool"]) {
        for page in [proxy.get("/metrics").1, special.get("/metrics").1] {
            assert_eq!(complaints(&page), "", "{page}");
        }
    }
}

/// The complaints of Prometheus's own tool about a page in text format: syntax, names and missing help.
fn complaints(page: &str) -> String {
    use std::process::Stdio;
    let mut promtool = tools::command("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program");
    let mut input = promtool.stdin.take().expect("its input");
    input.write_all(page.as_bytes()).expect("a page that is read");
    drop(input);
    let output = promtool.wait_with_output().expect("its output");
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// A response: its head in lowercase, and its body.
fn response(server: SocketAddr, headers: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server).expect("a connection");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {server}\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a sent request");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    let end = response.windows(4).position(|octets| octets == b"\r\n\r\n");
    let body = response.split_off(end.expect("a head") + 4);
    (String::from_utf8_lossy(&response).to_ascii_lowercase(), body)
}

/// OpenMetrics for clients that ask for it, the text format for others, and both in gzip.
#[test]
fn metrics_come_as_they_are_asked_for() {
    let (proxy, _upstream) = start();
    let (open_metrics, text) = (
        "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n",
        "content-type: text/plain; version=0.0.4; charset=utf-8\r\n",
    );
    for (headers, content_type, compressed) in [
        ("", text, false),
        ("Accept: */*\r\nAccept-Encoding: identity\r\n", text, false),
        ("Accept-Encoding: gzip\r\n", text, true),
        (
            "Accept: application/openmetrics-text;version=1.0.0\r\n",
            open_metrics,
            false,
        ),
        (
            "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\nAccept-Encoding: gzip\r\n",
            open_metrics,
            true,
        ),
    ] {
        let (head, mut body) = response(proxy.admin, headers);
        assert!(head.contains(content_type), "{headers} {head}");
        assert!(
            head.contains("vary: accept\r\n") && head.contains("vary: accept-encoding\r\n"),
            "{head}"
        );
        assert_eq!(head.contains("content-encoding: gzip\r\n"), compressed, "{head}");
        if compressed {
            let mut page = Vec::new();
            let small = std::mem::take(&mut body);
            flate2::read::GzDecoder::new(&small[..])
                .read_to_end(&mut page)
                .expect("gzip");
            assert!(small.len() * 3 < page.len(), "{} of {}", small.len(), page.len());
            body = page;
        }
        let page = String::from_utf8(body).expect("text");
        assert_eq!(page.ends_with("# EOF\n"), content_type == open_metrics);
        let family = if content_type == text {
            "dnsweir_requests_total"
        } else {
            "dnsweir_requests"
        };
        assert!(page.contains(&format!("# TYPE {family} counter\n")), "{page}");
        assert!(Metrics::parse(&page).has("dnsweir_build_info", &[]), "{page}");
    }
}

/// The standard process metrics are those of this process.
#[test]
fn the_process_shows_what_every_process_does() {
    let before = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time")
        .as_secs_f64();
    let (proxy, _upstream) = start();
    let metrics = proxy.metrics();
    let value = |name: &str| {
        assert!(metrics.has(name, &[]), "{name}");
        metrics.sum(name, &[])
    };
    let resident = value("process_resident_memory_bytes");
    assert!(
        resident > 1e6 && resident < value("process_virtual_memory_bytes"),
        "{resident}"
    );
    let open = value("process_open_fds");
    assert!(open > 5.0 && open < value("process_max_fds"), "{open}");
    let after = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time")
        .as_secs_f64();
    let started = value("process_start_time_seconds");
    // The kernel reports the machine's start time in whole seconds.
    assert!(
        before - 2.0 < started && started < after + 2.0,
        "{before} {started} {after}"
    );
    let used = value("process_cpu_seconds_total");
    until("a query to use the processor", || {
        proxy.query("www.example", "A");
        proxy.metrics().sum("process_cpu_seconds_total", &[]) > used
    });
}

/// The parts in docs/reference/memory.md match the actual ones.
#[test]
fn the_parts_of_the_ceiling_are_documented() {
    let (proxy, _upstream) = start();
    let page =
        std::fs::read_to_string(root().join("docs/reference/memory.md")).expect("the page about memory");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<String> = rows
        .map(|row| row.split('`').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        listed,
        proxy.metrics().values("dnsweir_memory_ceiling_bytes", "part")
    );
}

/// The counts match the queries, by zone, server, transport, type and rcode.
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
    // The second verdict may have been remembered; each worker remembers its own.
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

/// Buckets are cumulative, and the last one is the count.
fn histograms_are_cumulative(metrics: &Metrics) {
    let buckets = metrics
        .samples()
        .iter()
        .filter(|sample| sample.name.ends_with("_bucket"));
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
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

/// A real Prometheus parses the page: types and help, labels and values.
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
    // Its answer to a query: the values of all matching series.
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
