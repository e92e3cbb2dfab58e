//! A rejected configuration changes nothing, leaves nothing, and is loaded once it is corrected. A filter that
//! fails only once it is in use is gone back from.

use std::net::IpAddr;

use crate::harness::address::fresh_socket;
use crate::harness::client::ask_from;
use crate::harness::guests::guest;
use crate::harness::proxy::try_get;
use crate::harness::{Message, Proxy, Upstream, ask, forward_once, until};
use crate::reloading::{forward, one, zone_file};

/// The old configuration stays, and the log says what is wrong and where.
#[test]
fn a_bad_file_changes_nothing_and_is_reported() {
    let upstream = one("192.0.2.1");
    let mut proxy = Proxy::start(&forward(&upstream));
    let generation = proxy.generation();
    proxy.rewrite("zone \".\" {\n    forwart \"192.0.2.1\"\n}\n");
    proxy.process.signal("HUP");
    proxy.process.logged("forwart");
    proxy.await_metric_within("dnsweir_reloads_total", &[("result", "failed")], 1.0..);
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
    let (free, taken) = (fresh_socket(), fresh_socket());
    let holder = std::net::UdpSocket::bind(taken).expect("a socket");
    for round in 1..=3 {
        proxy.rewrite(&format!(
            "// {round}\nlisten \"$LISTEN\" \"{free}\" \"{taken}\"\n{}",
            forward(&upstream)
        ));
        proxy.await_metric("dnsweir_reloads_total", &[("result", "failed")], f64::from(round));
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
