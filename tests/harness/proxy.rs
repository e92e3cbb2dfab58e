//! The proxy under test.

use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeBounds;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::client::Stream;
use super::metrics::Metrics;
use super::namespace::Namespace;
use super::process::Process;
use super::{Message, PATIENCE, address, ask, eventually, until};

/// A running `dnsweir run` with the test's configuration.
pub struct Proxy {
    /// The program.
    pub process: Process,
    /// Its address for UDP and TCP.
    pub address: SocketAddr,
    /// Its address for metrics.
    pub admin: SocketAddr,
    /// Its configuration file.
    pub file: PathBuf,
    folder: tempfile::TempDir,
}

/// Returns the path of the program under test. Cargo does not build it for this package; `cargo xtask test`
/// does, and names its folder. Programs that are not tests use the one beside them.
pub fn program() -> PathBuf {
    let said = std::env::var_os("DNSWEIR_PROGRAMS").map(PathBuf::from);
    let program = said.unwrap_or_else(|| target("release")).join("dnsweir");
    assert!(
        program.is_file(),
        "{} is not there: run the tests with `cargo xtask test`",
        program.display()
    );
    program
}

/// Returns a folder of cargo's `target`, wherever that is: for what one run of the tests keeps for the next.
pub fn target(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this test's path");
    let release = this.ancestors().find(|folder| folder.ends_with("release"));
    let target = release.and_then(Path::parent);
    target.expect("a target folder").join(name)
}

/// Returns a command for it. Its cache is in the target folder, where it helps the next test, and not in the
/// user's home.
pub fn command() -> Command {
    let mut command = Command::new(program());
    with_own_cache(&mut command);
    command
}

/// Returns the same, to be run in its own network namespace.
pub fn command_in(network: &Namespace) -> Command {
    let mut command = network.command(&program());
    with_own_cache(&mut command);
    command
}

/// Sets the cache folder of a command that starts the proxy to that of the other tests.
pub fn with_own_cache(command: &mut Command) -> &mut Command {
    command.env("XDG_CACHE_HOME", target("tmp"))
}

/// Returns a `forward` stage for tests that count: each query is sent once, however long a busy machine takes
/// to answer it. By default the proxy would retry after tens of milliseconds.
pub fn forward_once(upstream: SocketAddr) -> String {
    format!("forward \"{upstream}\" {{ {ONCE} }}")
}

/// The options of [`forward_once`].
pub const ONCE: &str = "attempts 1; timeout \"20s\"; deadline \"25s\"";

/// Runs `dnsweir check` on a file.
pub fn check(file: &Path) -> Output {
    command()
        .arg("check")
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .expect("dnsweir check")
}

impl Proxy {
    /// Starts it and waits until it is ready. The text is preceded by `listen` and `admin` lines, unless it
    /// has its own, with `$LISTEN` and `$ADMIN` for free addresses, and by one that disables waiting for
    /// upstreams, unless it sets that.
    #[track_caller]
    pub fn start(text: &str) -> Proxy {
        Proxy::start_with(text, &[])
    }

    /// Starts it with further arguments.
    #[track_caller]
    pub fn start_with(text: &str, arguments: &[&str]) -> Proxy {
        let mut proxy = Proxy::launch(text, arguments);
        proxy.await_ready();
        proxy
    }

    /// Starts it from a shell, after a command such as `ulimit -n 1024`.
    #[track_caller]
    pub fn start_after(shell: &str, text: &str) -> Proxy {
        let mut proxy = Proxy::launch_after(shell, text);
        proxy.await_ready();
        proxy
    }

    /// Starts it from a shell, and does not wait.
    pub fn launch_after(shell: &str, text: &str) -> Proxy {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{shell} && exec \"$0\" \"$@\""))
            .arg(program());
        let mut proxy = Proxy::launch_by(with_own_cache(&mut command), text, &[]);
        proxy.process.read();
        proxy
    }

    /// Starts it and does not wait.
    pub fn launch(text: &str, arguments: &[&str]) -> Proxy {
        let mut proxy = Proxy::launch_unread(text, arguments);
        proxy.process.read();
        proxy
    }

    /// Starts it, without reading its output.
    pub fn launch_unread(text: &str, arguments: &[&str]) -> Proxy {
        Proxy::launch_by(&mut command(), text, arguments)
    }

    fn launch_by(command: &mut Command, text: &str, arguments: &[&str]) -> Proxy {
        let address = address::fresh_socket();
        let admin = SocketAddr::new(address.ip(), 9253);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("dnsweir.kdl");
        std::fs::write(&file, complete(text, address, admin)).expect("a configuration file");
        command.arg("run").arg("--config").arg(&file).args(arguments);
        let process = Process::start_unread(command);
        Proxy {
            process,
            address,
            admin,
            file,
            folder,
        }
    }

    /// Waits until `/ready` succeeds.
    #[track_caller]
    pub fn await_ready(&mut self) {
        let admin = self.admin;
        until("the proxy to be ready", || {
            assert!(
                self.process.running(),
                "the proxy ended: {:#?}",
                self.process.stderr()
            );
            try_get(admin, "/ready").is_some_and(|(status, _)| status == 200)
        });
    }

    /// Replaces the content of the configuration file without a signal. Like editors, it moves a new file
    /// over the old one, so that half a file is never read. Several threads may do so at once.
    pub fn rewrite(&self, text: &str) {
        // Tests may run the proxy as another user.
        let mode = std::fs::Permissions::from_mode(0o644);
        let new = tempfile::Builder::new()
            .permissions(mode)
            .tempfile_in(self.folder.path())
            .expect("a configuration file");
        std::fs::write(new.path(), complete(text, self.address, self.admin)).expect("a configuration file");
        new.persist(&self.file).expect("a configuration file");
    }

    /// Replaces the configuration and waits until it is in force.
    #[track_caller]
    pub fn reload(&self, text: &str) {
        let before = self.generation();
        self.rewrite(text);
        self.process.signal("HUP");
        until("the new configuration to be in force", || {
            self.generation() > before
        });
    }

    /// Returns the number of the running generation.
    pub fn generation(&self) -> f64 {
        self.metrics().sum("dnsweir_generation", &[])
    }

    /// Whether Landlock restricts it to its own paths.
    pub fn is_kept_in(&self) -> bool {
        !self.get("/status").1.contains("no Landlock")
    }

    /// Returns a folder for the test's files, which also has the configuration.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Asks for a name and type over UDP, as a stub resolver does.
    #[track_caller]
    pub fn query(&self, name: &str, qtype: &str) -> Message {
        self.ask(&Message::query(name, qtype))
    }

    /// Asks with EDNS, so that extended errors can come back.
    #[track_caller]
    pub fn query_edns(&self, name: &str, qtype: &str) -> Message {
        self.ask(&Message::query(name, qtype).edns(1232))
    }

    /// Asks over UDP.
    #[track_caller]
    pub fn ask(&self, query: &Message) -> Message {
        ask(self.address, query)
    }

    /// Connects over TCP.
    #[track_caller]
    pub fn connect(&self) -> Stream {
        Stream::connect(self.address)
    }

    /// Scrapes `/metrics`.
    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200, "{body}");
        Metrics::parse(&body)
    }

    /// Waits until a metric has this value: counters may be updated after the answer was sent.
    #[track_caller]
    pub fn await_metric(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.await_metric_within(name, labels, value..=value);
    }

    /// Waits until a metric is within bounds.
    #[track_caller]
    pub fn await_metric_within(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: impl RangeBounds<f64> + Debug,
    ) {
        let mut last = f64::NAN;
        let deadline = std::time::Instant::now() + PATIENCE;
        while std::time::Instant::now() < deadline {
            last = self.metrics().sum(name, labels);
            if bounds.contains(&last) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{name} {labels:?} is {last}, not {bounds:?}");
    }

    /// Gets a page of the admin address: status and body.
    #[track_caller]
    pub fn get(&self, path: &str) -> (u16, String) {
        eventually(path, || try_get(self.admin, path))
    }
}

/// Completes a configuration with addresses and the lines that every test needs.
fn complete(text: &str, address: SocketAddr, admin: SocketAddr) -> String {
    let mut whole = String::new();
    for (word, line) in [
        ("$LISTEN", "listen \"$LISTEN\"\n"),
        ("$ADMIN", "admin \"$ADMIN\"\n"),
        // Most tests have upstreams that answer only the test's own queries.
        ("await-upstreams", "await-upstreams \"0s\"\n"),
    ] {
        if !text.contains(word) {
            whole.push_str(line);
        }
    }
    whole.push_str(text);
    whole
        .replace("$LISTEN", &address.to_string())
        .replace("$ADMIN", &admin.to_string())
}

/// Sends one HTTP request; `None` if there is no answer.
pub fn try_get(server: SocketAddr, path: &str) -> Option<(u16, String)> {
    request(server, "GET", path)
}

/// Sends one HTTP request with any method.
pub fn request(server: SocketAddr, method: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(server).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
