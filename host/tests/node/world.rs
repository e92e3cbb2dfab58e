//! Three network namespaces: a node, a pod that asks, and the cluster's DNS.
//!
//! ```text
//! pod 10.244.7.2 ── 10.244.7.1 node 10.244.8.1 ── 10.244.8.2 cluster DNS
//! pod fd00:7::2  ── fd00:7::1  node fd00:8::1  ── fd00:8::2
//! ```
//! The node translates 10.96.0.10 and fd00:96::10 to the cluster DNS as kube-proxy does.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long anything may take that is to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The cluster's DNS addresses.
pub const CLUSTER: [&str; 2] = ["10.96.0.10", "fd00:96::10"];

/// What the cluster's DNS answers.
pub const FROM_CLUSTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// What the proxy's upstream answers, on port 5301 of the same machine.
pub const FROM_PROXY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// What kube-proxy writes its rules with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeProxy {
    /// Chains of iptables.
    Iptables,
    /// A table of its own.
    Nftables,
    /// There is none.
    Absent,
}

/// A network namespace, by the file that stands for it.
#[derive(Debug, Clone)]
pub struct Namespace(pub PathBuf);

impl Namespace {
    /// Runs `work` in a thread that lives in it.
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
    /// Makes one.
    pub fn new(kube_proxy: KubeProxy) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!(
            "dnsweir-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let world = World {
            id,
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        let [node, pod, dns] = ["node", "pod", "dns"].map(|name| world.name(name));
        for name in [&node, &pod, &dns] {
            run(Command::new("ip").args(["netns", "add", name]));
            run(Command::new("ip").args(["-n", name, "link", "set", "lo", "up"]));
        }
        for (name, net) in [(&pod, 7), (&dns, 8)] {
            let link = format!("to{net}");
            let to = ["type", "veth", "peer", "name", "eth0", "netns", name];
            run(Command::new("ip")
                .args(["-n", &node, "link", "add", &link])
                .args(to));
            for (name, link, host) in [(&node, link.as_str(), 1), (name, "eth0", 2)] {
                let four = format!("10.244.{net}.{host}/24");
                let six = format!("fd00:{net}::{host}/64");
                run(Command::new("ip").args(["-n", name, "addr", "add", &four, "dev", link]));
                run(Command::new("ip").args(["-n", name, "addr", "add", &six, "dev", link, "nodad"]));
                run(Command::new("ip").args(["-n", name, "link", "set", link, "up"]));
            }
            let (four, six) = (format!("10.244.{net}.1"), format!("fd00:{net}::1"));
            run(Command::new("ip").args(["-n", name, "route", "add", "default", "via", &four]));
            run(Command::new("ip").args(["-n", name, "-6", "route", "add", "default", "via", &six]));
        }
        world.script(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        );
        match kube_proxy {
            KubeProxy::Iptables => world.script(
                "for p in udp tcp; do for h in PREROUTING OUTPUT; do
                    iptables -w -t nat -A $h -d 10.96.0.10 -p $p --dport 53 -j DNAT --to-destination 10.244.8.2:53
                    ip6tables -w -t nat -A $h -d fd00:96::10 -p $p --dport 53 -j DNAT --to-destination [fd00:8::2]:53
                done; done
                iptables -w -t nat -A POSTROUTING -m conntrack --ctorigdst 10.96.0.10 ! -s 10.244.0.0/16 -j MASQUERADE
                ip6tables -w -t nat -A POSTROUTING -m conntrack --ctorigdst fd00:96::10 ! -s fd00:7::/64 -j MASQUERADE",
            ),
            KubeProxy::Nftables => world.script(
                "nft -f - <<'X'
                table inet kube-proxy {
                    chain services {
                        ip daddr 10.96.0.10 meta l4proto { tcp, udp } th dport 53 dnat ip to 10.244.8.2
                        ip6 daddr fd00:96::10 meta l4proto { tcp, udp } th dport 53 dnat ip6 to fd00:8::2
                    }
                    chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
                    chain nat-output { type nat hook output priority -100; jump services; }
                }
X",
            ),
            KubeProxy::Absent => String::new(),
        };
        for address in ["0.0.0.0:53", "[::]:53"] {
            world.serve(address, FROM_CLUSTER);
        }
        for address in ["0.0.0.0:5301", "[::]:5301"] {
            world.serve(address, FROM_PROXY);
        }
        world
    }

    /// The name of the namespace of `node`, `pod` or `dns`.
    fn name(&self, which: &str) -> String {
        format!("{}-{which}", self.id)
    }

    /// The namespace of `node`, `pod` or `dns`.
    pub fn namespace(&self, which: &str) -> Namespace {
        Namespace(PathBuf::from("/var/run/netns").join(self.name(which)))
    }

    /// Where the clients are.
    pub fn pod(&self) -> Namespace {
        self.namespace("pod")
    }

    /// Runs `work` in a thread that lives in a namespace.
    pub fn within<T: Send + 'static>(
        &self,
        which: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.namespace(which).within(work)
    }

    /// A program that runs on the node.
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
        run(self.on_node("sh").args(["-ec", text]))
    }

    /// Runs `dnsweir` on the node with a configuration.
    pub fn dnsweir(&self, arguments: &[&str], config: &str) -> Output {
        let file = self.write(config);
        let mut command = self.on_node(env!("CARGO_BIN_EXE_dnsweir"));
        command
            .args(arguments)
            .arg("--config")
            .arg(file)
            .output()
            .expect("dnsweir")
    }

    /// Puts a configuration where [`World::start`] finds it.
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
    pub fn launch(&self, config: &str) -> Proxy {
        let file = self.write(config);
        let mut command = self.on_node(env!("CARGO_BIN_EXE_dnsweir"));
        command
            .args(["run", "--config"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Proxy::new(command.spawn().expect("dnsweir"))
    }

    /// Starts `dnsweir run` on the node and waits until it answers.
    pub fn start(&self, config: &str) -> Proxy {
        let proxy = self.launch(config);
        proxy.logged("answering queries");
        proxy
    }

    /// Links, addresses and rules of the node, without counters and addresses that links make up.
    pub fn network(&self) -> String {
        let text = self.script(
            "ip -o link | sed 's/^[0-9]*: //; s/ link.*//; s/qlen.*//'
             ip -o addr | grep -v ' fe80:' | sed 's/^[0-9]*: //; s/valid_lft.*//'; iptables-save; ip6tables-save",
        );
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(without_counters)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Answers every query on `address` of the cluster DNS machine with `answer`, until the process ends.
    fn serve(&self, address: &'static str, answer: Ipv4Addr) {
        let (bound, ready) = channel();
        self.within("dns", move || {
            let address: SocketAddr = address.parse().expect("an address");
            let kind = socket2::Domain::for_address(address);
            let socket = |kind_of, protocol| {
                let socket = socket2::Socket::new(kind, kind_of, Some(protocol)).expect("a socket");
                if address.is_ipv6() {
                    socket.set_only_v6(true).expect("IPv6 only");
                }
                socket.bind(&address.into()).expect("a free port");
                socket
            };
            let udp: UdpSocket = socket(socket2::Type::DGRAM, socket2::Protocol::UDP).into();
            let tcp = socket(socket2::Type::STREAM, socket2::Protocol::TCP);
            tcp.listen(1024).expect("a listener");
            let tcp: TcpListener = tcp.into();
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
                if let Some(reply) = reply(&query[..length], answer) {
                    let _ = udp.send_to(&reply, client);
                }
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

/// A reply with one address.
fn reply(query: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
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

/// The lines in an order of their own, where the order does not matter.
pub fn sorted(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Says what differs, line by line, in order.
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

/// Runs a command that must succeed, and returns what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A running proxy; killed when dropped.
pub struct Proxy {
    child: Child,
    lines: Receiver<String>,
}

impl Proxy {
    fn new(mut child: Child) -> Proxy {
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if std::env::var_os("SHOW").is_some() {
                    eprintln!("{line}");
                }
                let _ = send.send(line);
            }
        });
        Proxy { child, lines }
    }

    /// The process's number. `nsenter` has become the proxy.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of its log.
    pub fn logged(&self, text: &str) {
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return;
            }
            seen.push(line);
        }
        panic!("not logged: {text}\n{}", seen.join("\n"));
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes two numbers. The child has not been waited for, so its number is its own.
        assert_eq!(unsafe { libc::kill(self.id() as libc::pid_t, signal) }, 0);
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("a running proxy");
        self.child.wait().expect("its end");
    }

    /// Tells it to end, and waits until it has.
    pub fn terminate(mut self) {
        self.signal(libc::SIGTERM);
        assert!(self.child.wait().expect("its end").success());
    }

    /// Waits for its end, and says whether it ended well.
    pub fn ended(mut self) -> bool {
        self.child.wait().expect("its end").success()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
