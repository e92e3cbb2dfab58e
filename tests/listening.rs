//! Listen addresses: several, of both families, and wildcards.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::harness::namespace::Namespace;
use crate::harness::process::Process;
use crate::harness::{
    Message, Proxy, Stream, Upstream, address, ask, forward_once, needs, proxy, tools, until,
};

fn upstream() -> Upstream {
    Upstream::zone(&["www.example. 300 A 192.0.2.1"])
}

#[track_caller]
fn answers(address: SocketAddr) {
    let query = Message::query("www.example", "A");
    assert_eq!(
        ask(address, &query).answers(),
        ["www.example. A 192.0.2.1"],
        "UDP at {address}"
    );
    assert_eq!(
        Stream::connect(address).ask(&query).answers(),
        ["www.example. A 192.0.2.1"],
        "TCP at {address}"
    );
}

#[test]
fn several_addresses_of_both_families() {
    let upstream = upstream();
    let (second, third) = (address::fresh_socket(), address::fresh_ipv6());
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" \"{second}\" \"{third}\"\nzone \".\" {{ {} }}",
        forward_once(upstream.address)
    ));
    for address in [proxy.address, second, third] {
        answers(address);
    }
    proxy.await_metric(
        "dnsweir_requests_total",
        &[("family", "ipv4"), ("proto", "udp")],
        2.0,
    );
    proxy.await_metric(
        "dnsweir_requests_total",
        &[("family", "ipv6"), ("proto", "tcp")],
        1.0,
    );
}

/// The effect of the marks in the kernel is tested next to the code that sets them.
#[test]
fn sockets_are_marked_with_their_processors_while_that_is_wanted() {
    let upstream = upstream();
    let text = |words: &str| {
        let forward = forward_once(upstream.address);
        format!("listen \"$LISTEN\" {{ {words} }}\nworkers 2\nzone \".\" {{ {forward} }}")
    };
    let proxy = Proxy::start(&text("by-processor"));
    let marks = || {
        let sockets = proxy.process.datagram_sockets(proxy.address);
        let marks = sockets.iter().map(|socket| socket.cpu_affinity().unwrap() as i32);
        marks.collect::<HashSet<i32>>()
    };
    // There is a worker for each of the first two processors, if there are as many.
    let processors = std::thread::available_parallelism().unwrap().get();
    let marked = marks();
    let known = marked.iter().filter(|mark| **mark >= 0).count();
    assert_eq!((known, marked.len()), (processors.min(2), 2), "{marked:?}");
    answers(proxy.address);
    proxy.reload(&text(""));
    assert_eq!(marks(), HashSet::from([-1]));
    proxy.reload(&text("by-processor"));
    assert_eq!(marks(), marked);
    answers(proxy.address);
}

/// A connected socket accepts answers only from the address that it asked: a wildcard answers from the
/// address that the query was sent to, whichever of the machine's it is.
#[test]
fn a_wildcard_answers_from_the_address_that_was_asked() {
    let upstream = upstream();
    let port = address::fresh_ipv6().port();
    let _proxy = Proxy::start(&format!(
        "listen \"0.0.0.0:{port}\" // $LISTEN\nzone \".\" {{ {} }}",
        forward_once(upstream.address)
    ));
    for _ in 0..3 {
        answers(SocketAddr::new(IpAddr::V4(address::fresh()), port));
    }
}

/// The same for IPv6, in a network with more addresses, since loopback has only one.
#[test]
fn an_ipv6_wildcard_answers_from_the_address_that_was_asked() {
    if !needs(&["root", "ip", "nsenter", "dig"]) {
        return;
    }
    let network = Namespace::new();
    for address in ["fd00::1/128", "fd00::2/128"] {
        tools::output(
            network
                .tool("ip")
                .args(["-6", "addr", "add", address, "dev", "lo", "nodad"]),
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = "listen \"[::]:53\"\nfilter \"table\" { module \"builtin:hosts\"; config { host \"a.test\" \"192.0.2.7\" } }\n\
                zone \".\" { use \"table\"; forward \"127.0.0.1:9\" }\n";
    std::fs::write(&file, text).expect("a configuration file");
    let mut process = Process::start(proxy::command_in(&network).arg("run").arg("--config").arg(&file));
    for server in ["fd00::1", "fd00::2", "::1"] {
        for transport in ["+notcp", "+tcp"] {
            until("an answer over IPv6", || {
                assert!(process.running(), "the proxy ended: {:#?}", process.stderr());
                let mut dig = network.tool("dig");
                dig.arg(format!("@{server}"))
                    .args([transport, "+tries=1", "+time=2", "+short", "a.test"]);
                dig.output().is_ok_and(|output| output.stdout == b"192.0.2.7\n")
            });
        }
    }
}

/// An address in use is reported, and the proxy does not run without it.
#[test]
fn an_address_that_is_taken_is_an_error() {
    let taken = address::fresh_socket();
    let _holder = UdpSocket::bind(taken).expect("a socket");
    let mut proxy = Proxy::launch(
        &format!("listen \"{taken}\" // $LISTEN\nzone \".\" {{ forward \"127.0.0.1:9\" }}"),
        &[],
    );
    assert!(!proxy.process.ended().success());
    proxy.process.logged(&taken.to_string());
}

/// An IPv6 wildcard leaves IPv4 to a separate listener.
#[test]
fn both_wildcards_stand_side_by_side() {
    let upstream = upstream();
    let port = address::fresh_ipv6().port();
    let _proxy = Proxy::start(&format!(
        "listen \"0.0.0.0:{port}\" \"[::]:{port}\" // $LISTEN\nzone \".\" {{ {} }}",
        forward_once(upstream.address)
    ));
    answers(SocketAddr::new(IpAddr::V4(address::fresh()), port));
    answers(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port));
}
