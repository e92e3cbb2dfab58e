//! Other node caches on the same node: a live one is left alone, and what a dead one left is reported.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use harness::{tools, until};

use super::by_hand::node_cache;
use super::load::{Answer, Fates, Load, Protocol, ask};
use super::world::{FROM_NEIGHBOUR, KubeProxy, World, place, reply, same, sorted, terminate};

/// The addresses in node-cache's own manifest: the cluster's DNS address and a link-local one.
const SERVED: [&str; 2] = ["10.96.0.10", "169.254.20.10"];

/// As deployed, the upstream is the cluster's DNS at its service address.
const CONFIG: &str = "listen \"10.96.0.10\" \"169.254.20.10\"\nworkers 2\nadmin \"127.0.0.1:9253\"\n\
    zone \".\" { cache; forward \"10.96.0.10\" }\n\
    node { interface \"dnsweir\"; iptables; interval \"1s\"; cluster-dns \"10.96.0.10\" }";

/// A stand-in for node-cache: its link, addresses and rules, and sockets that share their port.
struct NodeCache<'world> {
    world: &'world World,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl<'world> NodeCache<'world> {
    fn start(world: &'world World) -> Self {
        // Kernels without dummy links have bridges.
        world.script(
            "ip link add nodelocaldns type dummy 2> /dev/null || ip link add nodelocaldns type bridge",
        );
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for ip in SERVED {
            world.script(&format!("ip addr add {ip}/32 dev nodelocaldns"));
            let address = SocketAddr::new(ip.parse().expect("an address"), 53);
            let (told, udp, tcp) = (
                Arc::clone(&stop),
                bind(world, address, false),
                bind(world, address, true),
            );
            threads.push(thread::spawn(move || serve_udp(&UdpSocket::from(udp), &told)));
            let (told, tcp) = (Arc::clone(&stop), TcpListener::from(tcp));
            tcp.set_nonblocking(true).expect("a listener");
            threads.push(thread::spawn(move || serve_tcp(&tcp, &told)));
        }
        NodeCache { world, stop, threads }
    }

    /// node-cache does this a minute after its start.
    fn write_rules(&self) {
        for ip in SERVED {
            self.world.script(&node_cache("iptables", ip));
        }
    }

    /// An orderly end: rules first, then the link, then the sockets.
    fn end(self) {
        for ip in SERVED {
            self.world
                .script(&node_cache("iptables", ip).replace(" -I ", " -D "));
        }
        self.world.script("ip link del nodelocaldns");
        self.die();
    }

    /// As if killed, except that queries queued on its sockets are still answered.
    fn die(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a server");
        }
    }
}

/// Binds a socket on the node with `SO_REUSEPORT`.
fn bind(world: &World, address: SocketAddr, is_stream: bool) -> OwnedFd {
    let bound = world.within("node", move || {
        let SocketAddr::V4(address) = address else {
            panic!("IPv4 only, as node-cache is")
        };
        let kind = if is_stream {
            libc::SOCK_STREAM
        } else {
            libc::SOCK_DGRAM
        };
        let name = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from(*address.ip()).to_be(),
            },
            sin_zero: [0; 8],
        };
        let size = |length: usize| length as libc::socklen_t;
        // SAFETY: the calls read an integer and an address that outlive them, by their sizes; nothing else
        // owns the descriptor.
        unsafe {
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, 0));
            let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
            let on: libc::c_int = 1;
            let shared = libc::setsockopt(
                raw,
                libc::SOL_SOCKET,
                libc::SO_REUSEPORT,
                (&raw const on).cast(),
                size(size_of_val(&on)),
            );
            assert_eq!(shared, 0, "{}", std::io::Error::last_os_error());
            let bound = libc::bind(raw, (&raw const name).cast(), size(size_of_val(&name)));
            assert_eq!(bound, 0, "{address}: {}", std::io::Error::last_os_error());
            if is_stream {
                assert_eq!(libc::listen(raw, 128), 0, "{}", std::io::Error::last_os_error());
            }
            socket
        }
    });
    bound.join().expect("a socket")
}

fn serve_udp(socket: &UdpSocket, stop: &AtomicBool) {
    let wait = Duration::from_millis(20);
    socket.set_read_timeout(Some(wait)).expect("a time limit");
    let mut query = [0; 4096];
    let mut is_last = false;
    loop {
        match socket.recv_from(&mut query) {
            Ok((length, client)) => {
                if let Some(reply) = reply(&query[..length], FROM_NEIGHBOUR) {
                    let _ = socket.send_to(&reply, client);
                }
            }
            Err(_) if is_last => return,
            Err(_) if stop.load(Ordering::Relaxed) => {
                // Connected to an unused address, it gets nothing new; what it holds can be read.
                is_last = true;
                // The call fails once the socket's address is gone; then nothing arrives either.
                let _ = socket.connect("127.0.0.1:9");
            }
            Err(_) => {}
        }
    }
}

fn serve_tcp(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        stream.set_nonblocking(false).expect("a stream");
        thread::spawn(move || -> std::io::Result<()> {
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query)?;
            let reply = reply(&query, FROM_NEIGHBOUR).unwrap_or_default();
            stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat())
        });
    }
}

/// Starts a load over both protocols to every address that node-cache serves.
fn loads(world: &World) -> Vec<(Protocol, &'static str, Load)> {
    let start = |server, protocol| (protocol, server, Load::of_misses(&world.pod(), server, protocol));
    SERVED
        .into_iter()
        .flat_map(|server| [Protocol::Udp, Protocol::Tcp].map(|protocol| start(server, protocol)))
        .collect()
}

/// Stops the loads and checks their losses. UDP loses nothing, except while node-cache writes its rules: it
/// exempts queries from tracking before their replies, so queries from a previously translated port are lost.
/// A TCP listener that opens or closes resets connections in mid-handshake.
fn ended(when: &str, loads: Vec<(Protocol, &'static str, Load)>, writing: Range<Instant>) -> Vec<Fates> {
    let ended = loads.into_iter().map(|(protocol, server, load)| {
        let open = load.open_at_once();
        let fates = load.stop();
        let count = fates.count();
        let lost = fates.until(writing.start).lost() + fates.since(writing.end).lost();
        println!("{when}, {protocol:?} {server}: {lost} of {count} lost");
        assert!(lost <= open, "{when}, {protocol:?} {server}: {lost} lost");
        fates
    });
    ended.collect()
}

fn settle() {
    // Lets the load run in this state.
    thread::sleep(Duration::from_secs(1));
}

/// Returns what node-cache has in the node's network.
fn theirs(world: &World) -> String {
    let text = world.network();
    let theirs = text
        .lines()
        .filter(|line| line.contains("nodelocaldns") || line.contains("NodeLocal DNS Cache"));
    theirs.collect::<Vec<_>>().join("\n")
}

/// Returns who answers a pod over UDP.
pub fn asked(world: &World, server: &str) -> Answer {
    let server = SocketAddr::new(server.parse().expect("an address"), 53);
    let asked = world.within("pod", move || ask(server, Protocol::Udp));
    asked.join().expect("a client")
}

#[test]
fn from_node_cache_and_back_under_load() {
    let Some(_place) = place(&[]) else { return };
    let fresh = World::new(KubeProxy::Iptables);
    let _serving = fresh.start(CONFIG);
    let world = World::new(KubeProxy::Iptables);
    let node_cache = NodeCache::start(&world);
    node_cache.write_rules();
    let before = theirs(&world);
    let load = loads(&world);
    let proxy = world.start(CONFIG);
    let both = Instant::now();
    settle();
    same(&sorted(&theirs(&world)), &sorted(&before), "beside the proxy");
    let ending = Instant::now();
    node_cache.end();
    let alone = Instant::now();
    settle();
    // node-cache writes no rules here.
    for fates in ended("to dnsweir", load, both..both) {
        // Neither queries itself, and the proxy's queries reach the cluster's DNS.
        assert!(fates.between(both, ending).of(Answer::Cluster) > 0);
        let after = fates.since(alone);
        assert_eq!(
            after.of(Answer::Cluster),
            after.count(),
            "from the cluster, by the proxy"
        );
    }
    until("nothing to be left of node-cache", || {
        sorted(&world.network()) == sorted(&fresh.network())
    });

    let load = loads(&world);
    let node_cache = NodeCache::start(&world);
    settle();
    terminate(proxy);
    settle();
    let writing = Instant::now();
    node_cache.write_rules();
    let written = Instant::now();
    settle();
    ended("and back", load, writing..written);
    same(&sorted(&theirs(&world)), &sorted(&before), "after the proxy");
    let left = world.network();
    assert!(!left.contains("dnsweir"), "{left}");
    for server in SERVED {
        assert_eq!(asked(&world, server), Answer::Neighbour, "{server}");
    }
    node_cache.end();
}

/// The proxy leaves nothing on the addresses that would take a part of the queries.
#[test]
fn an_end_beside_a_node_cache_with_some_of_the_addresses_loses_no_query() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let config = CONFIG.replace("\"169.254.20.10\"\n", "\"169.254.20.10\" \"fd00:20::10\"\n");
    let proxy = world.start(&config);
    let node_cache = NodeCache::start(&world);
    let load = loads(&world);
    settle();
    terminate(proxy);
    let now = Instant::now();
    settle();
    ended("beside a node-cache", load, now..now);
    node_cache.die();
}

/// node-cache exempts the node's queries to the cluster's DNS address from connection tracking. Written after
/// ours, that rule would lead the proxy's own queries back to it.
#[test]
fn the_proxy_reaches_the_cluster_whatever_a_node_cache_writes_later() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(CONFIG);
    let first = || world.script("iptables -w -t raw -S OUTPUT | grep -e '-d 10.96.0.10/32 -p udp' | head -1");
    assert!(first().contains("-j ACCEPT"), "{}", first());
    world.script(&node_cache("iptables", "10.96.0.10"));
    // No live process owns the rule, so the next check removes it.
    until("the rules to be ours", || {
        !world.network().contains("NodeLocal DNS Cache")
    });

    let node_cache = NodeCache::start(&world);
    node_cache.write_rules();
    until("our rule to be the first", || first().contains("-j ACCEPT"));
    assert!(theirs(&world).contains("-A OUTPUT -d 10.96.0.10/32 -p udp"));
    terminate(proxy);
    node_cache.end();
}

/// The configuration, with no check during a test.
fn without_checks() -> String {
    CONFIG.replace("interval \"1s\"", "interval \"1h\"")
}

/// The way back, a minute after node-cache's start: its rules are newer than ours. Ours for the proxy's own
/// queries move to the front as soon as the kernel reports the change; until then, none of these queries
/// depends on the order.
#[test]
fn what_a_node_cache_puts_before_our_rules_loses_no_query() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let proxy = world.start(&without_checks());
    let node_cache = NodeCache::start(&world);
    let load = loads(&world);
    settle();
    node_cache.write_rules();
    let first = || world.script("iptables -w -t raw -S OUTPUT | grep -e '-d 10.96.0.10/32 -p udp' | head -1");
    until("our rule to be the first", || first().contains("-j ACCEPT"));
    settle();
    for fates in ended("beside each other", load, Instant::now()..Instant::now()) {
        assert!(fates.of(Answer::Cluster) > 0 && fates.of(Answer::Neighbour) > 0);
    }
    terminate(proxy);
    node_cache.end();
}

/// Legacy iptables sends no notifications, and without nft the order of rules decides. Queries that come back
/// to the proxy trigger a check.
#[test]
fn queries_that_come_back_have_the_rules_looked_at() {
    let legacy = ["iptables-legacy", "ip6tables-legacy"];
    let Some(_place) = place(&legacy) else { return };
    let world = World::new(KubeProxy::Legacy);
    let bin = world.folder().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    for name in legacy
        .iter()
        .flat_map(|name| [(*name).to_owned(), format!("{name}-save")])
    {
        let program = tools::find(&name).unwrap_or_else(|| panic!("no {name}"));
        std::os::unix::fs::symlink(program, bin.join(name)).expect("a link");
    }
    let env = tools::find("env").expect("env").display().to_string();
    let config = without_checks().replace(" \"169.254.20.10\"", "").replace(
        "forward \"10.96.0.10\"",
        "forward \"10.96.0.10\" { probe \"100ms\"; timeout \"500ms\" }",
    );
    let proxy = world.launch_by(&[&env, &format!("PATH={}", bin.display())], &config);
    proxy.logged("no heartbeats");
    proxy.logged("answering queries");
    let load = Load::of_misses(&world.pod(), "10.96.0.10", Protocol::Udp);
    settle();
    let written = Instant::now();
    world.script(&node_cache("iptables-legacy", "10.96.0.10"));
    proxy.logged("queries to this upstream come back to this proxy");
    proxy.logged("repaired the node's network");
    proxy.logged("queries to this upstream no longer come back to this proxy");
    let mended = Instant::now();
    println!("mended {:?} after the rules were written", mended - written);
    settle();
    let fates = load.stop();
    assert!(fates.between(written, mended).lost() > 0, "nothing was amiss");
    let after = fates.since(mended);
    assert_eq!(after.of(Answer::Cluster), after.count());
    terminate(proxy);
}

/// The configuration names node-cache's own link, but not all of its addresses.
#[test]
fn a_neighbours_addresses_and_rules_on_the_same_link_are_left_alone() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let config = CONFIG
        .replace("\"169.254.20.10\"", "")
        .replace("interface \"dnsweir\"", "interface \"nodelocaldns\"");
    let node_cache = NodeCache::start(&world);
    node_cache.write_rules();
    let load = Load::start(&world.pod(), "169.254.20.10", Protocol::Udp);
    let proxy = world.start(&config);
    proxy.logged("another process is bound to 169.254.20.10");
    let plan = world.dnsweir(&["node", "plan"], &config);
    let plan = String::from_utf8_lossy(&plan.stdout);
    assert!(
        plan.contains("found link nodelocaldns (looks like node-cache: a process is bound"),
        "{plan}"
    );
    terminate(proxy);
    let down = world.dnsweir(&["node", "down", "--adopt"], &config);
    let down = String::from_utf8_lossy(&down.stdout);
    assert!(down.contains("left 169.254.20.10"), "{down}");
    let proxy = world.start(&config);
    let fates = load.stop();
    assert_eq!(
        fates.of(Answer::Neighbour),
        fates.count(),
        "{} lost",
        fates.lost()
    );

    // Once killed, it leaves what nothing else would remove.
    node_cache.die();
    until("its leftovers to go", || {
        !world.network().contains("169.254.20.10")
    });
    // Its rules looped queries to the cluster's DNS back; that this is over is noticed a moment later.
    until("the cluster to answer", || {
        asked(&world, "10.96.0.10") == Answer::Cluster
    });
    terminate(proxy);
    let left = theirs(&world);
    assert_eq!(left, "", "the link is empty, and goes");
}

/// Any process may bind a port of ours and take an abstract name. `down` then fails, and names what stays and
/// who holds it.
#[test]
fn what_down_cannot_take_away_is_an_exit_status() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    assert!(world.dnsweir(&["node", "up"], CONFIG).status.success());
    let squatter = bind(&world, "10.96.0.10:5353".parse().expect("an address"), true);
    let named = world.within("node", || {
        let name = UnixAddr::from_abstract_name("dnsweir-reconciler-me").expect("a name");
        UnixDatagram::bind_addr(&name).expect("a socket")
    });
    let named = named.join().expect("a socket");
    let down = world.dnsweir(&["node", "down"], CONFIG);
    let said = String::from_utf8_lossy(&down.stderr);
    assert_eq!(down.status.code(), Some(71), "{said}");
    for why in [
        "cannot take away 10.96.0.10 with its rules and its link: ",
        " is bound to 10.96.0.10:5353. End that process",
        "cannot take away the links for the self-test: ",
        "which has the socket @dnsweir-reconciler-me",
    ] {
        assert!(said.contains(why), "{why}: {said}");
    }
    drop((squatter, named));
    let down = world.dnsweir(&["node", "down"], CONFIG);
    assert!(down.status.success(), "{down:?}");
    let left = world.script("ip -o link");
    for name in [" dnsweir:", " dnsweir-test"] {
        assert!(!left.contains(name), "{name}: {left}");
    }
}

/// What contentful's plugin and two versions of Deckhouse's module leave behind.
const FORERUNNERS: &str = "
    ip link add nodecache type dummy 2> /dev/null || ip link add nodecache type bridge
    ip addr add 169.254.20.11/32 dev nodecache
    for p in tcp udp; do
        iptables -w -t raw -A PREROUTING -d 169.254.20.11 -p $p --dport 53 -j NOTRACK
        iptables -w -A INPUT -d 169.254.20.11 -p $p --dport 53 -j ACCEPT
        iptables -w -t raw -A OUTPUT -s 169.254.20.11 -p $p --sport 53 -j NOTRACK
        iptables -w -A OUTPUT -s 169.254.20.11 -p $p --sport 53 -j ACCEPT
        iptables -w -t raw -A OUTPUT -s 169.254.20.12 -p $p --sport 53 -j NOTRACK
    done
    iptables -w -t raw -A PREROUTING -d 169.254.20.12 -m socket --nowildcard -j NOTRACK
    iptables -w -t raw -N NODE-LOCAL-DNS
    iptables -w -t raw -A NODE-LOCAL-DNS -d 169.254.20.12 -p udp --dport 53 -j NOTRACK
    iptables -w -t raw -A PREROUTING -j NODE-LOCAL-DNS";

#[test]
fn what_forerunners_left_is_named_and_goes_when_asked_for() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // Creates the tables beforehand; one rule could be anyone's.
    world.script("iptables -w -t raw -A PREROUTING -d 169.254.20.13 -p udp --dport 53 -j NOTRACK; iptables -w -A INPUT -p sctp; ip6tables -w -t raw -S; ip6tables -w -S; ip6tables -w -t nat -S");
    let before = world.network();
    world.script(FORERUNNERS);
    let left = world.network();
    let plan = world.dnsweir(&["node", "plan"], CONFIG);
    let plan = String::from_utf8_lossy(&plan.stdout);
    let named = |author: &str| plan.lines().filter(|line| line.contains(author)).count();
    assert_eq!(
        named("looks like coredns-nodecache"),
        9,
        "a link and eight rules: {plan}"
    );
    assert_eq!(named("looks like Deckhouse's node-local-dns"), 5, "{plan}");

    let mut proxy = world.launch(CONFIG);
    proxy.logged("link nodecache (looks like coredns-nodecache");
    proxy.logged("answering queries");
    proxy.signal("TERM");
    assert!(proxy.ended().success());
    assert!(world.dnsweir(&["node", "down"], CONFIG).status.success());
    same(
        &world.network(),
        &left,
        "neither a proxy nor `down` takes it away",
    );

    let down = world.dnsweir(&["node", "down", "--adopt"], CONFIG);
    assert!(down.status.success(), "{down:?}");
    same(&world.network(), &before, "afterwards");
}
