//! Three network namespaces: a node, a client pod, and the cluster's DNS.
//!
//! ```text
//! pod 10.244.7.2 ── 10.244.7.1 node 10.244.8.1 ── 10.244.8.2 cluster DNS
//! pod fd00:7::2  ── fd00:7::1  node fd00:8::1  ── fd00:8::2
//! ```
//! The node translates 10.96.0.10 and fd00:96::10 to the cluster's DNS like a kube-proxy that does not know
//! the pods' addresses: it masquerades nothing. The cluster's DNS is on another node, which has these
//! addresses too.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::process::Process;
use harness::tools::output;
use harness::{PATIENCE, needs, proxy};

/// The most worlds at a time: tests spend nearly all of their time waiting, and a few share two CPUs well.
const AT_ONCE: usize = 2;

/// A test's right to a world, or to the only one, until dropped: a number of the [`AT_ONCE`] places.
pub struct Place(usize);

/// The places taken, and the signal that some are free again.
static TAKEN: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Place {
    fn take(places: usize) -> Place {
        let taken = TAKEN.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = TAKEN.1.wait_while(taken, |taken| *taken + places > AT_ONCE);
        *free.unwrap_or_else(PoisonError::into_inner) += places;
        Place(places)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *TAKEN.0.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        TAKEN.1.notify_all();
    }
}

/// Waits for a place; `None` if root, or one of these programs or those that every test needs, is missing.
/// Tests count losses, so few run at a time: dropping the value lets another begin.
pub fn place(programs: &[&str]) -> Option<Place> {
    places(1, programs)
}

/// The same for a test that counts what a dying process leaves unanswered: no other world uses the CPUs.
pub fn alone(programs: &[&str]) -> Option<Place> {
    places(AT_ONCE, programs)
}

fn places(count: usize, programs: &[&str]) -> Option<Place> {
    let programs = [
        &["root", "ip", "nsenter", "iptables", "ip6tables", "nft"],
        programs,
    ]
    .concat();
    needs(&programs).then(|| Place::take(count))
}

/// The cluster's DNS addresses.
pub const CLUSTER: [&str; 2] = ["10.96.0.10", "fd00:96::10"];

/// These, and two without a service behind them.
pub const LISTENED: [&str; 4] = ["10.96.0.10", "fd00:96::10", "169.254.20.10", "fd00:20::10"];

/// The proxy's admin address, on the node.
pub const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9253);

/// What the cluster's DNS answers.
pub const FROM_CLUSTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// What the proxy's upstream answers, on port 5301 of the same machine.
pub const FROM_PROXY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// How long the upstream on port 5302 takes to answer the same.
const SLOWLY: Duration = Duration::from_millis(150);

/// What another node cache answers.
pub const FROM_NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// The table of kube-proxy in nftables mode.
const SERVICES: &str = "
table ip kube-proxy {
    chain dns { dnat to 10.244.8.2; }
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict;
        elements = { 10.96.0.10 . udp . 53 : goto dns, 10.96.0.10 . tcp . 53 : goto dns }
    }
    chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
    chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
}
table ip6 kube-proxy {
    chain dns { dnat to fd00:8::2; }
    map service-ips {
        type ipv6_addr . inet_proto . inet_service : verdict;
        elements = { fd00:96::10 . udp . 53 : goto dns, fd00:96::10 . tcp . 53 : goto dns }
    }
    chain services { ip6 daddr . meta l4proto . th dport vmap @service-ips; }
    chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
}";

/// How kube-proxy writes its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeProxy {
    /// iptables chains, kept by nft.
    Iptables,
    /// iptables chains in the kernel's older tables, before nft. Tests need `iptables-legacy`.
    Legacy,
    /// Its own nftables table.
    Nftables,
    /// No kube-proxy.
    Absent,
}

/// A network namespace, by the path of its file.
#[derive(Debug, Clone)]
pub struct Namespace(pub PathBuf);

impl Namespace {
    /// Runs `work` in a thread inside it.
    pub fn within<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = File::open(&self.0).unwrap_or_else(|error| panic!("{}: {error}", self.0.display()));
        thread::spawn(move || {
            // SAFETY: setns takes a descriptor, open here, and changes this thread only.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
            work()
        })
    }
}

/// The namespaces; deleted when dropped.
pub struct World {
    id: String,
    folder: tempfile::TempDir,
}

impl World {
    /// Creates the namespaces.
    pub fn new(kube_proxy: KubeProxy) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!(
            "dnsweir-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Some proxies do not run as root.
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), all).expect("permissions");
        let world = World { id, folder };
        for name in ["node", "pod", "dns"].map(|name| world.name(name)) {
            output(Command::new("ip").args(["netns", "add", &name]));
            output(Command::new("ip").args(["-n", &name, "link", "set", "lo", "up"]));
        }
        world.connect("pod", 7);
        world.connect("dns", 8);
        for address in CLUSTER {
            let dns = world.name("dns");
            output(Command::new("ip").args(["-n", &dns, "addr", "add", address, "dev", "lo"]));
        }
        world.script(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        );
        match kube_proxy {
            KubeProxy::Iptables => world.translate("iptables", "ip6tables"),
            KubeProxy::Legacy => world.translate("iptables-legacy", "ip6tables-legacy"),
            KubeProxy::Nftables => world.script(&format!("nft -f - <<'X'\n{SERVICES}\nX")),
            KubeProxy::Absent => String::new(),
        };
        world.serve(53, FROM_CLUSTER, Duration::ZERO);
        world.serve(5301, FROM_PROXY, Duration::ZERO);
        world.serve(5302, FROM_PROXY, SLOWLY);
        world
    }

    /// Connects the node to another namespace, over IPv4 and IPv6.
    fn connect(&self, which: &str, net: u8) {
        let (node, name) = (self.name("node"), self.name(which));
        let link = format!("to{net}");
        let to = ["type", "veth", "peer", "name", "eth0", "netns", &name];
        output(
            Command::new("ip")
                .args(["-n", &node, "link", "add", &link])
                .args(to),
        );
        for (name, link, host) in [(&node, link.as_str(), 1), (&name, "eth0", 2)] {
            let four = format!("10.244.{net}.{host}/24");
            let six = format!("fd00:{net}::{host}/64");
            output(Command::new("ip").args(["-n", name, "addr", "add", &four, "dev", link]));
            output(Command::new("ip").args(["-n", name, "addr", "add", &six, "dev", link, "nodad"]));
            output(Command::new("ip").args(["-n", name, "link", "set", link, "up"]));
        }
        let (four, six) = (format!("10.244.{net}.1"), format!("fd00:{net}::1"));
        output(Command::new("ip").args(["-n", &name, "route", "add", "default", "via", &four]));
        output(Command::new("ip").args(["-n", &name, "-6", "route", "add", "default", "via", &six]));
    }

    /// Writes kube-proxy's rules with these programs. Its canary shows which kind the node uses.
    pub fn translate(&self, iptables: &str, ip6tables: &str) -> String {
        self.script(&format!(
            "{iptables} -w -t mangle -N KUBE-PROXY-CANARY; {ip6tables} -w -t mangle -N KUBE-PROXY-CANARY
            for p in udp tcp; do for h in PREROUTING OUTPUT; do
                {iptables} -w -t nat -A $h -d 10.96.0.10 -p $p --dport 53 -j DNAT --to-destination 10.244.8.2:53
                {ip6tables} -w -t nat -A $h -d fd00:96::10 -p $p --dport 53 -j DNAT --to-destination [fd00:8::2]:53
            done; done",
        ))
    }

    /// The name of the namespace of `node`, `pod` or `dns`.
    fn name(&self, which: &str) -> String {
        format!("{}-{which}", self.id)
    }

    /// The namespace of `node`, `pod` or `dns`.
    pub fn namespace(&self, which: &str) -> Namespace {
        Namespace(PathBuf::from("/var/run/netns").join(self.name(which)))
    }

    /// The clients' namespace.
    pub fn pod(&self) -> Namespace {
        self.namespace("pod")
    }

    /// Runs `work` in a thread inside a namespace.
    pub fn within<T: Send + 'static>(
        &self,
        which: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.namespace(which).within(work)
    }

    /// Returns a command that runs a program on the node.
    pub fn on_node(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/var/run/netns/{}", self.name("node")))
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// Runs a shell script on the node, which must succeed.
    pub fn script(&self, text: &str) -> String {
        output(self.on_node("sh").args(["-ec", text]))
    }

    /// Runs `dnsweir` on the node with a configuration.
    pub fn dnsweir(&self, arguments: &[&str], config: &str) -> Output {
        let file = self.write(config);
        let mut command = self.on_node(&proxy::program().display().to_string());
        command
            .args(arguments)
            .arg("--config")
            .arg(file)
            .output()
            .expect("dnsweir")
    }

    /// A folder that is deleted with the world.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a configuration where [`World::start`] finds it.
    pub fn write(&self, config: &str) -> PathBuf {
        let (file, new) = (
            self.folder.path().join("dnsweir.kdl"),
            self.folder.path().join("new"),
        );
        std::fs::write(&new, config).expect("a configuration file");
        std::fs::rename(new, &file).expect("a configuration file");
        file
    }

    /// Starts `dnsweir run` on the node; does not wait.
    pub fn launch(&self, config: &str) -> Process {
        self.launch_with(config, &[])
    }

    /// The same with more arguments.
    pub fn launch_with(&self, config: &str, words: &[&str]) -> Process {
        let mut command = self.on_node(&proxy::program().display().to_string());
        // `nsenter` execs the proxy, so the PID is the proxy's.
        command
            .args(["run", "--config"])
            .arg(self.write(config))
            .args(words);
        Process::start(proxy::with_own_cache(&mut command))
    }

    /// The same through another program, which execs the proxy, from the world's own folder, which any user
    /// may enter.
    pub fn launch_by(&self, through: &[&str], config: &str) -> Process {
        let program = self.folder.path().join("dnsweir");
        if !program.exists() {
            std::fs::copy(proxy::program(), &program).expect("a copy of the program");
        }
        let (program, file) = (program.display().to_string(), self.write(config));
        let mut words = through
            .iter()
            .copied()
            .chain([program.as_str(), "run", "--config"]);
        let mut command = self.on_node(words.next().expect("a program"));
        Process::start(proxy::with_own_cache(command.args(words).arg(file)))
    }

    /// The same as a user other than root, with the capabilities of the container in `deploy/`. Needs
    /// `setpriv`.
    pub fn launch_without_root(&self, config: &str) -> Process {
        let three = "+net_bind_service,+net_admin,+net_raw";
        let (inherited, ambient) = (format!("--inh-caps={three}"), format!("--ambient-caps={three}"));
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        self.launch_by(
            &[&["setpriv"], &user[..], &[&inherited, &ambient]].concat(),
            config,
        )
    }

    /// Starts `dnsweir run` on the node and waits until it answers.
    pub fn start(&self, config: &str) -> Process {
        let proxy = self.launch(config);
        proxy.logged("answering queries");
        proxy
    }

    /// Returns status and body at a path of the proxy's admin address.
    pub fn admin(&self, path: &'static str) -> Option<(u16, String)> {
        let asked = self.within("node", move || proxy::try_get(ADMIN, path));
        asked.join().expect("a client")
    }

    /// Returns the node's links, addresses with their routes, and rules, without counters and generated
    /// addresses.
    pub fn network(&self) -> String {
        let text = self.script(
            "ip -o link | sed 's/^[0-9]*: //; s/ link.*//; s/qlen.*//'
             ip -o addr | grep -v ' fe80:' | sed 's/^[0-9]*: //; s/valid_lft.*//'
             for f in -4 -6; do ip $f route show table local type local | grep -v ' fe80:' || true; done
             iptables-save; ip6tables-save; nft --terse --stateless list table inet dnsweir 2> /dev/null || true",
        );
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(without_counters)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Answers every query on a port of the cluster DNS machine, over IPv4 and IPv6, until the process ends;
    /// over UDP after a delay.
    fn serve(&self, port: u16, answer: Ipv4Addr, after: Duration) {
        let (bound, ready) = channel();
        self.within("dns", move || {
            // By the kernel's default, such sockets take IPv4 as well.
            let udp = UdpSocket::bind(("::", port)).expect("a free port");
            let tcp = TcpListener::bind(("::", port)).expect("a free port");
            thread::spawn(move || {
                for stream in tcp.incoming() {
                    let Ok(mut stream) = stream else { continue };
                    thread::spawn(move || {
                        let mut length = [0; 2];
                        while stream.read_exact(&mut length).is_ok() {
                            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                            if stream.read_exact(&mut query).is_err() {
                                return;
                            }
                            let Some(reply) = reply(&query, answer) else {
                                return;
                            };
                            let framed = [&(reply.len() as u16).to_be_bytes()[..], &reply].concat();
                            if stream.write_all(&framed).is_err() {
                                return;
                            }
                        }
                    });
                }
            });
            bound.send(()).expect("someone waits");
            let mut query = [0; 4096];
            while let Ok((length, client)) = udp.recv_from(&mut query) {
                let Some(reply) = reply(&query[..length], answer) else {
                    continue;
                };
                if after.is_zero() {
                    let _ = udp.send_to(&reply, client);
                    continue;
                }
                let udp = udp.try_clone().expect("a socket");
                thread::spawn(move || {
                    // Simulates a slow server.
                    thread::sleep(after);
                    let _ = udp.send_to(&reply, client);
                });
            }
        });
        ready.recv_timeout(PATIENCE).expect("a server");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for which in ["node", "pod", "dns"] {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.name(which)])
                .status();
        }
    }
}

/// A reply with one address; `None` for a truncated query.
pub fn reply(query: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let mut end = 12;
    while *query.get(end)? != 0 {
        end += usize::from(query[end]) + 1;
    }
    end += 5;
    let mut reply = query.get(..end)?.to_vec();
    reply[2] = 0x81;
    reply[3] = 0x80;
    reply[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    reply.extend(address.octets());
    Some(reply)
}

/// Returns the lines sorted, for comparisons in which order does not matter.
pub fn sorted(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Asserts that two texts are equal; shows differences.
#[track_caller]
pub fn same(now: &str, wanted: &str, when: &str) {
    let missing = wanted
        .lines()
        .filter(|line| !now.lines().any(|other| other == *line));
    let added = now
        .lines()
        .filter(|line| !wanted.lines().any(|other| other == *line));
    let differences: Vec<_> = missing
        .map(|line| format!("- {line}"))
        .chain(added.map(|line| format!("+ {line}")))
        .collect();
    assert!(
        now == wanted,
        "{when}: not as wanted (or in another order):\n{}",
        differences.join("\n")
    );
}

fn without_counters(line: &str) -> &str {
    if line.starts_with(':') {
        line.split(" [").next().unwrap_or(line)
    } else {
        line
    }
}

/// Ends a proxy with SIGTERM; it must succeed.
pub fn terminate(mut proxy: Process) {
    proxy.signal("TERM");
    assert!(proxy.ended().success());
}
