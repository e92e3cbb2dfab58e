//! Common clients: dig, kdig, and every program that calls `getaddrinfo`; with nsd as upstream and a zone
//! with everything.

use std::net::SocketAddr;

use crate::harness::namespace::Namespace;
use crate::harness::process::Process;
use crate::harness::{ONCE, Proxy, forward_once, needs, proxy, servers, tools, until};

const ZONE: &str = "\
$ORIGIN example.
$TTL 300
@       SOA   ns root 1 3600 600 86400 60
        NS    ns
        MX    10 mail
        TXT   \"v=spf1 -all\"
        CAA   0 issue \"ca.example\"
ns      A     192.0.2.53
mail    A     192.0.2.25
        AAAA  2001:db8::25
www     CNAME host
host    A     192.0.2.1
        A     192.0.2.2
        AAAA  2001:db8::1
*.wild  A     192.0.2.9
_sip._tcp SRV 1 2 5060 mail
svc     HTTPS 1 . alpn=h2
odd     TYPE65400 \\# 4 01020304
big     TXT   ( \"0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" )
big     TXT   ( \"1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" )
big     TXT   ( \"2aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" )
big     TXT   ( \"3aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" )
big     TXT   ( \"4aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" )
big     TXT   ( \"5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" )
";

/// The sections as dig prints them, sorted.
fn dig(server: SocketAddr, arguments: &[&str]) -> Vec<String> {
    let mut command = tools::command("dig");
    command
        .arg(format!("@{}", server.ip()))
        .args(["-p", &server.port().to_string()]);
    command
        .args(["+noall", "+answer", "+authority", "+tries=1", "+nottlid"])
        .args(arguments);
    let mut lines: Vec<String> = tools::output(&mut command)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    lines
}

/// Through the proxy, dig sees the same as without it, on a miss and on a hit.
#[test]
fn dig_sees_what_nsd_says() {
    if !needs(&["dig", "nsd"]) {
        return;
    }
    let nsd = servers::nsd("example", ZONE);
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" {{ {ONCE}; any }} }}",
        nsd.address
    ));
    for question in [
        &["www.example", "A"][..],
        &["www.example", "AAAA"],
        &["host.example", "ANY"],
        &["example", "MX"],
        &["example", "SOA"],
        &["example", "NS"],
        &["example", "TXT"],
        &["example", "CAA"],
        &["any.wild.example", "A"],
        &["any.wild.example", "AAAA"],
        &["_sip._tcp.example", "SRV"],
        &["svc.example", "HTTPS"],
        &["odd.example", "TYPE65400"],
        &["none.example", "A"],
        &["big.example", "TXT"],
        &["big.example", "TXT", "+noedns"],
        &["www.example", "A", "+tcp"],
        &["www.example", "A", "+dnssec"],
        &["www.example", "A", "+cookie=0102030405060708"],
        &["www.example", "A", "+nsid", "+bufsize=512"],
        &["www.example", "A", "+norecurse"],
        &["www.example", "A", "+cdflag", "+adflag"],
    ] {
        let direct = dig(nsd.address, question);
        for attempt in ["miss", "hit"] {
            assert_eq!(dig(proxy.address, question), direct, "{question:?}, {attempt}");
        }
    }
}

/// dig prints no warnings about the proxy's messages.
#[test]
fn dig_has_nothing_to_complain_about() {
    if !needs(&["dig", "nsd"]) {
        return;
    }
    let nsd = servers::nsd("example", ZONE);
    let proxy = Proxy::start(&format!("zone \".\" {{ cache; {} }}", forward_once(nsd.address)));
    for arguments in [
        &["www.example"][..],
        &["none.example"],
        &["big.example", "TXT", "+ignore", "+noedns"],
        &["www.example", "+ednsopt=65001"],
    ] {
        let mut command = tools::command("dig");
        command.arg(format!("@{}", proxy.address.ip())).args([
            "-p",
            &proxy.address.port().to_string(),
            "+qr",
        ]);
        let text = tools::output(command.args(arguments));
        assert!(!text.to_ascii_lowercase().contains("warning"), "{text}");
    }
}

/// kdig keeps a connection open for several queries, like stub resolvers over TCP.
#[test]
fn kdig_keeps_a_connection() {
    if !needs(&["kdig", "nsd"]) {
        return;
    }
    let nsd = servers::nsd("example", ZONE);
    let proxy = Proxy::start(&format!("zone \".\" {{ cache; {} }}", forward_once(nsd.address)));
    let mut command = tools::command("kdig");
    command.arg(format!("@{}#{}", proxy.address.ip(), proxy.address.port()));
    command.args([
        "+tcp",
        "+keepopen",
        "+short",
        "host.example",
        "A",
        "mail.example",
        "AAAA",
        "www.example",
        "A",
    ]);
    let mut lines: Vec<String> = tools::output(&mut command).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.2",
            "2001:db8::25",
            "host.example."
        ]
    );
}

/// glibc asks for A and AAAA at the same time over one socket, follows search lists, and needs both answers.
#[test]
fn getaddrinfo_resolves_through_the_proxy() {
    if !needs(&["root", "ip", "nsenter", "getent"]) {
        return;
    }
    let network = Namespace::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    network.replace(
        "/etc/resolv.conf",
        &write(
            "resolv.conf",
            "nameserver 127.0.0.1\nsearch example\noptions ndots:1\n",
        ),
    );
    network.replace("/etc/nsswitch.conf", &write("nsswitch.conf", "hosts: dns\n"));
    let configuration = "listen \"127.0.0.1\"\n\
        filter \"table\" {\n  module \"builtin:hosts\"\n  config {\n    host \"host.example\" \"192.0.2.1\" \"2001:db8::1\"\n  }\n}\n\
        zone \".\" { use \"table\"; cache; forward \"127.0.0.1:9\" { timeout \"100ms\"; deadline \"200ms\" } }\n";
    let file = write("dnsweir.kdl", configuration);
    let mut process = Process::start(proxy::command_in(&network).arg("run").arg("--config").arg(&file));
    for name in ["host.example", "host", "localhost"] {
        let expected: &[&str] = if name == "localhost" {
            &["127.0.0.1", "::1"]
        } else {
            &["192.0.2.1", "2001:db8::1"]
        };
        let mut found = Vec::new();
        until("getaddrinfo to find the addresses", || {
            assert!(process.running(), "the proxy ended: {:#?}", process.stderr());
            let output = network
                .tool("getent")
                .args(["ahosts", name])
                .output()
                .expect("getent");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            found = text
                .lines()
                .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
                .collect();
            expected
                .iter()
                .all(|address| found.iter().any(|line| line == address))
        });
        found.sort();
        found.dedup();
        assert_eq!(found, expected);
    }
}
