//! Filters that make lookups before they decide: the results, and the cost for each party.

use std::time::Instant;

use crate::harness::guests::guest;
use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, Proxy, Upstream, client, forward_once, unanswered, until};

/// Answers `one` with a record and `more` with two, ignores `silent`, and denies everything else.
fn upstream() -> Upstream {
    Upstream::start(|asked| {
        let name = asked.name();
        let first = name.split('.').next().unwrap_or_default();
        let record = |last: u8| format!("{name} 300 A 192.0.2.{last}");
        match first {
            "silent" => Reply::Silence,
            "one" | "below" | "zone" | "pass" | "often" | "panic" | "beside" if asked.is("A") => {
                asked.answer(&[&record(1)])
            }
            "more" => asked.answer(&[&record(1), &record(2)]),
            later if later.starts_with("later") => asked.answer(&[&record(3)]),
            _ => asked.denial("NXDOMAIN", None),
        }
    })
}

/// A proxy with the asking filter in zone `asking.test`, between these stages, and zones without it.
fn start(above: &str, options: &str, upstream: &Upstream) -> Proxy {
    let forward = forward_once(upstream.address);
    Proxy::start(&format!(
        "workers 1; filter \"asker\" {{ module \"{}\"; limits time=\"1s\"\n{options}\nconfig {{ under \"plain.test\" }} }}\n\
         zone \"asking.test\" {{ {above}\nuse \"asker\"; {forward} }}\n\
         zone \"plain.test\" {{ cache; {forward} }}",
        guest("asker").display()
    ))
}

/// The results of lookups as the filter reports them.
fn told(proxy: &Proxy, label: &str) -> String {
    let answer = proxy.query(&format!("{label}.asking.test"), "TXT");
    let answers = answer.answers();
    assert_eq!(answers.len(), 1, "{answer}");
    let (_, text) = answers[0].split_once(" TXT ").expect("a TXT record");
    // A long text is in several parts.
    text.trim_matches('"').replace("\" \"", "")
}

fn lookups(proxy: &Proxy, status: &str) -> f64 {
    let labels = [("filter", "asker"), ("status", status)];
    proxy.metrics().sum("dnsweir_filter_lookups_total", &labels)
}

#[test]
fn lookups_are_made_at_once() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = upstream();
    upstream.becomes(move |asked| {
        let answer = asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        Reply::Behind(behind.clone(), Box::new(answer))
    });
    let proxy = start("cache", "", &upstream);
    let waiting = client::socket(proxy.address);
    let query = Message::query("two.asking.test", "TXT");
    waiting.send(&query.encode()).expect("a sent query");
    upstream.await_count("one.plain.test", 1);
    upstream.await_count("more.plain.test", 1);
    gate.open();
    let answer = Message::decode(&client::receive(&waiting)).expect("a message");
    assert_eq!(
        answer.answers(),
        ["two.asking.test. TXT \"Answered 1, Answered 1\""]
    );
    assert_eq!(lookups(&proxy, "answered"), 2.0);
    // Lookups go through the zone that owns the name, and so through its cache.
    assert_eq!(told(&proxy, "two"), "Answered 1, Answered 1");
    assert_eq!(upstream.count("one.plain.test"), 1);
}

/// A lookup below the filter does not pass through it again, and uses this zone's stages whatever its name. A
/// lookup in a zone uses that zone's stages; in a zone that does not exist, it fails.
#[test]
fn lookups_go_where_the_filter_says() {
    let upstream = upstream();
    let proxy = start("", "", &upstream);
    for _ in 0..2 {
        assert_eq!(told(&proxy, "below"), "Answered 1, Answered 1");
    }
    assert_eq!(
        upstream.count("below.asking.test"),
        2,
        "there is no cache below the filter"
    );
    assert_eq!(upstream.count("one.plain.test"), 2);
    for _ in 0..2 {
        assert_eq!(told(&proxy, "zone"), "Answered 1, Failed! 0");
    }
    assert_eq!(upstream.count("zone.asking.test"), 1, "the other zone has one");
}

/// Where a zone is for some clients, a verdict after a lookup there is neither remembered nor cached for others.
#[test]
fn lookups_in_a_zone_of_some_clients_decide_about_their_query_alone() {
    let upstream = upstream();
    let forward = forward_once(upstream.address);
    let proxy = Proxy::start(&format!(
        "workers 1; filter \"asker\" {{ module \"{}\"; limits time=\"1s\"; config {{ under \"plain.test\" }} }}\n\
         zone \"asking.test\" {{ cache; use \"asker\"; {forward} }}\n\
         zone \"plain.test\" {{ from \"127.0.0.7\"; {forward} }}",
        guest("asker").display()
    ));
    let query = Message::query("kept.asking.test", "TXT");
    for (client, found) in [([127_u8, 0, 0, 7], "Answered 1"), ([127, 0, 0, 1], "Answered! 0")].repeat(2) {
        let told = client::ask_from(client.into(), proxy.address, &query).answers();
        assert_eq!(told, [format!("kept.asking.test. TXT \"{found}\"")], "{client:?}");
    }
    assert_eq!(lookups(&proxy, "answered"), 4.0);
}

/// A lookup that never answers delays its query by the filter's timeout, and no other query. That it is no
/// longer is measured by the proxy's own clock, so that a busy machine changes nothing: a query with a
/// timeout of two seconds for the same lookup is answered later, and both long before the upstream times out.
#[test]
fn a_lookup_has_its_time() {
    let upstream = upstream();
    let proxy = start("cache", "", &upstream);
    proxy.query("one.plain.test", "A");
    let slow = client::socket(proxy.address);
    let begun = Instant::now();
    let query = Message::query("slow.asking.test", "TXT");
    slow.send(&query.encode()).expect("a sent query");
    upstream.await_count("silent.plain.test", 1);
    // The same worker still answers.
    assert_eq!(proxy.query("one.plain.test", "A").rcode(), "NOERROR");
    assert_eq!(told(&proxy, "two"), "Answered 1, Answered 2");
    let query = Message::query("slower.asking.test", "TXT");
    slow.send(&query.encode()).expect("a sent query");
    for (name, least) in [("slow", 200), ("slower", 2000)] {
        let answer = Message::decode(&client::receive(&slow)).expect("a message");
        let took = begun.elapsed().as_millis();
        assert!(took >= least, "{took} ms");
        assert_eq!(
            answer.answers(),
            [format!("{name}.asking.test. TXT \"TimedOut! 0\"")]
        );
    }
    assert_eq!(lookups(&proxy, "timed-out"), 2.0);
}

/// A filter whose lookup leads to itself, above the cache or below it, does not deadlock: the depth is
/// limited.
#[test]
fn a_filter_that_asks_itself_is_told_so() {
    for above in ["", "cache"] {
        let upstream = upstream();
        let proxy = start(above, "", &upstream);
        assert_eq!(told(&proxy, "self"), "Answered 1");
        assert_eq!(
            (lookups(&proxy, "answered"), lookups(&proxy, "limited")),
            (8.0, 1.0)
        );
    }
}

/// What a failed lookup means is the filter's decision. A name whose alias leads to the filter has an answer.
#[test]
fn a_loop_through_a_lookup_is_no_failure_of_the_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("back.test");
    let zone = "$TTL 60\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\none CNAME pass.asking.test.\n";
    std::fs::write(&file, zone).expect("a written zone");
    let upstream = upstream();
    let proxy = Proxy::start(&format!(
        "workers 1; filter \"asker\" {{ module \"{}\"; limits time=\"1s\"; config {{ under \"back.test\" }} }}\n\
         zone \"asking.test\" {{ cache; use \"asker\"; {} }}\n\
         zone \"back.test\" {{ cache {{ failure \"5m\" }}; file {file:?} }}",
        guest("asker").display(),
        forward_once(upstream.address)
    ));
    for name in ["pass.asking.test", "one.back.test"].repeat(2) {
        let answers = proxy.query(name, "A").answers();
        let last = answers.last().map(String::as_str);
        assert_eq!(last, Some("pass.asking.test. A 192.0.2.1"), "{name}");
    }
}

/// Sixteen lookups that each lead to sixteen more: 32 are made per query, whatever the client.
#[test]
fn lookups_of_one_query_are_bounded() {
    let upstream = upstream();
    let proxy = start("", "", &upstream);
    assert_eq!(told(&proxy, "many").matches("Answered 1").count(), 16);
    assert_eq!(lookups(&proxy, "answered"), 32.0);
    assert_eq!(lookups(&proxy, "limited"), 31.0 * 16.0);
    assert_eq!(proxy.metrics().sum("dnsweir_waiting_queries", &[]), 0.0);
}

/// A filter that asks endlessly gets four answers, and then `on-error` applies to its query.
#[test]
fn a_filter_may_ask_four_times() {
    let upstream = upstream();
    for (on_error, rcode) in [
        ("bypass", "NOERROR"),
        ("servfail", "SERVFAIL"),
        ("refuse", "REFUSED"),
    ] {
        let proxy = start("", &format!("on-error \"{on_error}\""), &upstream);
        assert_eq!(proxy.query("often.asking.test", "A").rcode(), rcode);
        let answers = [("filter", "asker"), ("phase", "query-answers")];
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum("dnsweir_filter_calls_total", &answers), 4.0);
        assert_eq!(metrics.sum("dnsweir_filter_failed_total", &answers), 1.0);
        assert_eq!(metrics.sum("dnsweir_filter_traps_total", &[]), 0.0);
    }
}

#[test]
fn on_error_decides_about_a_failed_answer() {
    let upstream = upstream();
    for (on_error, rcode) in [("bypass", "NOERROR"), ("servfail", "SERVFAIL")] {
        let proxy = start("cache", &format!("on-error \"{on_error}\""), &upstream);
        assert_eq!(proxy.query("panic.asking.test", "A").rcode(), rcode);
        assert_eq!(
            proxy.query("pass.asking.test", "A").answers(),
            ["pass.asking.test. A 192.0.2.1"]
        );
    }
}

/// The decision with the answers is remembered in place of the lookups.
#[test]
fn a_second_visit_costs_nothing() {
    let upstream = upstream();
    let proxy = start("", "", &upstream);
    for _ in 0..3 {
        assert_eq!(told(&proxy, "kept"), "Answered 1");
    }
    let metrics = proxy.metrics();
    let own = |name| metrics.sum("dnsweir_filter_counter_total", &[("name", name)]);
    assert_eq!((own("queries"), own("answers")), (1.0, 1.0));
    assert_eq!(lookups(&proxy, "answered"), 1.0);
    assert_eq!(metrics.sum("dnsweir_filter_remembered_total", &[]), 2.0);
}

/// A query that is displaced while its lookups wait is answered immediately, and the lookups end.
#[test]
fn lookups_give_way_with_their_query() {
    let upstream = upstream();
    let forward = forward_once(upstream.address);
    let proxy = Proxy::start(&format!(
        "workers 1; waiting-queries 16\n\
         filter \"asker\" {{ module \"{}\"; limits time=\"1s\"; config {{ under \"silent.test\" }} }}\n\
         zone \"asking.test\" {{ use \"asker\"; {forward} }}\nzone \"silent.test\" {{ {forward} }}",
        guest("asker").display()
    ));
    let sockets: Vec<_> = (0..40).map(|_| client::socket(proxy.address)).collect();
    upstream.becomes(|_| Reply::Silence);
    for socket in &sockets {
        let query = Message::query("two.asking.test", "TXT");
        socket.send(&query.encode()).expect("a sent query");
    }
    for socket in &sockets {
        let answer = Message::decode(&client::receive(socket)).expect("a message");
        let answered = answer.answers();
        assert!(answer.rcode() == "SERVFAIL" || answered.len() == 1, "{answer}");
    }
    until("nobody to wait", || {
        proxy.metrics().sum("dnsweir_waiting_queries", &[]) == 0.0
    });
}

/// A filter may make lookups for responses, too, above the cache or below it: with the batch, or in a task.
#[test]
fn filters_ask_about_responses() {
    for above in ["", "cache"] {
        let upstream = upstream();
        let proxy = start(above, "", &upstream);
        for _ in 0..2 {
            assert_eq!(told(&proxy, "later"), "NOERROR then Answered 1");
        }
        assert_eq!(
            lookups(&proxy, "answered"),
            if above.is_empty() { 2.0 } else { 1.0 }
        );
        let dropped = Message::query("later-drop.asking.test", "A");
        unanswered(proxy.address, &dropped.encode());
        let drops = [("filter", "asker"), ("reason", "told to")];
        proxy.await_metric("dnsweir_filter_drops_total", &drops, 1.0);
    }
    // Above the cache, the lookups for cached responses start with their batch, and then wait.
    let upstream = upstream();
    let forward = forward_once(upstream.address);
    let proxy = Proxy::start(&format!(
        "workers 1; filter \"asker\" {{ module \"{}\"; limits time=\"1s\"; config {{ under \"plain.test\" }} }}\n\
         zone \"asking.test\" {{ use \"asker\"; cache; {forward} }}\nzone \"plain.test\" {{ cache; {forward} }}",
        guest("asker").display()
    ));
    for _ in 0..3 {
        assert_eq!(told(&proxy, "later"), "NOERROR then Answered 1");
    }
    assert_eq!(upstream.count("later.asking.test"), 1);
    assert_eq!(lookups(&proxy, "answered"), 3.0);
}

/// Other queries wait for a response below the cache: a lookup for the same question does not wait for
/// itself.
#[test]
fn a_response_does_not_wait_for_itself() {
    for above in ["", "cache"] {
        let upstream = upstream();
        let proxy = start(above, "", &upstream);
        let answer = told(&proxy, "later-self");
        assert_eq!(answer, "NOERROR then Answered 1");
        assert_eq!(lookups(&proxy, "limited"), 1.0);
        assert_eq!(lookups(&proxy, "timed-out"), 0.0);
    }
}

#[test]
fn on_error_decides_about_a_response() {
    let upstream = upstream();
    for (on_error, rcode) in [
        ("bypass", "NOERROR"),
        ("servfail", "SERVFAIL"),
        ("refuse", "REFUSED"),
    ] {
        let proxy = start("", &format!("on-error \"{on_error}\""), &upstream);
        assert_eq!(proxy.query("later-often.asking.test", "A").rcode(), rcode);
        let answers = [("filter", "asker"), ("phase", "response-answers")];
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum("dnsweir_filter_calls_total", &answers), 4.0);
        assert_eq!(metrics.sum("dnsweir_filter_failed_total", &answers), 1.0);
        assert_eq!(proxy.query("later-panic.asking.test", "A").rcode(), rcode);
    }
}
