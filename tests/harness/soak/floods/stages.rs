//! The stage for floods: a proxy that answers from its own zone, from a cluster, by filters and over every
//! transport, and the webhook.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::super::super::api_server::ApiServer;
use super::super::super::certificates::Authority;
use super::super::super::guests::guest;
use super::super::super::process::Process;
use super::super::super::{Proxy, address, proxy, until};
use super::super::upstream::Upstream;

/// The name in the certificates.
pub const NAME: &str = "localhost";

/// Records in an RRset of the zone, and endpoints and ports of the service.
const WIDE: usize = 1500;

/// The whole stage. It ends when dropped.
pub struct Stage {
    /// The proxy.
    pub proxy: Proxy,
    /// Its upstreams.
    pub upstreams: [Upstream; 2],
    /// The configuration.
    pub text: String,
    /// The address for HTTPS and QUIC.
    pub encrypted: SocketAddr,
    /// The issuer of the certificates.
    pub authority: Authority,
    /// The webhook's address for the API server.
    pub webhook: SocketAddr,
    _webhook: Process,
    _folder: tempfile::TempDir,
}

impl Stage {
    /// Starts everything.
    pub fn start() -> Stage {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new();
        let upstreams = [Upstream::start(), Upstream::start()];
        let encrypted = address::fresh_socket();
        let text = configuration(folder.path(), &authority, &upstreams, encrypted);
        let (webhook, process) = start_webhook(folder.path(), &authority);
        Stage {
            proxy: Proxy::start(&text),
            upstreams,
            text,
            encrypted,
            authority,
            webhook,
            _webhook: process,
            _folder: folder,
        }
    }

    /// Returns the proxy's address for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.proxy.address
    }
}

fn configuration(
    folder: &Path,
    authority: &Authority,
    upstreams: &[Upstream; 2],
    encrypted: SocketAddr,
) -> String {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let (certificate, key) = authority.issue(&[NAME]).write(folder, "proxy");
    let forward = format!(
        "forward \"{}\" \"{}\"",
        upstreams[0].address, upstreams[1].address
    );
    let cluster = write("kubeconfig", &cluster().kubeconfig("secret"));
    let zone = write("own.test.zone", &zone());
    format!(
        "listen \"$LISTEN\" \"https://{encrypted}\" \"quic://{encrypted}\" {{\n    certificate \"{}\" key=\"{}\"\n}}\n\
         admin \"$ADMIN\"\n\
         filter \"hostile\" {{ module \"{}\"; limits memory=\"4MiB\" time=\"5ms\"; config {{ queries }} }}\n\
         filter \"rotation\" {{ module \"builtin:rotation\"; limits memory=\"4MiB\" time=\"50ms\" }}\n\
         zone \"own.test\" {{ file \"{zone}\" }}\n\
         zone \"cluster.test\" {{ kubernetes {{ kubeconfig \"{cluster}\" }} }}\n\
         zone \"edited.test\" {{ use \"rotation\"; cache; {forward} }}\n\
         zone \".\" {{ use \"hostile\"; cache; {forward} }}",
        certificate.display(),
        key.display(),
        guest("trap").display(),
    )
}

/// Returns a zone: a name with many SRV records, whose targets all match a wildcard with as many addresses.
fn zone() -> String {
    let mut zone =
        "$ORIGIN own.test.\n$TTL 300\n@ SOA ns hostmaster 1 7200 3600 86400 300\n@ NS ns\nns A 192.0.2.53\n"
            .to_owned();
    for number in 0..WIDE {
        zone += &format!("wide SRV 0 0 {number} t{number}\n");
        zone += &format!("* A 10.1.{}.{}\n", number / 250, number % 250);
    }
    zone
}

/// Serves a headless service whose slice exceeds the limits on endpoints and ports.
fn cluster() -> ApiServer {
    let server = ApiServer::start();
    let ports: Vec<_> = (1..=WIDE)
        .map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"}))
        .collect();
    let endpoints: Vec<_> = (0..WIDE)
        .map(|number| json!({"addresses": [format!("10.2.{}.{}", number / 250, number % 250)], "conditions": {"ready": true}}))
        .collect();
    let spec = json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": ports});
    server.put("services", "zoo/wide", json!({"spec": spec}));
    let labels = json!({"labels": {"kubernetes.io/service-name": "wide"}});
    let slice = json!({"metadata": labels, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    server.put("endpointslices", "zoo/wide-1", slice);
    server
}

fn start_webhook(folder: &Path, authority: &Authority) -> (SocketAddr, Process) {
    let listen = address::fresh_socket();
    let admin = SocketAddr::new(listen.ip(), 9253);
    let (certificate, key) = authority.issue(&[NAME]).write(folder, "webhook");
    let mut run: Command = proxy::command();
    run.args([
        "webhook",
        "--local-address",
        "169.254.20.10",
        "--cluster-dns",
        "10.96.0.10",
    ]);
    run.args(["--listen", &listen.to_string(), "--admin", &admin.to_string()]);
    run.arg("--certificate").arg(certificate).arg("--key").arg(key);
    let process = Process::start(&mut run);
    until("the webhook to be ready", || {
        proxy::try_get(admin, "/ready").is_some_and(|(status, _)| status == 200)
    });
    (listen, process)
}
