//! A new configuration takes over without losing a query; an invalid one changes nothing.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::address::fresh_socket;
use crate::harness::client::ask_from;
use crate::harness::guests::guest;
use crate::harness::message::flags;
use crate::harness::proxy::try_get;
use crate::harness::{Message, Proxy, Upstream, ask, forward_once, until, upstream::Gate, upstream::Reply};

fn one(address: &str) -> Upstream {
    Upstream::zone(&[
        &format!("www.example. 300 A {address}"),
        "example. 300 SOA ns.example. root.example. 1 2 3 4 5",
    ])
}

fn forward(upstream: &Upstream) -> String {
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

/// The old configuration stays, and the log says what is wrong and where.
#[test]
fn a_bad_file_changes_nothing_and_is_reported() {
    let upstream = one("192.0.2.1");
    let mut proxy = Proxy::start(&forward(&upstream));
    let generation = proxy.generation();
    proxy.rewrite("zone \".\" {\n    forwart \"192.0.2.1\"\n}\n");
    proxy.process.signal("HUP");
    proxy.process.logged("forwart");
    until("the failed reload to be counted", || {
        proxy
            .metrics()
            .sum("dnsweir_reloads_total", &[("result", "failed")])
            >= 1.0
    });
    assert_eq!(proxy.generation(), generation);
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert!(proxy.process.running());

    // The next valid one is loaded.
    proxy.reload(&forward(&upstream));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
}

/// A filter that rejects its configuration makes the whole new configuration invalid.
#[test]
fn a_filter_that_refuses_its_configuration_changes_nothing() {
    let upstream = one("192.0.2.1");
    let proxy = Proxy::start(&forward(&upstream));
    let generation = proxy.generation();
    proxy.rewrite(&format!(
        "filter \"table\" {{ module \"builtin:hosts\"; config {{ nonsense }} }}\nzone \".\" {{ use \"table\"; {} }}",
        forward_once(upstream.address)
    ));
    proxy.process.signal("HUP");
    proxy.process.logged("nonsense");
    assert_eq!(proxy.generation(), generation);
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
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

/// A failure at the last step, the control socket, leaves the admin addresses as they were: liveness probes
/// succeed.
#[test]
fn a_reload_that_fails_at_the_control_socket_moves_no_admin_address() {
    let upstream = one("192.0.2.1");
    // The process may write to this folder.
    let proxy = Proxy::start(&format!("control \"control\"\n{}", forward(&upstream)));
    let moved = std::net::SocketAddr::new(proxy.admin.ip(), 9254);
    let missing = proxy.folder().join("missing/control");
    proxy.rewrite(&format!(
        "admin \"{moved}\" // in place of $ADMIN\ncontrol {missing:?}\n{}",
        forward(&upstream)
    ));
    proxy
        .process
        .logged("not reloaded; the previous configuration stays in use");
    assert_eq!(
        try_get(proxy.admin, "/health").map(|(status, _)| status),
        Some(200)
    );
    assert_eq!(try_get(moved, "/health"), None);
    assert_eq!(proxy.generation(), 1.0);
    // Both move once nothing is in the way.
    std::fs::create_dir(missing.parent().expect("a folder")).expect("a folder");
    proxy.process.signal("HUP");
    until("the admin address to move", || {
        try_get(moved, "/health").is_some()
    });
    until("the old one to be gone", || {
        try_get(proxy.admin, "/health").is_none()
    });
    assert!(missing.exists());
}

/// A zone file with one address.
fn zone_file(address: &str) -> String {
    format!("$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\nwww A {address}\n")
}

/// A rejected configuration may name new files. Whichever of them has the mistake, correcting it is enough.
#[test]
fn a_correction_of_any_file_is_taken() {
    let upstream = one("192.0.2.1");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    // Not in the folder that is included, whose names count, too.
    let zones = tempfile::tempdir().expect("a temporary folder");
    let zone = zones.path().join("zone");
    let proxy = Proxy::start(&format!("include {:?}\n{}", folder.path(), forward(&upstream)));
    let rejected = |why: &str| {
        until(why, || {
            let (_, status) = proxy.get("/status");
            status.contains(why)
        });
    };
    std::fs::write(at("a.kdl"), "zone \"a.test\" { fiel \"zone\" }").expect("a file");
    rejected("`fiel`");
    let right = format!("zone \"a.test\" {{ file {zone:?} }}");
    std::fs::write(at("a.kdl"), right).expect("a file");
    rejected("name a zone file that dnsweir may read");
    std::fs::write(&zone, zone_file("nonsense")).expect("a file");
    rejected("IPv4");
    std::fs::write(&zone, zone_file("192.0.2.7")).expect("a file");
    until("the correction to be in force", || {
        proxy.query("www.a.test", "A").answers() == ["www.a.test. A 192.0.2.7"]
    });
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

/// Servers to fetch from are still found through the upstreams that are in use.
#[test]
fn a_reload_that_fails_leaves_the_upstreams() {
    let (used, unused) = (one("192.0.2.1"), one("192.0.2.2"));
    let text = |upstream: &Upstream| {
        format!(
            "zone \".\" {{ lists {{ list \"l\" {{ source \"http://lists.example:9/l\" plain=#true }}; every \"1s\"; wait \"0s\" }}; {} }}",
            forward_once(upstream.address)
        )
    };
    let proxy = Proxy::start(&text(&used));
    used.await_count("lists.example", 1);
    let missing = proxy.folder().join("missing/control");
    proxy.rewrite(&format!("control {missing:?}\n{}", text(&unused)));
    proxy
        .process
        .logged("not reloaded; the previous configuration stays in use");
    used.await_count("lists.example", used.count("lists.example") + 1);
}

/// Resources acquired for a configuration that fails to load are released.
#[test]
fn a_reload_that_fails_leaves_nothing() {
    let upstream = one("192.0.2.1");
    let proxy = Proxy::start(&forward(&upstream));
    let count = |of: &str| {
        let entries = std::fs::read_dir(format!("/proc/{}/{of}", proxy.process.id()));
        entries.expect("a running process").count()
    };
    // Once, so that whatever the first reload creates exists.
    proxy.reload(&forward(&upstream));
    let before = until_steady(|| (count("fd"), count("task")));
    let (free, taken) = (
        crate::harness::address::fresh_socket(),
        crate::harness::address::fresh_socket(),
    );
    let holder = std::net::UdpSocket::bind(taken).expect("a socket");
    let failed = || {
        let metrics = proxy.metrics();
        metrics.sum("dnsweir_reloads_total", &[("result", "failed")])
    };
    for round in 1..=3 {
        proxy.rewrite(&format!(
            "// {round}\nlisten \"$LISTEN\" \"{free}\" \"{taken}\"\n{}",
            forward(&upstream)
        ));
        until("the reload to fail", || failed() == f64::from(round));
    }
    until("everything to be given back", || {
        std::net::UdpSocket::bind(free).is_ok() && (count("fd"), count("task")) <= before
    });
    // Nothing of it is left to interfere later.
    drop(holder);
    proxy.reload(&format!(
        "listen \"$LISTEN\" \"{free}\" \"{taken}\"\n{}",
        forward(&upstream)
    ));
    for address in [proxy.address, free, taken] {
        assert_eq!(
            ask(address, &Message::query("www.example", "A")).answers(),
            ["www.example. A 192.0.2.1"]
        );
    }
}

/// A figure once it is stable: the process's own activity ends eventually.
fn until_steady<T: PartialEq>(figure: impl Fn() -> T) -> T {
    let mut last = figure();
    until("the process to come to rest", || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let now = figure();
        let steady = now == last;
        last = now;
        steady
    });
    last
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
    std::fs::write(&file, "nameserver 192.0.2.54\n").expect("a file");
    until("the new resolver to be known", || {
        proxy.get("/status").1.contains("192.0.2.54:53")
    });
    assert!(proxy.get("/status").1.contains("`wokers`"));
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

/// A filter `f` in a zone that works without it, and a zone with these `clients`.
fn with_filter(upstream: &Upstream, filter: &str, clients: &str) -> String {
    let forward = forward_once(upstream.address);
    format!(
        "filter \"f\" {{ {filter} }}\nzone \".\" {{ use \"f\"; {forward} }}\nzone \"other.test\" {{ {clients} {forward} }}"
    )
}

/// A filter that works.
fn hosts() -> String {
    "module \"builtin:hosts\"; config { zone \"own.test\"; host \"a.own.test\" \"127.0.1.1\" }".to_owned()
}

/// A filter that traps.
fn trap(words: &str) -> String {
    format!(
        "module \"{}\"; {words}; config {{ queries }}",
        guest("trap").display()
    )
}

/// Asks for a name that makes the filter trap, as one of several clients.
fn ask_for_trap(proxy: &Proxy, number: u8, clients: u8) -> String {
    let query = Message::query(&format!("trap{number}.test"), "A");
    let client = IpAddr::from([127, 0, 1, 1 + number % clients]);
    ask_from(client, proxy.address, &query).rcode()
}

fn anything() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

const REFUSING: &str = "clients { refuse \"127.0.0.0/8\" };";

/// A broken build costs only the queries on which it failed. The rest of the change stays.
#[test]
fn a_filter_that_fails_for_many_is_gone_back_from_and_nothing_else() {
    let upstream = anything();
    let proxy = Proxy::start(&with_filter(&upstream, &hosts(), ""));
    proxy.reload(&with_filter(&upstream, &trap("on-error \"servfail\""), REFUSING));
    let broken = proxy.generation();
    assert_eq!(
        proxy.query("a.own.test", "A").answers(),
        ["a.own.test. A 192.0.2.1"]
    );
    let (label, mut asked) = ([("filter", "f")], 0);
    until("the filter before", || {
        ask_for_trap(&proxy, asked, 200);
        asked += 1;
        proxy.metrics().sum("dnsweir_filter_reverted", &label) == 1.0
    });
    assert!(asked >= 8, "{asked}");
    assert_eq!(proxy.generation(), broken + 1.0);
    let line = proxy
        .process
        .logged("the filter \"f\" is not the one in the file");
    assert!(line.contains("the previous one fails for 0 of them"), "{line}");
    assert_eq!(
        proxy.query("a.own.test", "A").answers(),
        ["a.own.test. A 127.0.1.1"]
    );
    assert_eq!(ask_for_trap(&proxy, 0, 200), "NOERROR");
    assert_eq!(
        proxy.query("a.other.test", "A").rcode(),
        "REFUSED",
        "what else was changed"
    );
    proxy.await_metric("dnsweir_reloads_total", &[("result", "reverted")], 1.0);
    let (status, ready) = proxy.get("/ready");
    assert_eq!(status, 200);
    assert!(
        ready.contains("the filter \"f\" is not the one in the file"),
        "{ready}"
    );
    let (_, status) = proxy.get("/status");
    assert!(
        status.contains("the filter \\\"f\\\" is not the one in the file"),
        "{status}"
    );

    // A fixed filter is accepted.
    proxy.reload(&with_filter(&upstream, &hosts(), ""));
    assert_eq!(proxy.get("/ready").1, "ready\n");
    proxy.await_metric("dnsweir_filter_reverted", &label, 0.0);
}

/// If the previous filter fails as well, the new one is not reverted.
#[test]
fn a_filter_that_fails_on_no_more_than_the_one_before_stays() {
    let upstream = anything();
    let proxy = Proxy::start(&with_filter(&upstream, &trap("on-error \"servfail\""), ""));
    proxy.reload(&with_filter(&upstream, &trap("on-error \"refuse\""), REFUSING));
    let generation = proxy.generation();
    for number in 0..64 {
        assert_eq!(ask_for_trap(&proxy, number, 200), "REFUSED", "as `on-error` says");
    }
    proxy.process.logged("so the new one stays");
    assert_eq!(proxy.generation(), generation);
    assert_eq!(proxy.query("a.other.test", "A").rcode(), "REFUSED");
    let metrics = proxy.metrics();
    assert_eq!(
        metrics.sum("dnsweir_reloads_total", &[("result", "reverted")]),
        0.0
    );
    assert_eq!(metrics.sum("dnsweir_filter_reverted", &[]), 0.0);
    assert_eq!(proxy.get("/ready").0, 200);
}

/// Failures for only two clients, or of a filter without `probation` or a predecessor, cause no reversal.
#[test]
fn a_filter_that_fails_for_few_stays_and_so_do_those_without_a_way_back() {
    let upstream = anything();
    let without = format!("zone \".\" {{ {} }}", forward_once(upstream.address));
    let with = |filter: &str| with_filter(&upstream, filter, "");
    let refusing = "on-error \"refuse\"";
    for (before, after, clients) in [
        (with(&hosts()), with(&trap(refusing)), 2),
        (
            with(&hosts()),
            with(&trap(&format!("{refusing}; probation 0"))),
            200,
        ),
        (without, with(&trap(refusing)), 200),
    ] {
        let proxy = Proxy::start(&before);
        proxy.reload(&after);
        for number in 0..64 {
            assert_eq!(ask_for_trap(&proxy, number, clients), "REFUSED");
        }
        let generation = proxy.generation();
        // Any reversal would have happened by then.
        proxy.reload(&format!("{after}\n"));
        assert_eq!(proxy.generation(), generation + 1.0);
        let metrics = proxy.metrics();
        assert_eq!(
            metrics.sum("dnsweir_reloads_total", &[("result", "reverted")]),
            0.0
        );
        assert!(metrics.sum("dnsweir_filter_traps_total", &[("reason", "trap")]) >= 2.0);
    }
}

/// A suspended filter makes the proxy unready if configured.
#[test]
fn a_suspended_filter_makes_the_proxy_unready_if_that_is_wanted() {
    let upstream = anything();
    let spin = format!(
        "module \"{}\"; limits time=\"50ms\"; on-error \"servfail\" unready=#true",
        guest("spin").display()
    );
    let proxy = Proxy::start(&format!("workers 1\n{}", with_filter(&upstream, &spin, "")));
    let mut asked = 0;
    until("a suspended filter", || {
        let query = Message::query(&format!("spin{asked}.test"), "A");
        asked += 1;
        ask_from(IpAddr::from([127, 0, 2, asked]), proxy.address, &query);
        proxy.get("/ready") == (503, "the filter \"f\" is suspended\n".to_owned())
    });
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
