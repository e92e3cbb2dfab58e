//! Other name servers, as upstreams.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::process::Process;
use super::tools::command;
use super::{Message, address, client, until};

/// A real server with its own configuration.
pub struct Server {
    /// The program.
    pub process: Process,
    /// Its address.
    pub address: SocketAddr,
    folder: tempfile::TempDir,
}

/// Starts unbound, which answers from these lines of a zone file, and NXDOMAIN for the rest of `zone`. It
/// logs every query, so that [`Server::queries`] can count them.
pub fn unbound(zone: &str, lines: &[&str]) -> Server {
    unbound_with(zone, lines, address::fresh_socket(), "")
}

/// Starts unbound also over TLS or HTTPS, with a certificate and its key. Returns the address for that as
/// well.
pub fn unbound_over(
    scheme: &str,
    zone: &str,
    lines: &[&str],
    files: &(PathBuf, PathBuf),
) -> (Server, SocketAddr) {
    let address = address::fresh_socket();
    let tls = SocketAddr::new(address.ip(), address.port() + 1);
    let more = format!(
        "  interface: {}@{}\n  {scheme}-port: {}\n  tls-service-pem: \"{}\"\n  tls-service-key: \"{}\"\n",
        tls.ip(),
        tls.port(),
        tls.port(),
        files.0.display(),
        files.1.display()
    );
    (unbound_with(zone, lines, address, &more), tls)
}

fn unbound_with(zone: &str, lines: &[&str], address: SocketAddr, more: &str) -> Server {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data: String = lines
        .iter()
        .map(|line| format!("  local-data: '{line}'\n"))
        .collect();
    let text = format!(
        "server:\n  interface: {}@{}\n  access-control: 127.0.0.0/8 allow\n  do-daemonize: no\n  username: \"\"\n  \
         chroot: \"\"\n  pidfile: \"\"\n  directory: \"{}\"\n  use-syslog: no\n  logfile: \"\"\n  log-queries: yes\n  \
         verbosity: 1\n  num-threads: 1\n  module-config: \"iterator\"\n  local-zone: \"{zone}\" static\n{data}{more}\
         remote-control:\n  control-enable: no\n",
        address.ip(),
        address.port(),
        folder.path().display(),
    );
    let file = folder.path().join("unbound.conf");
    std::fs::write(&file, text).expect("unbound's configuration");
    let process = Process::start(command("unbound").arg("-d").arg("-c").arg(&file));
    Server {
        process,
        address,
        folder,
    }
    .ready(zone)
}

/// Starts dnsdist over HTTPS in front of a zone's server. Returns its address for HTTPS as well.
pub fn dnsdist_over_https(
    zone: &str,
    behind: SocketAddr,
    files: &(PathBuf, PathBuf),
) -> (Server, SocketAddr) {
    let address = address::fresh_socket();
    let https = SocketAddr::new(address.ip(), address.port() + 1);
    let text = format!(
        "setLocal(\"{address}\")\nnewServer({{address=\"{behind}\"}}):setUp()\n\
         addDOHLocal(\"{https}\", \"{}\", \"{}\", \"/dns-query\")\n",
        files.0.display(),
        files.1.display(),
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsdist.conf");
    std::fs::write(&file, text).expect("dnsdist's configuration");
    let process = Process::start(command("dnsdist").arg("--supervised").arg("-C").arg(&file));
    let server = Server {
        process,
        address,
        folder,
    };
    (server.ready(zone), https)
}

/// Starts nsd, which serves this zone from the text of its zone file.
pub fn nsd(zone: &str, text: &str) -> Server {
    let lines = "  provide-xfr: 127.0.0.0/8 NOKEY\n";
    nsd_with(zone, address::fresh_socket(), None, lines, Some(text)).ready(zone)
}

/// A TSIG key, with names as in BIND 9.
pub struct SharedKey {
    /// Its name.
    pub name: &'static str,
    /// Its algorithm.
    pub algorithm: &'static str,
    /// In base64.
    pub secret: &'static str,
}

impl SharedKey {
    /// Formats it for dig.
    pub fn for_dig(&self) -> String {
        format!("{}:{}:{}", self.algorithm, self.name, self.secret)
    }

    /// Formats it for dnsweir.
    pub fn for_dnsweir(&self) -> String {
        format!(
            "tsig {:?} {{ algorithm {:?}; secret {:?} }}",
            self.name, self.algorithm, self.secret
        )
    }
}

/// Starts nsd at an address as a primary: it has this zone in a file, allows transfers with the key, and
/// sends NOTIFY to `tells`.
pub fn nsd_primary(
    zone: &str,
    address: SocketAddr,
    key: Option<&SharedKey>,
    tells: SocketAddr,
    text: &str,
) -> Server {
    let name = key.map_or("NOKEY", |key| key.name);
    let lines = format!(
        "  provide-xfr: 127.0.0.0/8 {name}\n  notify: {}@{} {name}\n  outgoing-interface: {}\n",
        tells.ip(),
        tells.port(),
        address.ip()
    );
    nsd_with(zone, address, key, &lines, Some(text))
}

/// Starts nsd at an address as a secondary of a primary.
pub fn nsd_secondary(
    zone: &str,
    address: SocketAddr,
    primary: SocketAddr,
    key: Option<&SharedKey>,
) -> Server {
    let name = key.map_or("NOKEY", |key| key.name);
    let lines = format!(
        "  request-xfr: {}@{} {name}\n  allow-notify: 127.0.0.0/8 {name}\n",
        primary.ip(),
        primary.port()
    );
    nsd_with(zone, address, key, &lines, None)
}

fn nsd_with(
    zone: &str,
    address: SocketAddr,
    key: Option<&SharedKey>,
    lines: &str,
    text: Option<&str>,
) -> Server {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().display();
    if let Some(text) = text {
        std::fs::write(folder.path().join("zone"), text).expect("a zone file");
    }
    let key = key.map_or_else(String::new, |key| {
        format!(
            "key:\n  name: \"{}\"\n  algorithm: {}\n  secret: \"{}\"\n",
            key.name, key.algorithm, key.secret
        )
    });
    let configuration = format!(
        "server:\n  ip-address: {}@{}\n  username: \"\"\n  chroot: \"\"\n  pidfile: \"\"\n  database: \"\"\n  \
         zonesdir: \"{path}\"\n  zonelistfile: \"{path}/zones\"\n  xfrdfile: \"{path}/xfrd\"\n  xfrdir: \"{path}\"\n  \
         server-count: 1\n  rrl-ratelimit: 0\n  minimal-responses: yes\nremote-control:\n  control-enable: no\n{key}\
         zone:\n  name: \"{zone}\"\n  zonefile: \"zone\"\n{lines}",
        address.ip(),
        address.port(),
    );
    Server::start("nsd", "-d", &configuration, address, folder)
}

/// Starts BIND's named at an address, with this key if any and these lines in the block of a zone, whose file
/// is `zone`.
pub fn named(
    zone: &str,
    address: SocketAddr,
    key: Option<&SharedKey>,
    lines: &str,
    text: Option<&str>,
) -> Server {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().display();
    if let Some(text) = text {
        std::fs::write(folder.path().join("zone"), text).expect("a zone file");
    }
    let key_block = key.map_or_else(String::new, |key| {
        format!(
            "key {:?} {{ algorithm {}; secret {:?}; }};\n",
            key.name, key.algorithm, key.secret
        )
    });
    let configuration = format!(
        "options {{ directory \"{path}\"; listen-on port {} {{ {}; }}; listen-on-v6 {{ none; }}; pid-file none; \
         session-keyfile none; lock-file none; recursion no; allow-query {{ any; }}; allow-notify {{ any; }}; \
         dnssec-validation no; }};\ncontrols {{ }};\n{key_block}\
         zone \"{zone}\" {{ file \"zone\"; {lines} }};\n",
        address.port(),
        address.ip(),
    );
    Server::start("named", "-g", &configuration, address, folder)
}

impl Server {
    /// Starts a program in the foreground, by this flag, with its configuration in its folder.
    fn start(
        program: &str,
        foreground: &str,
        configuration: &str,
        address: SocketAddr,
        folder: tempfile::TempDir,
    ) -> Server {
        let file = folder.path().join("server.conf");
        std::fs::write(&file, configuration).expect("a configuration");
        let process = Process::start(command(program).args([foreground, "-c"]).arg(&file));
        Server {
            process,
            address,
            folder,
        }
    }

    /// Returns its folder.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Waits until it answers for its zone.
    pub fn ready(mut self, zone: &str) -> Server {
        let probe = Message::query(zone, "SOA").encode();
        until("the upstream server to answer", || {
            assert!(self.process.running(), "it ended: {:#?}", self.process.stderr());
            let socket = client::socket(self.address);
            socket
                .set_read_timeout(Some(std::time::Duration::from_millis(200)))
                .expect("a timeout");
            socket.send(&probe).is_ok() && socket.recv(&mut [0; 512]).is_ok()
        });
        self
    }

    /// Returns how often unbound was asked for this name.
    pub fn queries(&self, name: &str) -> usize {
        let wanted = format!(" {name}. ");
        self.process
            .stderr()
            .iter()
            .filter(|line| line.contains(&wanted))
            .count()
    }
}
