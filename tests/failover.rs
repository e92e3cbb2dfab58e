//! The `forward` stage when upstreams come and go.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::harness::upstream::Reply;
use crate::harness::{Message, ONCE, Proxy, Upstream, address, until};

/// Extended errors (RFC 8914 section 4): no reachable authority, network error.
const UPSTREAM_TROUBLE: [u16; 2] = [22, 23];

fn named(text: &'static str) -> Upstream {
    named_at(address::fresh_socket(), text)
}

fn named_at(address: std::net::SocketAddr, text: &'static str) -> Upstream {
    Upstream::start_at(address, move |asked| {
        asked.answer(&[&format!("{} 300 TXT {text}", asked.name())])
    })
}

fn both(first: &Upstream, second: &Upstream, options: &str) -> String {
    format!(
        "zone \".\" {{ forward \"{}\" \"{}\" {{ {options} }} }}",
        first.address, second.address
    )
}

/// Asks for 60 names, and counts the queries to each upstream.
fn shares(proxy: &Proxy, first: &Upstream, second: &Upstream) -> (usize, usize) {
    for number in 0..60 {
        assert_eq!(
            proxy.query(&format!("{number}.example"), "TXT").answers().len(),
            1
        );
    }
    let of = |upstream: &Upstream| {
        upstream
            .everything()
            .iter()
            .filter(|asked| asked.name().ends_with(".example."))
            .count()
    };
    (of(first), of(second))
}

#[test]
fn sequential_asks_the_first_that_works() {
    let (first, second) = (named("first"), named("second"));
    let proxy = Proxy::start(&both(&first, &second, &format!("policy \"sequential\"; {ONCE}")));
    assert_eq!(shares(&proxy, &first, &second), (60, 0));
}

#[test]
fn round_robin_takes_turns() {
    let (first, second) = (named("first"), named("second"));
    let proxy = Proxy::start(&format!(
        "workers 1\n{}",
        both(&first, &second, &format!("policy \"round-robin\"; {ONCE}"))
    ));
    assert_eq!(shares(&proxy, &first, &second), (30, 30));
}

#[test]
fn random_asks_all() {
    let (first, second) = (named("first"), named("second"));
    let proxy = Proxy::start(&both(&first, &second, &format!("policy \"random\"; {ONCE}")));
    let (one, other) = shares(&proxy, &first, &second);
    // Fewer than 10 of 60 by chance: one in fifty million.
    assert!(one + other == 60 && one >= 10 && other >= 10, "{one} and {other}");
}

/// A failed upstream is skipped, and used again when a probe succeeds.
#[test]
fn a_failed_upstream_is_left_and_returned_to() {
    let (first, second) = (named("first"), named("second"));
    let options = "policy \"sequential\"; max-fails 2; probe \"100ms\"; timeout \"500ms\"";
    let proxy = Proxy::start(&both(&first, &second, options));
    let first_label = first.address.to_string();
    let healthy = |value: f64| proxy.await_metric("dnsweir_forward_healthy", &[("to", &first_label)], value);
    let answered_by = |name: &str| proxy.query(name, "TXT").answers()[0].clone();
    assert_eq!(answered_by("a.example."), "a.example. TXT \"first\"");
    healthy(1.0);

    let address = first.stop();
    // It shows only in the metrics.
    for number in 0..5 {
        let name = format!("b{number}.example.");
        assert_eq!(answered_by(&name), format!("{name} TXT \"second\""));
    }
    healthy(0.0);
    assert!(
        proxy
            .metrics()
            .sum("dnsweir_forward_failures_total", &[("to", &first_label)])
            >= 2.0
    );

    let first = named_at(address, "first");
    healthy(1.0);
    assert_eq!(answered_by("c.example."), "c.example. TXT \"first\"");
    assert_eq!(first.count("c.example"), 1);
}

/// A silent upstream is skipped as well; the query moves on within its deadline.
#[test]
fn a_silent_upstream_is_left() {
    let (first, second) = (named("first"), named("second"));
    first.becomes(|_| Reply::Silence);
    let options = "policy \"sequential\"; max-fails 1; probe \"1m\"; timeout \"200ms\"; deadline \"10s\"";
    let proxy = Proxy::start(&both(&first, &second, options));
    assert_eq!(
        proxy.query("a.example", "TXT").answers(),
        ["a.example. TXT \"second\""]
    );
    proxy.await_metric(
        "dnsweir_forward_healthy",
        &[("to", &first.address.to_string())],
        0.0,
    );
    // Once it is down, no query waits for it.
    let asked = first.everything().len();
    for number in 0..10 {
        assert_eq!(
            proxy.query(&format!("b{number}.example"), "TXT").rcode(),
            "NOERROR"
        );
    }
    let names = first
        .everything()
        .iter()
        .skip(asked)
        .filter(|asked| asked.name().starts_with('b'))
        .count();
    assert_eq!(names, 0);
}

/// SERVFAIL from one upstream makes the proxy try another.
#[test]
fn a_failing_upstream_is_not_the_last_word() {
    let (first, second) = (named("first"), named("second"));
    first.becomes(|asked| asked.denial("SERVFAIL", None));
    let proxy = Proxy::start(&both(&first, &second, "policy \"sequential\""));
    assert_eq!(
        proxy.query("a.example", "TXT").answers(),
        ["a.example. TXT \"second\""]
    );
}

/// Without any working upstream: SERVFAIL, promptly, with the reason.
#[test]
fn when_nothing_answers_the_client_hears_it_soon() {
    let nobody = address::fresh_socket();
    let silent = Upstream::start(|_| Reply::Silence);
    for upstream in [nobody, silent.address] {
        let proxy = Proxy::start(&format!(
            "zone \".\" {{ forward \"{upstream}\" {{ timeout \"200ms\"; deadline \"1s\" }} }}"
        ));
        let begun = Instant::now();
        let answer = proxy.query_edns("www.example", "A");
        assert_eq!(answer.rcode(), "SERVFAIL");
        assert!(
            answer
                .extended_errors()
                .iter()
                .any(|code| UPSTREAM_TROUBLE.contains(code)),
            "{answer}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        // Without EDNS, there is no reason.
        assert_eq!(proxy.query("other.example", "A").rcode(), "SERVFAIL");
    }
}

/// With the default timeouts, the answer comes before a client gives up (5 s in glibc and dig).
#[test]
fn the_default_deadline_is_shorter_than_a_clients_patience() {
    let silent = Upstream::start(|_| Reply::Silence);
    let proxy = Proxy::start(&format!("zone \".\" {{ forward \"{}\" }}", silent.address));
    let begun = Instant::now();
    assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL");
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    // Retries are limited: RFC 9520 section 3.1 allows two per server and transport.
    let asked = silent.asked("www.example");
    let streams = asked.iter().filter(|asked| asked.tcp).count();
    let datagrams = asked.len() - streams;
    assert!(
        (1..=3).contains(&datagrams) && streams <= 3,
        "{datagrams} over UDP, {streams} over TCP"
    );
}

/// If all upstreams are down, they are tried anyway.
#[test]
fn service_returns_when_the_only_upstream_does() {
    let upstream = named("back");
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ forward \"{}\" {{ max-fails 1; probe \"100ms\"; timeout \"200ms\"; deadline \"500ms\" }} }}",
        upstream.address
    ));
    let address = upstream.stop();
    for number in 0..3 {
        assert_eq!(
            proxy.query(&format!("{number}.example"), "TXT").rcode(),
            "SERVFAIL"
        );
    }
    let _upstream = named_at(address, "back");
    until("service to return", || {
        proxy.query("a.example", "TXT").answers() == ["a.example. TXT \"back\""]
    });
}

/// RFC 9520 section 3.2: a resolution failure is cached, but only while it lasts.
#[test]
fn a_failure_that_is_kept_ends_when_the_upstream_answers_again() {
    let upstream = named("back");
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache {{ failure \"300s\" }}; forward \"{}\" {{ max-fails 1; probe \"100ms\"; timeout \"200ms\"; deadline \"500ms\" }} }}",
        upstream.address
    ));
    let address = upstream.stop();
    for _ in 0..2 {
        assert_eq!(proxy.query("a.example", "TXT").rcode(), "SERVFAIL");
    }
    assert!(
        proxy
            .metrics()
            .sum("dnsweir_cache_hits_total", &[("type", "failure")])
            >= 1.0
    );
    let _upstream = named_at(address, "back");
    until("the failure to be forgotten", || {
        proxy.query("a.example", "TXT").answers() == ["a.example. TXT \"back\""]
    });
}

/// Two proxies that forward to each other: the loop is detected when a query comes back, and reported, and
/// queries do not multiply. (A proxy that forwards to itself is a mistake in its file; see `checking`.)
#[test]
fn a_loop_is_noticed_and_reported() {
    let (one, other) = (address::fresh_socket(), address::fresh_socket());
    let text = |listen, to| {
        format!(
            "listen \"{listen}\" // $LISTEN\nzone \".\" {{ forward \"{to}\" {{ timeout \"500ms\"; deadline \"2s\" }} }}"
        )
    };
    let first = Proxy::start(&text(one, other));
    // Neither is ready for long, since they forward to each other.
    let second = Proxy::launch(&text(other, one), &[]);
    second.process.logged("answering queries");
    let answer = crate::harness::ask(one, &Message::query("www.example", "A"));
    assert_eq!(answer.rcode(), "SERVFAIL");
    until("the loop to be counted", || {
        let loops = |proxy: &Proxy| proxy.metrics().sum("dnsweir_forward_loops_total", &[]);
        loops(&first) + loops(&second) >= 1.0
    });
    let requests = first.metrics().sum("dnsweir_requests_total", &[])
        + second.metrics().sum("dnsweir_requests_total", &[]);
    assert!(requests < 1000.0, "one query became {requests}");
}

/// The probes of thousands of zones must not use up the sockets for queries. Probes get no answer here, so
/// their sockets stay in use.
#[test]
fn upstreams_are_probed_a_few_at_a_time() {
    let upstream = Upstream::start(|asked| match asked.is("NS") {
        true => Reply::Silence,
        false => asked.answer(&[&format!("{} 300 TXT here", asked.name())]),
    });
    let zone = |number| {
        format!(
            "zone \"z{number}.example\" {{ forward \"{}\" {{ timeout \"30s\"; deadline \"60s\" }} }}\n",
            upstream.address
        )
    };
    let proxy = Proxy::start(&(0..40).map(zone).collect::<String>());
    let probed = || {
        let asked = upstream.everything();
        let probes = asked.iter().filter(|asked| asked.is("NS"));
        probes.map(|asked| asked.name()).collect::<HashSet<_>>().len()
    };
    until("a few probes to be under way", || probed() == 16);
    let answer = proxy.query("a.z0.example", "TXT");
    assert_eq!(answer.answers(), ["a.z0.example. TXT \"here\""]);
    assert_eq!(probed(), 16);
}

/// An upstream that only returns SERVFAIL counts as down.
#[test]
fn an_upstream_that_only_fails_is_left() {
    let (first, second) = (named("first"), named("second"));
    first.becomes(|asked| asked.denial("SERVFAIL", None));
    let proxy = Proxy::start(&both(&first, &second, "policy \"sequential\"; probe \"100ms\""));
    let label = [("to", &*first.address.to_string())].map(|(name, value)| (name, value.to_owned()));
    let healthy = |value: f64| {
        let labels = label.each_ref().map(|(name, value)| (*name, value.as_str()));
        proxy.await_metric("dnsweir_forward_healthy", &labels, value);
    };
    healthy(0.0);
    let asked = first.count("a.example");
    assert_eq!(proxy.query("a.example", "TXT").rcode(), "NOERROR");
    assert_eq!(first.count("a.example"), asked);
    first.becomes(|asked| asked.answer(&[&format!("{} 300 TXT first", asked.name())]));
    healthy(1.0);
    assert_eq!(
        proxy.query("b.example", "TXT").answers(),
        ["b.example. TXT \"first\""]
    );
}

/// A reload that changes a zone's filter does not affect its upstreams: there is no new connection, and their
/// state is kept.
#[test]
fn a_reload_keeps_connections_and_what_is_known_of_upstreams() {
    let (upstream, dead) = (named("here"), address::fresh_socket());
    let text = |last: u8| {
        format!(
            "workers 1
             filter \"f\" {{ module \"builtin:hosts\"; config {{ host \"a.example\" \"192.0.2.{last}\" }} }}
             zone \"example\" {{
                 use \"f\"
                 forward \"{}\" {{ protocol \"tcp\"; connections 1; idle \"1h\"; {ONCE} }}
             }}
             zone \".\" {{ forward \"{dead}\" {{ probe \"1m\" }} }}",
            upstream.address
        )
    };
    let proxy = Proxy::start(&text(1));
    let dead = dead.to_string();
    let out = || proxy.await_metric("dnsweir_forward_healthy", &[("to", &dead)], 0.0);
    out();
    let begun = upstream.everything().len();
    let answers = |name: &str| proxy.query(name, "TXT").answers();
    assert_eq!(answers("b.example"), ["b.example. TXT \"here\""]);
    for last in 2..5 {
        proxy.reload(&text(last));
        let name = format!("n{last}.example.");
        assert_eq!(answers(&name), [format!("{name} TXT \"here\"")]);
        out();
    }
    let asked = upstream.everything();
    let from: HashSet<_> = asked
        .iter()
        .filter(|asked| asked.is("TXT"))
        .map(|asked| asked.from)
        .collect();
    assert_eq!(from.len(), 1, "one connection");
    let probes = asked[begun..].iter().filter(|asked| !asked.is("TXT")).count();
    assert!(probes <= 2, "{probes} probes: at the start, and no more");
    let to = [("to", &*upstream.address.to_string())].map(|(name, value)| (name, value.to_owned()));
    let labels = to.each_ref().map(|(name, value)| (*name, value.as_str()));
    let requests = proxy.metrics().sum("dnsweir_forward_requests_total", &labels);
    assert_eq!(requests, 4.0, "counters go on");
}

/// When a node boots, queries may return to the proxy until kube-proxy has written its rules.
#[test]
fn a_loop_that_ends_is_over_by_itself() {
    let listen = address::fresh_socket();
    // HINFO queries return, the others are not forwarded.
    let upstream = Upstream::start(move |asked| match asked.is("TYPE13") {
        true => Reply::Message(crate::harness::ask(listen, &asked.message)),
        false => asked.denial("SERVFAIL", None),
    });
    let mut proxy = Proxy::launch(
        &format!(
            "listen \"{listen}\" // $LISTEN
             zone \".\" {{ forward \"{}\" {{ probe \"100ms\" }} }}",
            upstream.address
        ),
        &[],
    );
    let reason = "zone .: every upstream loops back to this proxy";
    until("the loop to be a reason not to be ready", || {
        let said = crate::harness::proxy::try_get(proxy.admin, "/ready");
        said.is_some_and(|(status, body)| status == 503 && body.contains(reason))
    });
    assert_eq!(proxy.get("/health").0, 200);
    let ask = || crate::harness::ask(listen, &Message::query("a.example", "TXT"));
    assert_eq!(ask().rcode(), "SERVFAIL");

    upstream.becomes(|asked| asked.answer(&[&format!("{} 300 TXT here", asked.name())]));
    proxy.await_ready();
    until("the upstream to be asked again", || {
        ask().answers() == ["a.example. TXT \"here\""]
    });
}

/// At startup, readiness waits for an answer from an upstream of each zone, and names those still missing.
#[test]
fn a_start_waits_for_an_answer_of_each_zone() {
    let (here, late) = (named("here"), named("late"));
    late.becomes(|_| Reply::Silence);
    let text = |limit: &str| {
        format!(
            "await-upstreams \"{limit}\"
             zone \"late.example\" {{ forward \"{}\" {{ timeout \"200ms\"; probe \"100ms\" }} }}
             zone \".\" {{ forward \"{}\" }}",
            late.address, here.address
        )
    };
    let mut proxy = Proxy::launch(&text("10m"), &[]);
    let reason = "zone late.example.: no upstream has answered yet\n";
    until("the late zone to be the only reason", || {
        crate::harness::proxy::try_get(proxy.admin, "/ready") == Some((503, reason.to_owned()))
    });
    late.becomes(|asked| asked.answer(&[]));
    proxy.await_ready();
    // An upstream that fails later does not affect readiness.
    late.becomes(|_| Reply::Silence);
    assert_eq!(proxy.query("a.late.example", "A").rcode(), "SERVFAIL");
    assert_eq!(proxy.get("/ready").0, 200);

    let proxy = Proxy::start(&text("500ms"));
    proxy.process.logged("no upstream has answered yet");
}

/// An upstream that drops queries with EDNS answers those without it.
#[test]
fn an_upstream_that_drops_edns_is_asked_without() {
    let upstream = Upstream::start(|asked| match &asked.message.edns {
        Some(_) => Reply::Silence,
        None => {
            let mut message = asked.message_with(&["www.example. 300 TXT here"]);
            message.edns = None;
            Reply::Message(message)
        }
    });
    let proxy = Proxy::start(&format!("zone \".\" {{ forward \"{}\" }}", upstream.address));
    assert_eq!(
        proxy.query("www.example", "TXT").answers(),
        ["www.example. TXT \"here\""]
    );
    let to = upstream.address.to_string();
    let without = proxy
        .metrics()
        .sum("dnsweir_forward_without_edns_total", &[("to", &to)]);
    assert_eq!(without, 1.0);
}
