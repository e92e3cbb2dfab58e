//! Problems as `/status`, the browser page and `dnsweir top` show them before anything else: who is affected,
//! when it was found, and what to do.

use std::process::Stdio;

use serde_json::Value;

use crate::harness::browser::Browser;
use crate::harness::certificates::Authority;
use crate::harness::encrypted::TlsFront;
use crate::harness::guests::guest;
use crate::harness::{Proxy, Reply, Upstream, forward_once, needs, proxy, until};

/// An upstream that ignores some names, fails others, and denies yet others.
fn upstream() -> Upstream {
    Upstream::start(|asked| {
        let name = asked.name();
        match name {
            name if name.starts_with("lost") => Reply::Silence,
            name if name.starts_with("broken") => asked.denial("SERVFAIL", None),
            name if name.starts_with("unknown") => asked.denial("NXDOMAIN", None),
            name => asked.answer(&[&format!("{name} 300 A 192.0.2.1")]),
        }
    })
}

/// A proxy with short timeouts in front of it.
fn start(upstream: &Upstream) -> Proxy {
    Proxy::start(&format!(
        "zone \".\" {{ forward \"{}\" {{ attempts 1; timeout \"100ms\"; deadline \"150ms\"; max-fails 0 }} }}",
        upstream.address
    ))
}

/// A proxy with long timeouts in front of it, so that nothing is lost by accident.
fn patient(upstream: &Upstream, filter: &str) -> Proxy {
    let used = if filter.is_empty() { "" } else { "use \"filter\"; " };
    Proxy::start(&format!(
        "{filter}\nzone \".\" {{ {used}{} }}",
        forward_once(upstream.address)
    ))
}

fn listed(proxy: &Proxy) -> Vec<Value> {
    let (_, status) = proxy.get("/status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    status["problems"].as_array().expect("problems").clone()
}

/// The problems of zones, upstreams, filters and the configuration. Problems of the machine have no name.
fn said(proxy: &Proxy) -> Vec<String> {
    let text = |problem: &Value, key: &str| problem[key].as_str().unwrap_or_default().to_owned();
    let problems = listed(proxy);
    let problems = problems
        .iter()
        .map(|problem| (text(problem, "about"), text(problem, "what")));
    problems
        .filter(|(about, _)| !about.is_empty())
        .map(|(about, what)| format!("{about}: {what}"))
        .collect()
}

fn ask(proxy: &Proxy, word: &str, times: usize) {
    for at in 0..times {
        proxy.query(&format!("{word}{at}.example"), "A");
    }
}

/// Repeats the queries, because problems cover the last minute, however slow this machine is.
#[track_caller]
fn until_said(proxy: &Proxy, word: &str, times: usize, begin: &str, end: &str) {
    until(begin, || {
        ask(proxy, word, times);
        let said = said(proxy);
        said.iter()
            .any(|said| said.starts_with(begin) && said.ends_with(end))
    });
}

#[test]
fn an_upstream_that_loses_queries_is_named() {
    let upstream = upstream();
    let calm = patient(&upstream, "");
    ask(&calm, "known", 5);
    assert_eq!(said(&calm), Vec::<String>::new());
    let proxy = start(&upstream);
    let whom = format!("upstream {} (zone .)", upstream.address);
    until_said(
        &proxy,
        "lost",
        3,
        &format!("{whom}: leaves "),
        " % of its queries unanswered",
    );
    // What clients notice comes first.
    let listed = listed(&proxy);
    let place = |about: &str| listed.iter().position(|problem| problem["about"] == about);
    let (zone, named) = (place("zone ."), place(&whom));
    assert!(zone.is_some() && zone < named, "{listed:#?}");
    let problem = &listed[named.expect("the upstream")];
    assert!(
        problem["advice"]
            .as_str()
            .is_some_and(|advice| !advice.is_empty())
    );
    assert!(problem["since"].as_u64().is_some_and(|since| since > 0));
}

#[test]
fn a_share_of_names_that_do_not_exist_is_said() {
    let upstream = upstream();
    let proxy = patient(&upstream, "");
    ask(&proxy, "known", 50);
    ask(&proxy, "unknown", 99);
    assert_eq!(said(&proxy), Vec::<String>::new());
    until_said(
        &proxy,
        "unknown",
        100,
        "zone .: ",
        " % of its answers are NXDOMAIN",
    );
}

#[test]
fn a_filter_that_is_slow_is_named() {
    let upstream = upstream();
    let filter = format!(
        "filter \"filter\" {{ module \"{}\"; limits time=\"1s\" }}",
        guest("spin").display()
    );
    let proxy = patient(&upstream, &filter);
    ask(&proxy, "known", 20);
    assert_eq!(said(&proxy), Vec::<String>::new());
    until_said(&proxy, "busy", 100, "filter filter: takes ", " ms for each query");
}

#[test]
fn a_filter_that_fails_is_named() {
    let upstream = upstream();
    let filter = format!(
        "filter \"filter\" {{ module \"{}\"; on-error \"bypass\" }}",
        guest("spin").display()
    );
    let proxy = patient(&upstream, &filter);
    until_said(&proxy, "spin", 1, "filter filter: ", "");
}

#[test]
fn a_configuration_that_was_not_taken_is_said() {
    let upstream = upstream();
    let proxy = start(&upstream);
    change(&proxy, "forward ", "forwards ");
    until("it to be said", || {
        said(&proxy)
            .first()
            .is_some_and(|said| said.starts_with("configuration: the last reload failed: "))
    });
    // The problem persists, and keeps its start time.
    let since = || listed(&proxy)[0]["since"].as_u64().expect("a time");
    let first = since();
    ask(&proxy, "known", 3);
    assert_eq!(since(), first);
    change(&proxy, "forwards ", "forward ");
    until("nothing to be said of it any more", || {
        !said(&proxy).iter().any(|said| said.starts_with("configuration"))
    });
}

/// Reloads the proxy with one text of its file replaced by another.
fn change(proxy: &Proxy, from: &str, to: &str) {
    let text = std::fs::read_to_string(&proxy.file).expect("a configuration");
    std::fs::write(&proxy.file, text.replace(from, to)).expect("a file");
    proxy.process.signal("HUP");
}

/// The output of `top` about events during `happens`, which runs between its two samples, however long they
/// take.
fn top_meanwhile(proxy: &Proxy, mut happens: impl FnMut()) -> String {
    let mut top = proxy::command();
    top.args([
        "top",
        "--once",
        "--interval",
        "1",
        "--admin",
        &proxy.admin.to_string(),
    ]);
    let mut top = top.stdout(Stdio::piped()).spawn().expect("dnsweir");
    while top.try_wait().expect("a program").is_none() {
        happens();
    }
    let output = top.wait_with_output().expect("its output");
    String::from_utf8(output.stdout).expect("text")
}

/// The metrics of an upstream are found whatever its protocol.
#[test]
fn top_knows_upstreams_over_tls() {
    let upstream = upstream();
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("a certificate");
    let certificate = authority.issue(&["dns.example"]);
    let front = TlsFront::before(upstream.address, certificate.server(None));
    let (ip, port) = (front.address.ip(), front.address.port());
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ forward \"tls://{ip}%dns.example:{port}\" {{ tls {{ ca {ca:?} }} }} }}"
    ));
    let row = format!("tls://{ip}%dns.example:{port} ");
    until("a rate", || {
        let text = top_meanwhile(&proxy, || ask(&proxy, "known", 1));
        let row = text.lines().find_map(|line| line.strip_prefix(&row));
        let figures = row.and_then(|row| row.trim_start().strip_prefix("in use"));
        let rate = figures.and_then(|figures| figures.split_whitespace().next());
        rate.is_some_and(|rate| rate.parse::<f64>().is_ok_and(|rate| rate > 0.0))
    });
}

/// `top` shows problems first, and which share of an upstream's queries is lost.
#[test]
fn top_begins_with_what_is_wrong() {
    let upstream = upstream();
    let proxy = start(&upstream);
    ask(&proxy, "lost", 3);
    let looking = || {
        top_meanwhile(&proxy, || {
            ask(&proxy, "lost", 1);
            ask(&proxy, "unknown", 1);
        })
    };
    until("top to say it", || {
        let text = looking();
        let place = |words: &str| text.find(words);
        let wrong = place(&format!("! upstream {} (zone .) leaves ", upstream.address));
        let [rates, answers, table] = ["in the last ", "answers: ", "UPSTREAM"].map(place);
        let in_order = wrong.is_some() && wrong < rates && rates < answers && answers < table;
        let row = text
            .lines()
            .find(|line| line.starts_with(&upstream.address.to_string()));
        let lost = row.is_some_and(|row| row.split_whitespace().any(|word| word == "%"));
        in_order && lost && text.contains("NXDOMAIN ") && text.contains(" lost ")
    });
}

/// The page shows problems first, too.
#[test]
fn the_page_begins_with_what_is_wrong() {
    if !needs(&["chromium"]) {
        return;
    }
    let upstream = upstream();
    let proxy = start(&upstream);
    let mut browser = Browser::start(1280, 900, false);
    browser.open(&format!("http://{}/", proxy.admin));
    let text = |browser: &mut Browser| {
        let text = browser.value("document.getElementById(\"problems\")?.innerText ?? \"\"");
        text.as_str().unwrap_or_default().to_owned()
    };
    // The test machine may have problems of its own.
    until("a page", || !text(&mut browser).is_empty());
    assert!(!text(&mut browser).contains("upstream"));
    let whom = format!("upstream {} (zone .)", upstream.address);
    until("it to be said", || {
        ask(&proxy, "lost", 3);
        let text = text(&mut browser);
        text.starts_with("zone . ")
            && text.contains(&whom)
            && text.contains("of its queries unanswered for at least ")
            && text.contains("packets are lost")
    });
    assert_eq!(browser.complaints, Vec::<String>::new());
}
