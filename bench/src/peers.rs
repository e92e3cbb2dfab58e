//! The servers to measure, and how each is set up.
//!
//! All get the same task: answer on one address with one thread, cache without a limit that the workloads
//! would reach (where a server allows that), forward everything else to one upstream. What a server's own
//! documentation recommends for speed is switched on; work beyond the task (validation, statistics, security
//! polls, root priming) is switched off.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::OUTPUT;
use crate::workload::Workload;

/// A server that can be measured.
#[derive(Debug)]
pub struct Peer {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// Where its program comes from.
    pub program: Program,
    /// Arguments that make the program print its version.
    version: &'static [&'static str],
    /// Writes its files, and returns its arguments.
    set_up: fn(&Site) -> io::Result<Vec<OsString>>,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// This one.
    Bench,
    /// The proxy under test.
    Dnsweir,
    /// The proxy, if modules of filters are given whose verdicts are not remembered.
    DnsweirCalled,
    /// Named on the command line, or found in `PATH`.
    Named(&'static str),
}

/// What a peer is set up with.
pub struct Site<'a> {
    /// The folder for its files; exists and is empty.
    pub folder: &'a Path,
    /// Where it must answer.
    pub listen: SocketAddrV4,
    /// Its upstreams.
    pub upstreams: &'a [SocketAddrV4],
    /// A free port on the same address, for peers that need a second one.
    pub spare_port: u16,
    /// Folder of a `rewrite.wasm` and a `nodecache.wasm` whose verdicts are not remembered.
    pub called: Option<&'a Path>,
    /// Whether all names asked for exist: the floor has only one answer.
    pub exists: bool,
}

impl Site<'_> {
    /// Formats the upstreams for its configuration.
    fn each(&self, between: &str, text: impl Fn(&SocketAddrV4) -> String) -> String {
        let all: Vec<String> = self.upstreams.iter().map(text).collect();
        all.join(between)
    }
}

/// The floor of misses.
const FORWARDER: &str = "floor-forward";

/// All peers, in the order of the table.
pub const PEERS: &[Peer] = &[
    Peer {
        name: "floor",
        program: Program::Bench,
        version: &[],
        set_up: |site| Ok(floor(site)),
    },
    // The same, but waiting as a server with several sockets must.
    Peer {
        name: "floor-epoll",
        program: Program::Bench,
        version: &[],
        set_up: |site| Ok([floor(site), words(&["--wait", "epoll"])].concat()),
    },
    // What a miss costs whoever forwards it. It caches nothing, so that nothing else is asked of it.
    Peer {
        name: FORWARDER,
        program: Program::Bench,
        version: &[],
        set_up: |site| {
            let upstream = site.each(" ", SocketAddrV4::to_string);
            let listen = site.listen.to_string();
            Ok(words(&["forward", "--listen", &listen, "--upstream", &upstream]))
        },
    },
    Peer {
        name: "dnsweir",
        program: Program::Dnsweir,
        version: &["--version"],
        set_up: |site| dnsweir(site, "", ""),
    },
    Peer {
        name: "dnsweir+3",
        program: Program::Dnsweir,
        version: &["--version"],
        set_up: |site| filtered(site, &filters(FAILURES, REWRITE, NODECACHE)),
    },
    Peer {
        name: "dnsweir+3-called",
        program: Program::DnsweirCalled,
        version: &["--version"],
        set_up: |site| {
            let folder = site.called.unwrap_or(site.folder);
            let module = |name: &str| folder.join(name).display().to_string();
            let (rewrite, nodecache) = (module("rewrite.wasm"), module("nodecache.wasm"));
            filtered(site, &filters(FAILURES, &rewrite, &nodecache))
        },
    },
    Peer {
        name: "unbound",
        program: Program::Named("unbound"),
        version: &["-V"],
        set_up: |site| unbound(site, ""),
    },
    Peer {
        name: "dnsdist",
        program: Program::Named("dnsdist"),
        version: &["--version"],
        set_up: |site| dnsdist(site, ""),
    },
    Peer {
        name: "pdns-recursor",
        program: Program::Named("pdns_recursor"),
        version: &["--version"],
        set_up: pdns_recursor,
    },
    Peer {
        name: "knot-resolver",
        program: Program::Named("kresd"),
        version: &["--version"],
        set_up: knot_resolver,
    },
    Peer {
        name: "dnsmasq",
        program: Program::Named("dnsmasq"),
        version: &["--version"],
        set_up: dnsmasq,
    },
    Peer {
        name: "coredns",
        program: Program::Named("coredns"),
        version: &["-version"],
        set_up: |site| coredns(site, ""),
    },
    Peer {
        name: "node-cache",
        program: Program::Named("node-cache"),
        version: &["-version"],
        set_up: node_cache,
    },
    // These write a line per query, to files in memory.
    Peer {
        name: "dnsweir+3-lines",
        program: Program::Dnsweir,
        version: &["--version"],
        set_up: |site| filtered(site, &filters(ALL, REWRITE, NODECACHE)),
    },
    Peer {
        name: "unbound-lines",
        program: Program::Named("unbound"),
        version: &["-V"],
        set_up: |site| unbound(site, "log-replies: yes"),
    },
    Peer {
        name: "dnsdist-lines",
        program: Program::Named("dnsdist"),
        version: &["--version"],
        set_up: |site| {
            // Text, appended and buffered; to the file of its other output, so that it is emptied with it.
            let file = site.folder.join(OUTPUT);
            let action = format!("LogAction(\"{}\", false, true, true)", file.display());
            dnsdist(site, &format!("addAction(AllRule(), {action})"))
        },
    },
    Peer {
        name: "coredns-lines",
        program: Program::Named("coredns"),
        version: &["-version"],
        set_up: |site| coredns(site, "log"),
    },
];

impl Peer {
    /// Finds the peer called `name`.
    pub fn find(name: &str) -> Option<&'static Peer> {
        PEERS.iter().find(|peer| peer.name == name)
    }

    /// Finds the peer called `name`; the error lists all names.
    pub fn named(name: &str) -> Result<&'static Peer, String> {
        let known = || PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
        Peer::find(name).ok_or_else(|| format!("known are {}", known()))
    }

    /// Whether the workload suits it. The forwarding floor has neither a cache nor TCP.
    pub fn answers(&self, workload: Workload) -> bool {
        self.name != FORWARDER || workload == Workload::Misses
    }

    /// Returns the command that starts `program` at `site`.
    pub fn command(&self, program: &Path, site: &Site) -> io::Result<Command> {
        let mut command = Command::new(program);
        command.args((self.set_up)(site)?).current_dir(site.folder);
        Ok(command)
    }

    /// Returns the first line with a digit of the version that `program` prints.
    pub fn version(&self, program: &Path) -> String {
        if self.version.is_empty() {
            return "of this benchmark".to_owned();
        }
        let Ok(output) = Command::new(program).args(self.version).output() else {
            return "unknown".to_owned();
        };
        let both = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&both).into_owned();
        text.lines()
            .find(|line| line.contains(|c: char| c.is_ascii_digit()))
            .map_or_else(
                || "unknown".to_owned(),
                |line| without_date(line.trim()).to_owned(),
            )
    }
}

/// Finds the program called `name` in `PATH`, or where Debian puts servers.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Removes the date of a log line, which some put in front.
fn without_date(line: &str) -> &str {
    match line.find(" PowerDNS") {
        Some(at) => &line[at + 1..],
        None => line,
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn floor(site: &Site) -> Vec<OsString> {
    let answer = if site.exists { "address" } else { "nxdomain" };
    let listen = site.listen.to_string();
    words(&["floor", "--listen", &listen, "--answer", answer])
}

/// Writes a file into the peer's folder, and returns its path.
fn write(site: &Site, name: &str, text: &str) -> io::Result<String> {
    let path = site.folder.join(name);
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// Stages in front of `cache`, where they see every query. `rewrite` has a rule about a type, so that it
/// looks at every name; `nodecache` edits the TTL of every answer (they come with an hour). `log` gets every
/// answer, and prints those of its classes.
pub const USE_FILTERS: &str = "use \"log\"; use \"rewrite\"; use \"nodecache\"";

/// Classes for `log`: all answers, or only failures.
pub const ALL: &str = "\"all\"";
const FAILURES: &str = "\"denial\" \"error\"";

/// The proxy's built-in modules of the other two.
pub const REWRITE: &str = "builtin:rewrite";
/// See [`REWRITE`].
pub const NODECACHE: &str = "builtin:nodecache";

/// Returns the `filter` blocks, with these classes for `log` and these modules for the others. Their time
/// limit is beyond any measurement, even on a busy machine: a filter that is cut off costs less, and does
/// less.
pub fn filters(classes: &str, rewrite: &str, nodecache: &str) -> String {
    format!(
        r#"
filter "log" {{ module "builtin:log"; limits time="1s"; config {{ class {classes} }} }}
filter "rewrite" {{
    module "{rewrite}"
    limits time="1s"
    config {{
        type "ANY" "HINFO"
        name "suffix" "old.example.net" "bench.example.net"
    }}
}}
filter "nodecache" {{
    module "{nodecache}"
    limits time="1s"
    config {{ ttl "example.net" max="30m" }}
}}
"#
    )
}

fn filtered(site: &Site, filters: &str) -> io::Result<Vec<OsString>> {
    dnsweir(site, filters, USE_FILTERS)
}

fn dnsweir(site: &Site, filters: &str, stages: &str) -> io::Result<Vec<OsString>> {
    let text = format!(
        r#"listen "{listen}"
workers 1
cache-memory "512MiB"
{filters}
zone "." {{
    {stages}
    cache
    forward {upstreams} {{ concurrent 10000 }}
}}
"#,
        listen = site.listen,
        upstreams = site.each(" ", |to| format!("\"{to}\"")),
    );
    // Its folder is watched, and must not contain the files that lines are written to.
    std::fs::create_dir_all(site.folder.join("config"))?;
    let file = write(site, "config/dnsweir.kdl", &text)?;
    Ok(words(&["run", "--log-level", "warn", "--config", &file]))
}

fn unbound(site: &Site, option: &str) -> io::Result<Vec<OsString>> {
    let text = format!(
        r#"server:
    interface: {ip}@{port}
    port: {port}
    access-control: 127.0.0.0/8 allow
    do-daemonize: no
    use-syslog: no
    logfile: ""
    username: ""
    chroot: ""
    pidfile: ""
    directory: "{folder}"
    num-threads: 1
    module-config: "iterator"
    do-not-query-localhost: no
    msg-cache-size: 256m
    rrset-cache-size: 512m
    so-rcvbuf: 4m
    outgoing-range: 8192
    num-queries-per-thread: 4096
    incoming-num-tcp: 100
    minimal-responses: yes
    {option}
remote-control:
    control-enable: no
forward-zone:
    name: "."
{upstreams}
"#,
        ip = site.listen.ip(),
        port = site.listen.port(),
        folder = site.folder.display(),
        upstreams = site.each("\n", |to| format!("    forward-addr: {}@{}", to.ip(), to.port())),
    );
    let file = write(site, "unbound.conf", &text)?;
    Ok(words(&["-d", "-p", "-c", &file]))
}

fn dnsdist(site: &Site, action: &str) -> io::Result<Vec<OsString>> {
    // Reading 32 datagrams at a time is off by default, and makes it fast.
    let text = format!(
        r#"setSecurityPollSuffix("")
setACL({{"127.0.0.0/8"}})
setUDPMultipleMessagesVectorSize(32)
setUDPSocketBufferSizes(4194304, 0)
setMaxTCPQueriesPerConnection(0)
addLocal("{listen}", {{reusePort=true}})
{upstreams}
getPool(""):setCache(newPacketCache(2000000, {{maxTTL=86400, minTTL=0}}))
{action}
"#,
        listen = site.listen,
        upstreams = site.each("\n", |to| format!("newServer({{address=\"{to}\", sockets=16}})")),
    );
    let file = write(site, "dnsdist.conf", &text)?;
    Ok(words(&["--supervised", "--disable-syslog", "-C", &file]))
}

fn pdns_recursor(site: &Site) -> io::Result<Vec<OsString>> {
    let folder = site.folder.display();
    let text = format!(
        r#"local-address={ip}
local-port={port}
allow-from=127.0.0.0/8
forward-zones-recurse=.={upstreams}
dont-query=
threads=1
pdns-distributes-queries=no
reuseport=yes
dnssec=off
daemon=no
disable-syslog=yes
quiet=yes
loglevel=3
write-pid=no
socket-dir={folder}
security-poll-suffix=
max-cache-entries=2000000
max-packetcache-entries=2000000
max-mthreads=4096
max-tcp-per-client=0
max-concurrent-requests-per-tcp-connection=1000
nothing-below-nxdomain=no
"#,
        ip = site.listen.ip(),
        port = site.listen.port(),
        upstreams = site.each(";", SocketAddrV4::to_string),
    );
    write(site, "recursor.conf", &text)?;
    Ok(words(&[&format!("--config-dir={folder}")]))
}

fn knot_resolver(site: &Site) -> io::Result<Vec<OsString>> {
    let text = format!(
        r#"net.listen('{ip}', {port}, {{ kind = 'dns' }})
trust_anchors.remove('.')
modules.unload('ta_update')
modules.unload('ta_signal_query')
modules.unload('priming')
cache.size = 500 * MB
policy.add(policy.all(policy.FORWARD({{{upstreams}}})))
"#,
        ip = site.listen.ip(),
        port = site.listen.port(),
        upstreams = site.each(", ", |to| format!("'{}@{}'", to.ip(), to.port())),
    );
    let file = write(site, "kresd.conf", &text)?;
    Ok(words(&["-n", "-c", &file, &site.folder.display().to_string()]))
}

fn dnsmasq(site: &Site) -> io::Result<Vec<OsString>> {
    let mut arguments = words(&[
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--bind-interfaces",
        "--no-resolv",
        "--no-hosts",
        "--no-poll",
        "--user=root",
        "--pid-file=",
        // It warns that more gains nothing.
        "--cache-size=10000",
        "--dns-forward-max=10000",
        "--max-tcp-connections=100",
        "--log-facility=-",
        &format!("--listen-address={}", site.listen.ip()),
        &format!("--port={}", site.listen.port()),
    ]);
    let servers = site.upstreams.iter();
    arguments.extend(servers.map(|to| format!("--server={}#{}", to.ip(), to.port()).into()));
    Ok(arguments)
}

fn coredns(site: &Site, plugin: &str) -> io::Result<Vec<OsString>> {
    let file = write(site, "Corefile", &corefile(site, plugin))?;
    Ok(words(&["-conf", &file]))
}

fn corefile(site: &Site, plugin: &str) -> String {
    format!(
        r#".:{port} {{
    bind {ip}
    cache 3600 {{
        success 1000000
        denial 1000000
    }}
    forward . {upstreams} {{
        max_concurrent 10000
    }}
    {plugin}
}}
"#,
        ip = site.listen.ip(),
        port = site.listen.port(),
        upstreams = site.each(" ", SocketAddrV4::to_string),
    )
}

fn node_cache(site: &Site) -> io::Result<Vec<OsString>> {
    // It copies the base file to the other one, and watches it.
    let base = write(site, "Corefile.base", &corefile(site, ""))?;
    let file = write(site, "Corefile", &corefile(site, ""))?;
    let ip = site.listen.ip().to_string();
    Ok(words(&[
        "-localip",
        &ip,
        "-conf",
        &file,
        "-basecorefile",
        &base,
        "-setupinterface=false",
        "-setupiptables=false",
        "-skipteardown=true",
        "-metrics-listen-address",
        &format!("{ip}:{}", site.spare_port),
    ]))
}
