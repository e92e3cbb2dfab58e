//! Secondary zones: nsd and BIND as primaries, in all circumstances.

use std::net::SocketAddr;

use harness::client::Stream;
use harness::servers::{self, Server, SharedKey};
use harness::tools::needs;
use harness::{Message, Proxy, address, until};

use super::transfers::{KEYS, dig, replace, simple};

/// A server that has the zone in a file, and sends NOTIFY to `tells`.
fn primary(name: &str, zone: &str, key: Option<&SharedKey>, tells: SocketAddr, text: &str) -> Server {
    let own = match name {
        "named" => address::fresh_port(),
        _ => address::fresh_socket(),
    };
    match name {
        "nsd" => servers::nsd_primary(zone, own, key, tells, text),
        _ => {
            let (who, with) = match key {
                Some(key) => (format!("key {:?};", key.name), format!("key {:?}", key.name)),
                None => ("any;".into(), String::new()),
            };
            let lines = format!(
                "type primary; ixfr-from-differences yes; max-ixfr-ratio unlimited; allow-transfer {{ {who} }}; notify explicit; \
                 notify-source {}; also-notify {{ {} port {} {with}; }};",
                own.ip(),
                tells.ip(),
                tells.port()
            );
            servers::named(zone, own, key, &lines, Some(text))
        }
    }
    .ready(zone)
}

fn follow(at: SocketAddr, zone: &str, primary: SocketAddr, key: Option<&SharedKey>, block: &str) -> Proxy {
    let define = key.map_or_else(String::new, SharedKey::for_dnsweir);
    let name = key.map_or_else(String::new, |key| format!("key {:?};", key.name));
    Proxy::start(&format!(
        "listen \"$LISTEN\" \"{at}\"\nadmin \"$ADMIN\"\n{define}\n\
         zone {zone:?} {{ secondary \"{primary}\" {{ {name} {block} }} }}"
    ))
}

fn refreshes(proxy: &Proxy, result: &str) -> f64 {
    proxy
        .metrics()
        .sum("dnsweir_secondary_refreshes_total", &[("result", result)])
}

/// The zone's refresh is an hour: changes can only come by NOTIFY.
#[test]
fn primaries_are_followed() {
    if !needs(&["nsd", "named"]) {
        return;
    }
    let [one, _, three] = &KEYS;
    let zone = "followed.test.";
    for (name, key) in [
        ("nsd", None),
        ("nsd", Some(one)),
        ("named", None),
        ("named", Some(three)),
    ] {
        let at = address::fresh_socket();
        let primary = primary(name, zone, key, at, &simple(1));
        let proxy = follow(at, zone, primary.address, key, "");
        for number in 1..4 {
            if number > 1 {
                replace(&primary.folder().join("zone"), &simple(number));
                primary.process.signal("HUP");
            }
            let expected = [format!("www.{zone} TXT \"{number}\"")];
            until(&format!("serial {number} of {name}"), || {
                proxy.query(&format!("www.{zone}"), "TXT").answers() == expected
            });
        }
        let serial = proxy
            .metrics()
            .sum("dnsweir_secondary_serial", &[("origin", zone)]);
        assert_eq!(serial, 3.0);
        let heard = [("origin", zone), ("result", "heard")];
        assert!(proxy.metrics().sum("dnsweir_secondary_notifies_total", &heard) >= 2.0);
        match name {
            "named" => assert!(refreshes(&proxy, "ixfr") >= 2.0, "{}", proxy.get("/metrics").1),
            _ => assert!(refreshes(&proxy, "axfr") >= 1.0),
        }
        let (_, page) = proxy.get("/status");
        assert!(
            page.contains("followed.test. with serial 3 and 4 records, checked"),
            "{page}"
        );
    }
}

/// A secondary in between has everything that nsd has.
#[test]
fn what_comes_is_what_there_is() {
    if !needs(&["nsd", "dig"]) {
        return;
    }
    for (zone, text) in [
        ("hard.example.", include_str!("hard.zone")),
        ("wide.example.", include_str!("wide.zone")),
    ] {
        let nsd = servers::nsd(zone, text);
        let proxy = follow(
            address::fresh_socket(),
            zone,
            nsd.address,
            None,
            "transfer { to \"127.0.0.0/8\" }",
        );
        assert_eq!(
            dig(proxy.address, zone, &[]),
            dig(nsd.address, zone, &[]),
            "{zone}"
        );
    }
}

#[test]
fn a_zone_is_served_until_it_expires() {
    if !needs(&["nsd"]) {
        return;
    }
    let zone = "brief.test.";
    let at = address::fresh_socket();
    let text = simple(1).replace("3600 3600 86400", "1 1 3");
    let mut nsd = primary("nsd", zone, None, at, &text);
    let proxy = follow(at, zone, nsd.address, None, "");
    let answer = || proxy.query(&format!("www.{zone}"), "TXT");
    assert_eq!(answer().rcode(), "NOERROR");
    nsd.process.stop();
    until("a look that fails", || refreshes(&proxy, "failed") > 0.0);
    until("the end", || answer().rcode() == "SERVFAIL");
    let (_, page) = proxy.get("/status");
    assert!(page.contains("brief.test. has expired"), "{page}");
    assert_eq!(
        proxy
            .metrics()
            .sum("dnsweir_secondary_served", &[("origin", zone)]),
        0.0
    );
}

#[test]
fn nobody_is_asked_before_a_zone_has_come() {
    if !needs(&["nsd"]) {
        return;
    }
    let (zone, at, own) = ("late.test.", address::fresh_socket(), address::fresh_socket());
    let text = format!(
        "listen \"$LISTEN\" \"{at}\"\nadmin \"$ADMIN\"\nzone {zone:?} {{ secondary \"{own}\" {{ wait \"1h\" }} }}"
    );
    let mut proxy = Proxy::launch(&text, &[]);
    proxy.process.logged("cannot be reached");
    assert!(harness::proxy::try_get(proxy.admin, "/ready").is_none_or(|(status, _)| status != 200));
    let nsd = servers::nsd_primary(zone, own, None, at, &simple(1)).ready(zone);
    proxy.await_ready();
    assert_eq!(proxy.query(&format!("www.{zone}"), "TXT").rcode(), "NOERROR");
    // NOTIFY from others is refused.
    let notify = Message::query(zone, "SOA").opcode(4);
    let answer = Stream::connect(proxy.address).ask(&notify);
    assert_eq!(answer.rcode(), "REFUSED");
    assert_eq!(answer.header & 0x7800, 4 << 11);
    let refused = [("origin", zone), ("result", "refused")];
    proxy.await_metric("dnsweir_secondary_notifies_total", &refused, 1.0);
    drop(nsd);
}
