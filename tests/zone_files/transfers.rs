//! Zone transfers to others: nsd and BIND as secondaries, dig, and clients that do not read.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use harness::api_server::ApiServer;
use harness::certificates::Authority;
use harness::client::{self, Stream};
use harness::servers::{self, SharedKey};
use harness::tools::{command, needs};
use harness::{Message, PATIENCE, Proxy, address, ask, until};

/// Keys for each algorithm.
pub const KEYS: [SharedKey; 3] = [
    SharedKey {
        name: "one.example",
        algorithm: "hmac-sha256",
        secret: "bm8gb25lIGVsc2Uga25vd3MgdGhpcyBvbmU=",
    },
    SharedKey {
        name: "two.example",
        algorithm: "hmac-sha384",
        secret: "bm9yIGRvZXMgYW55Ym9keSBrbm93IHRoaXMgb25l",
    },
    SharedKey {
        name: "three.example",
        algorithm: "hmac-sha512",
        secret: "YW5kIHRoaXMgb25lIGlzIGp1c3QgYXMgc2VjcmV0",
    },
];

/// What dig prints of a whole zone, one record per line, without its SOA record.
pub fn dig(server: SocketAddr, zone: &str, more: &[&str]) -> BTreeSet<String> {
    let printed = dig_text(server, zone, more);
    let records = printed
        .lines()
        .filter(|line| !line.starts_with(';') && !line.is_empty());
    let records = records.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let of_zone = |line: &String| !line.contains(" IN SOA ") && !line.contains(" ANY TSIG ");
    // dig spells one name as in another record.
    records.filter(of_zone).map(|line| line.to_lowercase()).collect()
}

fn dig_text(server: SocketAddr, zone: &str, more: &[&str]) -> String {
    let mut dig = command("dig");
    dig.arg(format!("@{}", server.ip()))
        .args(["-p", &server.port().to_string(), zone, "AXFR"]);
    let done = dig
        .args(["+onesoa", "+nocookie"])
        .args(more)
        .output()
        .expect("dig");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A zone with this serial.
pub fn simple(serial: u32) -> String {
    format!(
        "$TTL 60\n@ SOA ns admin {serial} 3600 3600 86400 5\n@ NS ns\nns A 127.0.0.1\nwww TXT \"{serial}\"\n"
    )
}

/// Replaces a file by renaming another one.
pub fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, file).unwrap();
}

/// The same records as nsd sends from the same files, plain and signed with each algorithm, over TCP and TLS.
#[test]
fn whoever_may_gets_all_of_a_zone() {
    if !needs(&["nsd", "dig"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let certificate = Authority::new().issue(&["dns.example"]);
    let (certificate, key) = certificate.write(folder.path(), "server");
    for (origin, text) in [
        ("hard.example.", include_str!("hard.zone")),
        ("wide.example.", include_str!("wide.zone")),
    ] {
        let nsd = servers::nsd(origin, text);
        let expected = dig(nsd.address, origin, &[]);
        let file = folder.path().join("zone");
        fs::write(&file, text).unwrap();
        for shared in KEYS.iter().map(Some).chain([None]) {
            let tls = SocketAddr::new(address::fresh_socket().ip(), 8853);
            let define = shared.map_or_else(String::new, SharedKey::for_dnsweir);
            let name = shared.map_or_else(String::new, |shared| format!("key {:?}", shared.name));
            let proxy = Proxy::start(&format!(
                "listen \"$LISTEN\" \"tls://{tls}\" {{ certificate {certificate:?} key={key:?} }}\nadmin \"$ADMIN\"\n{define}\n\
                 zone {origin:?} {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\"; {name} }} }} }}"
            ));
            let signs = shared.map(SharedKey::for_dig);
            let signs: Vec<&str> = signs.iter().flat_map(|shared| ["-y", shared]).collect();
            assert_eq!(dig(proxy.address, origin, &signs), expected, "{origin}");
            assert_eq!(
                dig(tls, origin, &[&signs[..], &["+tls"]].concat()),
                expected,
                "{origin}"
            );
            let sent = [("origin", origin), ("result", "sent")];
            proxy.await_metric("dnsweir_transfers_out_total", &sent, 2.0);
            assert_eq!(proxy.metrics().sum("dnsweir_transfers_out_active", &[]), 0.0);
        }
    }
}

#[test]
fn others_are_refused_and_told_why() {
    if !needs(&["dig"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, simple(1)).unwrap();
    let [one, two, _] = &KEYS;
    let proxy = Proxy::start(&format!(
        "{}\nzone \"open.test\" {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\" }} }} }}\n\
         zone \"far.test\" {{ file {file:?} {{ transfer {{ to \"192.0.2.0/24\" }} }} }}\n\
         zone \"signed.test\" {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\"; key {:?} }} }} }}\n\
         zone \"closed.test\" {{ file {file:?} }}",
        one.for_dnsweir(),
        one.name
    ));
    for (zone, code) in [
        ("far.test.", 18),
        ("signed.test.", 18),
        ("closed.test.", 0),
        ("www.open.test.", 0),
        ("nobodys.test.", 0),
    ] {
        let answer = Stream::connect(proxy.address).ask(&Message::query(zone, "AXFR").edns(1232));
        assert_eq!(
            (answer.rcode(), answer.extended_errors()),
            ("REFUSED".into(), vec![code]),
            "{zone}"
        );
        assert!(answer.answers.is_empty());
    }
    // RFC 5936 section 4.2.
    let over_udp = ask(proxy.address, &Message::query("open.test.", "AXFR").edns(1232));
    assert_eq!(over_udp.rcode(), "REFUSED");
    let wrong = SharedKey {
        secret: two.secret,
        ..*one
    };
    for (key, why) in [(&wrong, "BADSIG"), (two, "BADKEY")] {
        let text = dig_text(proxy.address, "signed.test.", &["-y", &key.for_dig()]);
        assert!(text.contains(why), "{text}");
    }
}

/// Secondaries sign their SOA queries, too, and require signed answers.
#[test]
fn an_answer_is_signed_where_the_query_is() {
    if !needs(&["dig"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, simple(1)).unwrap();
    let one = &KEYS[0];
    let proxy = Proxy::start(&format!(
        "{}\nzone \"signed.test\" {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\"; key {:?} }} }} }}",
        one.for_dnsweir(),
        one.name
    ));
    for (name, qtype, expected) in [
        ("signed.test.", "SOA", "admin.signed.test."),
        ("www.signed.test.", "TXT", "\"1\""),
    ] {
        let mut dig = command("dig");
        dig.arg(format!("@{}", proxy.address.ip())).args([
            "-p",
            &proxy.address.port().to_string(),
            name,
            qtype,
        ]);
        let done = dig.args(["+short", "-y", &one.for_dig()]).output().expect("dig");
        let (said, complaint) = (
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr),
        );
        assert!(
            said.contains(expected) && !said.contains("verify") && complaint.is_empty(),
            "{said}{complaint}"
        );
    }
}

/// A server's serial, from its TXT answer for `www`.
fn serial(server: SocketAddr, zone: &str) -> Vec<String> {
    let answer = Message::decode(&harness::exchange(
        server,
        &Message::query(&format!("www.{zone}"), "TXT").encode(),
    ));
    answer.map(|answer| answer.answers()).unwrap_or_default()
}

/// Their refresh is an hour: changes can only come by NOTIFY.
#[test]
fn secondaries_are_told_of_changes() {
    if !needs(&["nsd", "named"]) {
        return;
    }
    let [one, _, three] = &KEYS;
    let zone = "told.test.";
    for (name, key) in [
        ("nsd", None),
        ("nsd", Some(one)),
        ("named", None),
        ("named", Some(three)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zone");
        fs::write(&file, simple(1)).unwrap();
        let secondary = match name {
            "named" => address::fresh_port(),
            _ => address::fresh_socket(),
        };
        let define = key.map_or_else(String::new, SharedKey::for_dnsweir);
        let named_key = key.map_or_else(String::new, |key| format!("key {:?};", key.name));
        let proxy = Proxy::start(&format!(
            "{define}\nzone {zone:?} {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\"; {named_key} notify \"{secondary}\" }} }} }}"
        ));
        let primary = proxy.address;
        let server = match name {
            "nsd" => servers::nsd_secondary(zone, secondary, primary, key),
            _ => {
                let key_name = key.map_or_else(String::new, |key| format!("key {:?}", key.name));
                let lines = format!(
                    "type secondary; masterfile-format text; primaries {{ {} port {} {key_name}; }};",
                    primary.ip(),
                    primary.port()
                );
                servers::named(zone, secondary, key, &lines, None)
            }
        };
        let _server = server.ready(zone);
        let mut number = 1;
        let has = |number| serial(secondary, zone) == [format!("www.{zone} TXT \"{number}\"")];
        until(&format!("{name} to have the zone"), || has(1));
        for _ in 0..2 {
            let mut told = Instant::now();
            number += 1;
            replace(&file, &simple(number));
            until(&format!("{name} to have the next serial"), || {
                // nsd acknowledges and forgets a NOTIFY that comes while it still loads the previous one.
                if name == "nsd" && told.elapsed() > Duration::from_secs(3) {
                    told = Instant::now();
                    number += 1;
                    replace(&file, &simple(number));
                }
                has(number)
            });
        }
        let answered = [("origin", zone), ("result", "answered")];
        until("a secondary to answer", || {
            proxy.metrics().sum("dnsweir_transfer_notifies_total", &answered) >= 1.0
        });
    }
}

/// A secondary that queries immediately after NOTIFY gets the new data, from every worker.
#[test]
fn nobody_is_told_before_every_worker_knows() {
    let zone = "told.test.";
    let secondary = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    secondary.set_read_timeout(Some(PATIENCE)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, simple(1)).unwrap();
    let proxy = Proxy::start(&format!(
        "workers 8\nzone {zone:?} {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\"; notify \"{}\" }} }} }}",
        secondary.local_addr().unwrap()
    ));
    let query = Message::query(&format!("www.{zone}"), "TXT");
    for number in 1..=20 {
        if number > 1 {
            replace(&file, &simple(number));
        }
        // Enough that each worker gets some of them.
        let clients: Vec<UdpSocket> = (0..64).map(|_| client::socket(proxy.address)).collect();
        let mut told = [0; 512];
        let (length, primary) = secondary.recv_from(&mut told).unwrap();
        for client in &clients {
            client.send(&query.encode()).unwrap();
        }
        // The same message as a response acknowledges it (RFC 1996 section 4.7).
        told[2] |= 0x80;
        secondary.send_to(&told[..length], primary).unwrap();
        for client in &clients {
            let answer = Message::decode(&client::receive(client)).unwrap();
            assert_eq!(answer.answers(), [format!("www.{zone} TXT \"{number}\"")]);
        }
    }
}

/// Records that a client does not read yet are not generated.
#[test]
fn who_does_not_read_holds_little() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let count = 40_000;
    let mut text = simple(1);
    for index in 0..count {
        text += &format!("name-{index} TXT \"{}\"\n", "x".repeat(200));
    }
    fs::write(&file, &text).unwrap();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-write \"60s\" }}\nadmin \"$ADMIN\"\n\
         zone \"large.test\" {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\" }} }} }}"
    ));
    let mut stream = Stream::connect(proxy.address);
    stream.send(&[&Message::query("large.test.", "AXFR")]);
    let held = |proxy: &Proxy| proxy.metrics().sum("dnsweir_tcp_bytes", &[]);
    until("the transfer to wait", || held(&proxy) > 64_000.0);
    // A transfer ends with the version of the zone that it began with.
    replace(&file, &simple(2));
    until("the other zone", || {
        proxy.metrics().sum("dnsweir_file_serial", &[]) == 2.0
    });
    assert!(held(&proxy) < 100_000.0, "{}", held(&proxy));
    assert_eq!(
        proxy.query("www.large.test.", "TXT").answers(),
        ["www.large.test. TXT \"2\""]
    );
    let (mut records, mut ends) = (0, 0);
    while ends < 2 {
        let message = stream.receive().expect("the rest of the transfer");
        records += message.answers.len();
        ends += message.answers.iter().filter(|record| record.rtype == 6).count();
        assert!(held(&proxy) < 100_000.0, "{}", held(&proxy));
    }
    assert_eq!(records, count + 5);
    // Other queries are answered on the same connection.
    assert_eq!(
        stream.ask(&Message::query("www.large.test.", "TXT")).rcode(),
        "NOERROR"
    );
}

/// RFC 7766 section 6.2.1.1: a client that reads nothing is disconnected, and its place is free.
#[test]
fn who_reads_nothing_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let mut text = simple(1);
    for index in 0..20_000 {
        text += &format!("name-{index} TXT \"{}\"\n", "x".repeat(200));
    }
    fs::write(&file, &text).unwrap();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-write \"1s\" }}\nadmin \"$ADMIN\"\n\
         zone \"large.test\" {{ file {file:?} {{ transfer {{ to \"127.0.0.0/8\" }} }} }}"
    ));
    let mut stream = Stream::connect(proxy.address);
    stream.send(&[&Message::query("large.test.", "AXFR")]);
    proxy.await_metric("dnsweir_transfers_out_total", &[("result", "broken")], 1.0);
    proxy.await_metric("dnsweir_tcp_closed_total", &[("reason", "write")], 1.0);
    assert_eq!(proxy.metrics().sum("dnsweir_transfers_out_active", &[]), 0.0);
}

/// The same records as queries for all names of a cluster return, forward and reverse.
#[test]
fn a_cluster_is_transferred() {
    if !needs(&["dig"]) {
        return;
    }
    let server = ApiServer::start();
    server.put_service("web", "10.0.0.1");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig("secret")).unwrap();
    let proxy = Proxy::start(&format!(
        "zone \"cluster.local\" \"in-addr.arpa\" {{ kubernetes {{ kubeconfig {kubeconfig:?}; transfer {{ to \"127.0.0.0/8\" }} }} }}"
    ));
    let forward = dig(proxy.address, "cluster.local.", &[]);
    for line in [
        "web.zoo.svc.cluster.local. 5 in a 10.0.0.1",
        "dns-version.cluster.local. 28800 in txt \"1.1.0\"",
    ] {
        assert!(forward.contains(line), "{forward:#?}");
    }
    let back = dig(proxy.address, "in-addr.arpa.", &[]);
    assert!(
        back.contains("1.0.0.10.in-addr.arpa. 5 in ptr web.zoo.svc.cluster.local."),
        "{back:#?}"
    );
}
