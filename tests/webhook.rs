//! `dnsweir webhook` as the API server uses it: over HTTPS, with valid and invalid reviews. Its changes of
//! pods are tested next to the code, and with a real API server in `tests/node/cluster`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::api_server::{ApiServer, failure};
use crate::harness::certificates::Authority;
use crate::harness::encrypted::{TlsClient, trusting};
use crate::harness::guests::root;
use crate::harness::metrics::Metrics;
use crate::harness::process::Process;
use crate::harness::proxy::{self, command};
use crate::harness::{PATIENCE, address, needs, tools, until};

/// The name in its certificate.
const HOST: &str = "dnsweir-webhook.kube-system.svc";

/// A running webhook, with files for a certificate from `authority`.
struct Webhook {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    folder: tempfile::TempDir,
}

impl Webhook {
    fn start(authority: &Authority, flags: &[&str]) -> Webhook {
        let folder = tempfile::tempdir().expect("a folder");
        let address = address::fresh_socket();
        let admin = SocketAddr::new(address.ip(), 9253);
        let (certificate, key) = authority.issue(&[HOST]).write(folder.path(), "tls");
        let mut run = command();
        run.arg("webhook").args(["--log-level", "debug"]).args(flags);
        run.args(["--listen", &address.to_string(), "--admin", &admin.to_string()]);
        run.arg("--certificate").arg(certificate).arg("--key").arg(key);
        let process = Process::start(&mut run);
        until("the webhook to be ready", || {
            proxy::try_get(admin, "/ready").is_some_and(|(status, _)| status == 200)
        });
        Webhook {
            process,
            address,
            admin,
            folder,
        }
    }

    /// A webhook that points pods at the node.
    fn pointing(authority: &Authority, more: &[&str]) -> Webhook {
        let flags = ["--local-address", "169.254.20.10", "--cluster-dns", "10.96.0.10"];
        Webhook::start(authority, &[&flags[..], more].concat())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends a body with curl, which trusts `authority`. Returns the status and the reply, if TLS succeeds.
    fn post(&self, authority: &Authority, path: &str, body: &[u8], more: &[&str]) -> Option<(u16, String)> {
        let (ca, file) = (self.path("ca.pem"), self.path("body"));
        fs::write(&ca, authority.pem()).expect("a file");
        fs::write(&file, body).expect("a file");
        let address = self.address;
        let mut curl = tools::command("curl");
        curl.args([
            "-sS",
            "-w",
            "\n%{http_code}",
            "-H",
            "content-type: application/json",
        ])
        .arg("--cacert")
        .arg(ca)
        .args([
            "--resolve",
            &format!("{HOST}:{}:{}", address.port(), address.ip()),
        ])
        .args(["--data-binary", &format!("@{}", file.display())])
        .args(more)
        .arg(format!("https://{HOST}:{}{path}", address.port()));
        let output = curl.stdin(Stdio::null()).output().expect("curl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (said, status) = text.rsplit_once('\n')?;
        match status.parse().expect("a status") {
            0 => None,
            status => Some((status, said.to_owned())),
        }
    }

    fn review(&self, authority: &Authority, pod: &Value) -> Option<Value> {
        let (status, said) = self.post(authority, "/inject?timeout=2s", review(pod).as_bytes(), &[])?;
        assert_eq!(status, 200, "{said}");
        Some(serde_json::from_str(&said).expect("JSON"))
    }

    fn metrics(&self) -> Metrics {
        let (status, text) = proxy::try_get(self.admin, "/metrics").expect("metrics");
        assert_eq!(status, 200, "{text}");
        Metrics::parse(&text)
    }
}

fn review(pod: &Value) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "namespace": "team", "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod,
        },
    })
    .to_string()
}

fn pod() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"dnsPolicy": "ClusterFirst"}})
}

/// Replaces the certificate and key files, each atomically.
fn replace(folder: &Path, certificate: &str, key: &str) {
    for (name, text) in [("tls.key", key), ("tls.pem", certificate)] {
        replace_file(folder, name, text);
    }
}

fn replace_file(folder: &Path, name: &str, text: &str) {
    let new = folder.join("new");
    fs::write(&new, text).expect("a file");
    fs::rename(&new, folder.join(name)).expect("a file");
}

#[test]
fn pods_are_changed_over_https() {
    if !needs(&["curl"]) {
        return;
    }
    let authority = Authority::new();
    let mut webhook = Webhook::pointing(&authority, &["--option", "timeout:1"]);
    let answer = webhook.review(&authority, &pod()).expect("an answer");
    assert_eq!(
        (&answer["response"]["uid"], &answer["response"]["allowed"]),
        (&json!("u-1"), &json!(true))
    );
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    assert!(answer["response"]["patch"].is_string(), "{answer}");
    webhook.process.logged("/spec/dnsConfig/searches");
    let own = json!({"spec": {"dnsPolicy": "Default"}});
    let answer = webhook.review(&authority, &own).expect("an answer");
    assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true}));
    let metrics = webhook.metrics();
    for result in ["changed", "policy"] {
        assert_eq!(
            metrics.sum("dnsweir_webhook_pods_total", &[("result", result)]),
            1.0,
            "{result}"
        );
    }
    webhook.process.signal("TERM");
    assert!(webhook.process.ended().success());

    let webhook = Webhook::pointing(&authority, &["--dry-run"]);
    let answer = webhook.review(&authority, &pod()).expect("an answer");
    assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true}));
    let said = webhook.process.logged("dry run");
    assert!(said.contains("/spec/dnsPolicy") && said.contains("web"), "{said}");
    assert_eq!(
        webhook
            .metrics()
            .sum("dnsweir_webhook_pods_total", &[("result", "dry_run")]),
        1.0
    );
}

#[test]
fn bad_requests_are_refused_and_told() {
    if !needs(&["curl"]) {
        return;
    }
    let authority = Authority::new();
    let webhook = Webhook::start(&authority, &["--options-only", "--option", "use-vc"]);
    let large = vec![b' '; (3 << 20) + 1];
    let whole = [review(&pod()).as_bytes(), &large[..(3 << 20) - 1000]].concat();
    for (path, body, more, expected) in [
        ("/inject", &b"{]"[..], &[][..], 400),
        ("/inject", b"", &[], 400),
        ("/inject", &[0xff; 1000], &[], 400),
        ("/inject", &large, &[], 413),
        // Without a Content-Length.
        ("/inject", &large, &["-H", "transfer-encoding: chunked"], 413),
        ("/inject", b"{}", &["-X", "PUT"], 405),
        ("/", b"{}", &[], 404),
        ("/inject", &whole, &[], 200),
    ] {
        let (status, said) = webhook.post(&authority, path, body, more).expect("an answer");
        assert_eq!(status, expected, "{path} {more:?}: {said}");
    }
    webhook
        .process
        .logged("a request was refused: this is not an AdmissionReview about a pod");
    let metrics = webhook.metrics();
    for (reason, count) in [
        ("malformed", 3.0),
        ("too_large", 2.0),
        ("path", 2.0),
        ("timeout", 0.0),
    ] {
        let refused = metrics.sum("dnsweir_webhook_refused_total", &[("reason", reason)]);
        assert_eq!(refused, count, "{reason}");
    }
}

/// Neither a silent client nor many of them keep the API server out for long.
#[test]
fn silent_clients_are_let_go() {
    if !needs(&["curl", "openssl"]) {
        return;
    }
    let authority = Authority::new();
    let webhook = Webhook::pointing(&authority, &[]);
    let mut silent = tools::command("openssl");
    silent.args(["s_client", "-connect", &webhook.address.to_string(), "-quiet"]);
    // Its input stays open as long as it lives.
    silent
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut silent = silent.spawn().expect("openssl");
    until("a connection", || {
        webhook.metrics().sum("dnsweir_webhook_connections", &[]) == 1.0
    });
    let many: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(webhook.address).expect("a connection"))
        .collect();
    assert!(webhook.review(&authority, &pod()).is_some());
    // They were closed before their time limit.
    let sum = |name: &str| webhook.metrics().sum(name, &[]);
    let dismissed = || sum("dnsweir_webhook_dismissed_connections_total");
    assert!(dismissed() >= 100.0);
    for mut stream in many {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let read = stream.read(&mut [0; 1]);
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    until("the silent client to be let go", || {
        silent.try_wait().expect("openssl").is_some()
    });
    until("all connections to be gone", || {
        webhook.metrics().sum("dnsweir_webhook_connections", &[]) == 0.0
    });
    assert!(dismissed() + sum("dnsweir_webhook_failed_handshakes_total") >= 300.0);
}

/// Slow request bodies delay only themselves.
#[test]
fn slow_bodies_keep_nobody_out() {
    if !needs(&["curl"]) {
        return;
    }
    let authority = Authority::new();
    let webhook = Webhook::pointing(&authority, &[]);
    let head = "POST /inject HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{";
    let slow: Vec<TlsClient> = (0..40)
        .map(|_| {
            let mut client = TlsClient::connect(webhook.address, HOST, trusting(&authority));
            client.write(head.as_bytes());
            client
        })
        .collect();
    assert!(webhook.review(&authority, &pod()).is_some());
    let refused = [("reason", "timeout")];
    let refused = webhook.metrics().sum("dnsweir_webhook_refused_total", &refused);
    assert_eq!((refused, slow.len()), (0.0, 40), "no time had to end first");
}

/// Like an API server with a client certificate for webhooks.
#[test]
fn with_authorities_of_clients_others_cannot_ask() {
    if !needs(&["curl"]) {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("clients.pem");
    fs::write(&ca, clients.pem()).expect("a file");
    let webhook = Webhook::pointing(&authority, &["--client-ca", &ca.display().to_string()]);
    assert!(webhook.review(&authority, &pod()).is_none(), "it is nobody");
    for (issuer, is_known) in [(&clients, true), (&authority, false)] {
        let (certificate, key) = issuer.issue(&["kube-apiserver"]).write(folder.path(), "client");
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let with = ["--cert", &*certificate, "--key", &*key];
        let answer = webhook.post(&authority, "/inject", review(&pod()).as_bytes(), &with);
        assert_eq!(answer.is_some_and(|(status, _)| status == 200), is_known);
    }
}

#[test]
fn authorities_of_clients_are_read_again() {
    if !needs(&["curl"]) {
        return;
    }
    let [authority, one, other] = [(); 3].map(|()| Authority::new());
    let folder = tempfile::tempdir().expect("a folder");
    replace_file(folder.path(), "clients.pem", &one.pem());
    let ca = folder.path().join("clients.pem").display().to_string();
    let webhook = Webhook::pointing(&authority, &["--client-ca", &ca]);
    let [one_may, other_may] = [("one", &one), ("other", &other)].map(|(name, issuer)| {
        let (certificate, key) = issuer.issue(&["kube-apiserver"]).write(folder.path(), name);
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let (webhook, authority) = (&webhook, &authority);
        move || {
            let with = ["--cert", &*certificate, "--key", &*key];
            let answer = webhook.post(authority, "/inject", review(&pod()).as_bytes(), &with);
            answer.is_some_and(|(status, _)| status == 200)
        }
    });
    assert!(one_may() && !other_may());
    replace_file(folder.path(), "clients.pem", &other.pem());
    until("the new authority", &other_may);
    assert!(!one_may());
    // An unusable file is reported, and changes nothing.
    replace_file(folder.path(), "clients.pem", "no PEM");
    webhook.process.logged("clients.pem has no certificate in PEM");
    assert!(other_may() && !one_may());
}

/// What makes its own certificate goes on when the API server gets another authority.
#[test]
fn a_new_authority_of_the_api_server_is_trusted() {
    if !needs(&["root", "unshare"]) {
        return;
    }
    let [before, after] = [Authority::new(), Authority::new()];
    let server = ApiServer::start();
    server.present(&before.issue(&["127.0.0.1"]));
    server.fail(|_| Some(failure(404, "NotFound", 0)));
    let account = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("token", "secret"),
        ("namespace", "kube-system"),
        ("ca.crt", &before.pem()),
    ] {
        fs::write(account.path().join(name), text).expect("a file");
    }
    let place = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mount = format!(
        "mount -t tmpfs none /var/run && mkdir -p {place} && mount --bind \"$0\" {place} && exec \"$@\""
    );
    let address = address::fresh_socket();
    let admin = SocketAddr::new(address.ip(), 9253);
    let mut run = tools::command("unshare");
    run.args(["--mount", "--propagation", "private", "sh", "-c", &mount])
        .arg(account.path())
        .arg(proxy::program())
        .args(["webhook", "--local-address", "169.254.20.10"])
        .args(["--cluster-dns", "10.96.0.10"])
        .args(["--listen", &address.to_string(), "--admin", &admin.to_string()])
        .env("KUBERNETES_SERVICE_HOST", server.address.ip().to_string())
        .env("KUBERNETES_SERVICE_PORT", server.address.port().to_string());
    let process = Process::start(&mut run);
    let asked = || server.count("/secrets/dnsweir-webhook");
    until("the API server to be asked", || asked() > 0);
    server.present(&after.issue(&["127.0.0.1"]));
    let of_before = asked();
    process.logged("invalid peer certificate");
    replace_file(account.path(), "ca.crt", &after.pem());
    until("the API server to be asked again", || asked() > of_before);

    // Without any, nothing is asked, which is one failure each time.
    fs::remove_file(account.path().join("ca.crt")).expect("a file");
    process.logged("ca.crt: No such file");
    let errors = || {
        let (_, text) = proxy::try_get(admin, "/metrics").expect("metrics");
        Metrics::parse(&text).sum("dnsweir_webhook_certificate_errors_total", &[])
    };
    let (asked_before, errors_before) = (asked(), errors());
    until("two more failures", || errors() >= errors_before + 2.0);
    assert_eq!(asked(), asked_before);
}

#[test]
fn certificates_are_read_again() {
    if !needs(&["curl"]) {
        return;
    }
    let (one, other) = (Authority::new(), Authority::new());
    let webhook = Webhook::pointing(&one, &[]);
    assert!(webhook.review(&one, &pod()).is_some());
    assert!(webhook.review(&other, &pod()).is_none(), "nobody vouches for it");
    let renewed = other.issue_between(&[HOST], 2020, 2070);
    replace(webhook.folder.path(), &renewed.pem, &renewed.key_pem);
    until("the new certificate", || webhook.review(&other, &pod()).is_some());
    assert!(webhook.review(&one, &pod()).is_none());
    let expiry = "dnsweir_webhook_certificate_expiry_timestamp_seconds";
    assert_eq!(webhook.metrics().sum(expiry, &[]), 3_155_760_000.0);

    // An unusable pair is reported, and changes nothing.
    let foreign = one.issue(&[HOST]);
    replace(webhook.folder.path(), &renewed.pem, &foreign.key_pem);
    webhook.process.logged("is the key of another certificate");
    replace(webhook.folder.path(), "no PEM", &renewed.key_pem);
    webhook.process.logged("has no certificate in PEM");
    assert!(webhook.review(&other, &pod()).is_some());
    assert!(
        webhook
            .metrics()
            .sum("dnsweir_webhook_certificate_errors_total", &[])
            >= 2.0
    );
    replace(webhook.folder.path(), &foreign.pem, &foreign.key_pem);
    until("the old authority's", || webhook.review(&one, &pod()).is_some());
}

/// The metrics match those in docs/reference/webhook.md, and all have descriptions.
#[test]
fn its_metrics_are_documented() {
    let webhook = Webhook::pointing(&Authority::new(), &[]);
    let metrics = webhook.metrics();
    assert_eq!(metrics.undescribed(), BTreeSet::new());
    let page = fs::read_to_string(root().join("docs/reference/webhook.md")).expect("the page");
    let listed: BTreeSet<String> = page
        .split("## Metrics")
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("| `"))
        .filter(|row| !row.starts_with("--"))
        .map(|row| row.split('`').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(listed, metrics.families());
    let (status, text) = proxy::try_get(webhook.admin, "/status").expect("an answer");
    assert_eq!(
        (status, text.as_str()),
        (404, "there are /health, /ready and /metrics\n")
    );
}

#[test]
fn mistakes_on_the_command_line_are_told() {
    let local = ["--local-address", "169.254.20.10"];
    let both = [&local[..], &["--cluster-dns", "10.96.0.10"]].concat();
    let with = |more: &[&'static str]| [&both[..], more].concat();
    for (flags, expected) in [
        (vec![], "--local-address"),
        (local.to_vec(), "KUBE_DNS_SERVICE_HOST"),
        (with(&["--domain", "Cluster"]), "cluster.local"),
        (with(&["--option", "ndots:2"]), "ndots is given twice"),
        (with(&["--option", "a b"]), "timeout:1"),
        (with(&["--opt-out", "=x"]), "write a label"),
        (with(&["--options-only"]), "cannot be used with"),
        (vec!["--options-only"], "write --ndots or --option"),
        (with(&["--include-namespace", "default"]), "kube-public"),
        (with(&["--certificate", "/x"]), "--key"),
        (with(&["--client-ca", "/x"]), "/x: No such file"),
        (with(&["--certificate", "/x", "--key", "/x"]), "/x: No such file"),
        (with(&[]), "there is no service account"),
        (
            vec!["--local-address", "::1,::2,::3", "--cluster-dns", "::4"],
            "no room",
        ),
    ] {
        let refused = command()
            .arg("webhook")
            .args(&flags)
            .env_remove("KUBE_DNS_SERVICE_HOST")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()
            .expect("dnsweir");
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && told.contains(expected),
            "{flags:?}: {told}"
        );
    }
}
