//! A new configuration takes over without losing a query.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::address::fresh_socket;
use crate::harness::message::flags;
use crate::harness::{Message, Proxy, Upstream, ask, forward_once, until, upstream::Gate, upstream::Reply};

/// An upstream with one address.
pub fn one(address: &str) -> Upstream {
    Upstream::zone(&[
        &format!("www.example. 300 A {address}"),
        "example. 300 SOA ns.example. root.example. 1 2 3 4 5",
    ])
}

/// A configuration that asks it alone.
pub fn forward(upstream: &Upstream) -> String {
    format!("zone \".\" {{ {} }}", forward_once(upstream.address))
}

#[test]
fn sighup_reloads() {
    let (first, second) = (one("192.0.2.1"), one("192.0.2.2"));
    let proxy = Proxy::start(&forward(&first));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    proxy.reload(&forward(&second));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.2"]
    );
    proxy.await_metric("dnsweir_reloads_total", &[("result", "ok")], 1.0);
}

#[test]
fn a_changed_file_reloads_by_itself() {
    let (first, second) = (one("192.0.2.1"), one("192.0.2.2"));
    let proxy = Proxy::start(&forward(&first));
    proxy.rewrite(&forward(&second));
    until("the changed file to be in force", || {
        proxy.query("www.example", "A").answers() == ["www.example. A 192.0.2.2"]
    });
}

/// A query in flight ends on the generation that it started with.
#[test]
fn a_query_in_flight_ends_on_its_own_generation() {
    let gate = Gate::default();
    let behind = gate.clone();
    let first = Upstream::start(move |asked| {
        Reply::Behind(
            behind.clone(),
            Box::new(asked.answer(&["www.example. 300 A 192.0.2.1"])),
        )
    });
    let second = one("192.0.2.2");
    let proxy = Proxy::start(&forward(&first));
    let address = proxy.address;
    let early = std::thread::spawn(move || ask(address, &Message::query("www.example", "A")));
    first.await_count("www.example", 1);
    proxy.reload(&forward(&second));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.2"]
    );
    gate.open();
    assert_eq!(
        early.join().expect("an answer").answers(),
        ["www.example. A 192.0.2.1"]
    );
}

/// Ten reloads under load: every query is answered.
#[test]
fn no_query_is_lost_over_reloads() {
    let (first, second) = (one("192.0.2.1"), one("192.0.2.1"));
    let proxy = Proxy::start(&forward(&first));
    let address = proxy.address;
    let done = Arc::new(AtomicBool::new(false));
    let client = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(
                    ask(address, &Message::query("www.example", "A")).answers(),
                    ["www.example. A 192.0.2.1"]
                );
                asked += 1;
            }
            asked
        }
    });
    for round in 0..10 {
        proxy.reload(&forward(if round % 2 == 0 { &second } else { &first }));
    }
    done.store(true, Ordering::Relaxed);
    assert!(client.join().expect("every query answered") > 10);
}

/// A reload may change the listen addresses.
#[test]
fn listen_addresses_follow_the_configuration() {
    let upstream = one("192.0.2.1");
    let proxy = Proxy::start(&forward(&upstream));
    let moved = fresh_socket();
    proxy.reload(&format!("listen \"$LISTEN\" \"{moved}\"\n{}", forward(&upstream)));
    let answer = ask(moved, &Message::query("www.example", "A"));
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
}

/// A query that waits where a reload no longer listens is answered.
#[test]
fn a_query_in_flight_survives_its_listener() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = asked.answer(&["slow.example. 300 A 192.0.2.1"]);
        Reply::Behind(behind.clone(), Box::new(answer))
    });
    let left = fresh_socket();
    let forward = forward(&upstream);
    let proxy = Proxy::start(&format!("listen \"$LISTEN\" \"{left}\"\n{forward}"));
    let asking = std::thread::spawn(move || ask(left, &Message::query("slow.example", "A")));
    upstream.await_count("slow.example", 1);
    proxy.reload(&format!("listen \"$LISTEN\"\n{forward}"));
    gate.open();
    assert_eq!(
        asking.join().expect("an answer").answers(),
        ["slow.example. A 192.0.2.1"]
    );
}

/// The limits of listeners that stay change, too.
#[test]
fn limits_of_listeners_follow_the_configuration() {
    let upstream = Upstream::start(|asked| {
        let long = format!("{} 300 TXT {}", asked.name(), "x".repeat(200));
        asked.answer(&[&long, &long.replace("xx", "xy"), &long.replace("xx", "yx")])
    });
    let limited = |limits: &str| format!("listen \"$LISTEN\" {{ {limits} }}\n{}", forward(&upstream));
    let proxy = Proxy::start(&limited("udp-size 1232"));
    let is_cut = || proxy.query_edns("www.example", "TXT").has(flags::TC);
    assert!(!is_cut());
    for (limits, expected) in [("udp-size 512", true), ("udp-size 4096", false)] {
        proxy.reload(&limited(limits));
        // Until all workers have switched.
        until("the new size to be kept to", || is_cut() == expected);
    }

    // Open connections stay until there is no room for the next one.
    let mut open = proxy.connect();
    let query = Message::query("www.example", "TXT");
    open.ask(&query);
    proxy.reload(&limited("tcp-connections 1"));
    open.ask(&query);
    let mut second = proxy.connect();
    second.ask(&query);
    assert_eq!(open.receive(), None);
}

/// A zone file with one address.
pub fn zone_file(address: &str) -> String {
    format!("$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\nwww A {address}\n")
}

/// A file that a reload is the first to name may change while the rest of it loads.
#[test]
fn a_new_file_that_changes_during_the_reload_is_taken() {
    let upstream = one("192.0.2.1");
    let proxy = Proxy::start(&forward(&upstream));
    // The reload waits for it, briefly.
    let silent = Upstream::start(|_| Reply::Silence);
    let (file, new) = (proxy.folder().join("zone"), proxy.folder().join("new"));
    std::fs::write(&file, zone_file("192.0.2.7")).expect("a file");
    proxy.rewrite(&format!(
        "zone \"a.test\" {{ file {file:?} }}\nzone \"b.test\" {{ forward \"tls://dns.example\" {{ bootstrap \"{}\" }} }}\n{}",
        silent.address,
        forward(&upstream)
    ));
    silent.await_count("dns.example", 1);
    std::fs::write(&new, zone_file("192.0.2.8")).expect("a file");
    std::fs::rename(new, file).expect("a file");
    until("the file as it is now", || {
        proxy.query("www.a.test", "A").answers() == ["www.a.test. A 192.0.2.8"]
    });
}

/// A changed filter module is compiled and swapped in automatically; an invalid one is not.
#[test]
fn a_changed_module_is_swapped_in() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 1 A 192.0.2.1", asked.name())]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let module = folder.path().join("filter.wasm");
    // Moved into place, as installers do.
    let install = |bytes: &[u8]| {
        let new = folder.path().join("new");
        std::fs::write(&new, bytes).expect("a module");
        std::fs::rename(&new, &module).expect("a module");
    };
    let guest = |name| std::fs::read(crate::harness::guests::guest(name)).expect("a module");
    install(&guest("trap"));
    let proxy = Proxy::start(&format!(
        "filter \"f\" {{ module \"{}\"; on-error \"refuse\" }}\nzone \".\" {{ use \"f\"; {} }}",
        module.display(),
        forward_once(upstream.address)
    ));
    assert_eq!(proxy.query("trap.example", "A").rcode(), "REFUSED");
    install(b"no module");
    until("the bad module to be reported", || {
        proxy
            .metrics()
            .sum("dnsweir_reloads_total", &[("result", "failed")])
            >= 1.0
    });
    assert_eq!(proxy.generation(), 1.0);
    install(&guest("spin"));
    until("the new module to be in force", || proxy.generation() > 1.0);
    assert_eq!(proxy.query("trap.example", "A").rcode(), "NOERROR");
}

/// The same for a resolv.conf, which changes with the network.
#[test]
fn a_changed_resolv_conf_is_followed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("resolv.conf");
    std::fs::write(&file, "nameserver 192.0.2.53\n").expect("a file");
    let proxy = Proxy::start(&format!("zone \".\" {{ forward \"{}\" }}", file.display()));
    assert!(proxy.get("/status").1.contains("192.0.2.53:53"));
    std::fs::write(&file, "nameserver 192.0.2.54\n").expect("a file");
    until("the new resolver to be known", || {
        proxy.get("/status").1.contains("192.0.2.54:53")
    });
}

/// Also while the configuration on disk is invalid: the network does not wait for its correction.
#[test]
fn a_changed_resolv_conf_is_followed_by_the_running_configuration() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("resolv.conf");
    std::fs::write(&file, "nameserver 192.0.2.53\n").expect("a file");
    let text = format!("zone \".\" {{ forward \"{}\" }}", file.display());
    let proxy = Proxy::start(&text);
    proxy.rewrite(&format!("wokers 2\n{text}"));
    until("the mistake to be reported", || {
        proxy.get("/status").1.contains("`wokers`")
    });
    assert_eq!(proxy.generation(), 1.0);
    std::fs::write(&file, "nameserver 192.0.2.54\nnameserver 0.0.0.0\n").expect("a file");
    until("the new resolver to be known", || {
        proxy.get("/status").1.contains("192.0.2.54:53")
    });
    assert!(proxy.get("/status").1.contains("`wokers`"));
    proxy.process.logged("not the address of a server");
    proxy.reload(&text);
    assert!(proxy.get("/status").1.contains("192.0.2.54:53"));
}

/// Stops a background activity, however the test ends.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Repeated swaps of one zone's filter keep the state of upstreams and the connections to them.
#[test]
fn swaps_of_a_filter_touch_no_upstream() {
    const SWAPS: usize = 100;
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 0 A 192.0.2.1", asked.name())]));
    let text = |number: usize| {
        format!(
            "filter \"own\" {{ module \"builtin:hosts\"; config {{ host \"own.test\" \"127.0.1.{number}\" }} }}\n\
             zone \"test\" {{ use \"own\" }}\n\
             zone \".\" {{ cache; forward \"{}\" {{ protocol \"tcp\"; connections 1; idle \"1h\"; max-fails 1 }} }}",
            upstream.address
        )
    };
    let proxy = Proxy::start(&text(0));
    let connections = || {
        let asked = upstream.everything();
        let queries = asked.iter().filter(|asked| asked.name().ends_with("example."));
        queries.map(|asked| asked.from).collect::<HashSet<_>>()
    };
    // Each worker has a connection.
    until("a connection of each worker", || {
        proxy.query("first.example", "A");
        connections().len() == 2
    });
    let (before, stop) = (connections(), AtomicBool::new(false));
    let asked = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut asked = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let name = format!("n{asked}.example");
                assert_eq!(
                    proxy.query(&name, "A").answers(),
                    [format!("{name}. A 192.0.2.1")]
                );
                asked += 1;
                // This is load enough, and leaves the machine to the swaps.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            asked
        });
        let ending = Ending(&stop);
        for number in 1..=SWAPS {
            proxy.reload(&text(number));
            // On a slow machine, the file watch may be late: then the previous text was read and counted once
            // more.
            until("the swapped filter", || {
                proxy.query("own.test", "A").answers() == [format!("own.test. A 127.0.1.{number}")]
            });
        }
        drop(ending);
        client.join().unwrap()
    });
    assert!(asked > 0);
    assert_eq!(connections(), before, "{asked} queries");
    let probes = upstream
        .everything()
        .iter()
        .filter(|asked| asked.is("NS"))
        .count();
    assert_eq!(probes, 1, "its health is not asked for again");
}

/// Changes elsewhere in the configuration do not reset an instance's state: here, a remembered verdict saves
/// the call.
#[test]
fn a_filter_that_did_not_change_keeps_its_instances() {
    let upstream = one("192.0.2.1");
    let text = |hosts: &str, other: u32| {
        format!(
            "workers 1\nfilter \"f\" {{ module \"builtin:hosts\"; config {{ zone \"test\"; {hosts} }} }}\n\
             zone \".\" {{ use \"f\"; {forward} }}\nzone \"number{other}.example\" {{ {forward} }}",
            forward = forward_once(upstream.address)
        )
    };
    let hosts = "host \"a.test\" \"192.0.2.7\"";
    let proxy = Proxy::start(&text(hosts, 0));
    let calls = || {
        let labels = [("filter", "f"), ("phase", "query")];
        proxy.metrics().sum("dnsweir_filter_calls_total", &labels)
    };
    for other in 1..=3 {
        assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.7"]);
        assert_eq!(calls(), 1.0);
        proxy.reload(&text(hosts, other));
    }
    proxy.reload(&text("host \"a.test\" \"192.0.2.8\"", 3));
    assert_eq!(proxy.query("a.test", "A").answers(), ["a.test. A 192.0.2.8"]);
    assert_eq!(calls(), 2.0);
}
