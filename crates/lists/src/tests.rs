//! Tests from a list's text to the answer.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Fetch, Fetched, Known, Lists};
use crate::config::{self, Data, DataWriter, List, Location, SourceConfig, Stage};
use crate::dns::name::Name;
use crate::dns::records::Section;
use crate::dns::suffix_map::SuffixMap;
use crate::dns::text::{parse_type, record_lines};
use crate::dns::{CLASS_IN, rcode_text};
use crate::metrics::Metrics;
use crate::read::read;
use dnsweir_answer::identity::{Identity, Labels, Namespace, PodObject};
use dnsweir_answer::{Question, Resolution, Upkeep as _};

/// Parses a `lists` stage with these words.
fn config(folder: &Path, words: &str) -> config::Lists {
    let zone = format!("zone \".\" {{ lists {{ {words} }}; forward \"192.0.2.1\" }}");
    let text = format!("listen \"127.0.0.1\"\npods {{ node \"worker-1\" }}\n{zone}");
    let config = config::parse("test", &text, folder, NO_MODULES).unwrap_or_else(|report| panic!("{report}"));
    match config.zones.into_iter().next().unwrap().stages.into_iter().next() {
        Some(Stage::Source(SourceConfig::Lists(lists))) => lists,
        other => panic!("{other:?}"),
    }
}

const NO_MODULES: config::Builtins = &[];

/// A list whose text the test supplies.
fn list(words: &str) -> List {
    config(Path::new("/"), &format!("list \"l\" {{ source \"l\"; {words} }}"))
        .lists
        .remove(0)
}

/// Returns the rcode and the records that a client gets, or `None` if the next stage is asked.
fn said(lists: &Lists, client: &str, name: &str, qtype: &str) -> Option<String> {
    said_to(&Identity::Unknown, lists, client, name, qtype)
}

/// The same for a client that is identified.
fn said_to(identity: &Identity, lists: &Lists, client: &str, name: &str, qtype: &str) -> Option<String> {
    let name = Name::parse(name).unwrap();
    let (zone, zones) = (Name::ROOT, SuffixMap::default());
    let resolution = lists.immediate(&Question {
        name: name.as_bytes(),
        qtype: parse_type(qtype).unwrap(),
        qclass: CLASS_IN,
        flags: 0,
        dnssec_ok: false,
        subnet: None,
        signed: None,
        room: 512,
        client: client.parse::<IpAddr>().unwrap(),
        identity,
        zone: &zone,
        zones: &zones,
        tap: None,
        direct: true,
        traced: false,
    });
    match resolution {
        Resolution::NotMine => None,
        Resolution::Answer { answer, .. } => {
            let mut words = vec![rcode_text(answer.rcode)];
            words.extend(record_lines(&answer.message, Section::Answer));
            words.extend(record_lines(&answer.message, Section::Authority));
            words.extend(answer.error.map(|code| format!("{code} {}", answer.error_text)));
            Some(words.join("; "))
        }
        other => panic!("{other:?}"),
    }
}

/// Starts the stage, and waits until all lists were read.
async fn up(lists: Lists) -> Lists {
    tokio::time::timeout(Duration::from_secs(60), lists.bring_up())
        .await
        .unwrap();
    lists
}

/// One list of each kind.
const WORDS: &str = "list \"ads\" { source \"ads\" }
        list \"sink\" { source \"sink\"; answer \"192.0.2.1\" \"192.0.2.2\"; subdomains }
        list \"hosts\" { source \"hosts\"; answer \"nodata\" }
        list \"kids\" { source \"kids\"; clients \"10.0.0.0/8\" \"2001:db8::/32\" }
        list \"fine\" { source \"pass\"; answer \"pass\" }
        list \"policies\" { source \"rpz\"; format \"rpz\" }
        allow \"plain.example\"; ttl \"5m\"";

/// Client and question, then the expected rcode, listed name and list, or the records; empty: not answered.
const CASES: &str = "
192.0.2.9 ads.example A | NXDOMAIN ads.example. ads
192.0.2.9 x.y.Ads.example AAAA | NXDOMAIN ads.example. ads
192.0.2.9 good.ads.example A |
192.0.2.9 x.good.ads.example A |
192.0.2.9 badads.example A |
192.0.2.9 plain.example A |
10.1.2.3 plain.example A |
192.0.2.9 sink.example A | NOERROR; sink.example. 300 IN A 192.0.2.1; sink.example. 300 IN A 192.0.2.2; 15 list \"sink\"
192.0.2.9 a.sink.example AAAA | NOERROR sink.example. sink
192.0.2.9 sink.example HTTPS | NOERROR sink.example. sink
192.0.2.9 nas.lan A | NOERROR; nas.lan. 300 IN A 192.0.2.7
192.0.2.9 nas.lan AAAA | NOERROR; nas.lan. 300 IN AAAA 2001:db8::7
192.0.2.9 a.nas.lan A |
192.0.2.9 gone.lan A | NOERROR gone.lan. hosts
192.0.2.9 a.games.example A |
10.1.2.3 a.games.example A | NXDOMAIN games.example. kids
2001:db8::1 games.example A | NXDOMAIN games.example. kids
192.0.2.9 fine.example A |
192.0.2.9 empty.example A | NOERROR empty.example. policies
192.0.2.9 below.example A |
192.0.2.9 a.below.example A | NXDOMAIN below.example. policies
192.0.2.9 good.below.example A |
192.0.2.9 b.good.below.example A | NXDOMAIN below.example. policies
192.0.2.9 fine.below.example A |
192.0.2.9 b.fine.below.example A |
192.0.2.9 bad.fine.below.example A | NXDOMAIN bad.fine.below.example. policies
192.0.2.9 here.fine.below.example A | NOERROR; here.fine.below.example. 300 IN A 192.0.2.8
192.0.2.9 a.none.fine.below.example A | NOERROR none.fine.below.example. policies
192.0.2.9 . NS |
";

#[tokio::test]
async fn names_are_answered_as_their_list_says() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ads", "||ads.example^\n@@||good.ads.example^\nplain.example\n");
    write("sink", "sink.example\n");
    write(
        "hosts",
        "192.0.2.7 nas.lan\n2001:db8::7 nas.lan\n0.0.0.0 gone.lan\n",
    );
    write("kids", "*.games.example\nplain.example\n");
    write("pass", "fine.example\n*.fine.example\n");
    write(
        "rpz",
        "empty.example CNAME *.\n*.below.example CNAME .\nfine.example CNAME .\n\
         good.below.example CNAME rpz-passthru.\nfine.below.example CNAME rpz-passthru.\n\
         *.fine.below.example CNAME rpz-passthru.\nbad.fine.below.example CNAME .\n\
         here.fine.below.example A 192.0.2.8\n*.none.fine.below.example CNAME *.\n",
    );
    let lists = up(Lists::new(&config(folder.path(), WORDS), &Known::default())).await;
    for case in CASES.lines().filter(|line| !line.is_empty()) {
        let (question, expected) = case.split_once('|').unwrap();
        let words: Vec<&str> = question.split_whitespace().collect();
        let said = said(&lists, words[0], words[1], words[2]);
        let words: Vec<&str> = expected.split_whitespace().collect();
        let expected = match words[..] {
            [] => None,
            [rcode, name, list] => Some(format!(
                "{rcode}; {name} 300 IN SOA {name} nobody.invalid. 1 3600 1200 604800 300; 15 list \"{list}\""
            )),
            _ => Some(words.join(" ")),
        };
        assert_eq!(said, expected, "{question}");
    }
    let mut metrics = Metrics::default();
    lists.show(&mut metrics);
    let counted = |name: &str, label: &str| {
        let metric = metrics.all().iter().find(|metric| metric.name == name).unwrap();
        let labelled = metric
            .samples
            .iter()
            .filter(|(labels, _)| labels.iter().any(|(_, value)| value == label));
        format!("{:?}", labelled.map(|(_, sample)| sample).collect::<Vec<_>>())
    };
    assert_eq!(counted("list_queries", "ads"), "[Whole(2), Whole(2)]");
    assert_eq!(counted("list_names", "hosts"), "[Whole(2)]");
    assert_eq!(counted("list_reads", "kids"), "[Whole(0), Whole(1), Whole(0)]");
    assert!(
        lists.status().text.contains("\"ads\" with 3 names"),
        "{}",
        lists.status().text
    );
    assert_eq!(lists.not_ready(true), None);
}

/// A pod with these labels, and those of its namespace.
fn pod(namespace: &str, of_namespace: &[(&str, &str)], own: &[(&str, &str)]) -> Identity {
    let labels = |labels: &[(&str, &str)]| -> Labels {
        let labels = labels.iter();
        labels.map(|&(name, value)| (name.into(), value.into())).collect()
    };
    let object = PodObject {
        namespace: namespace.into(),
        labels: labels(own),
        ..PodObject::default()
    };
    let namespace = Namespace {
        labels: labels(of_namespace),
        ..Namespace::default()
    };
    Identity::of(object, namespace)
}

#[tokio::test]
async fn a_list_is_for_the_pods_that_meet_all_it_says() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "all"] {
        std::fs::write(folder.path().join(name), format!("{name}.example\n")).unwrap();
    }
    let words =
        "list \"a\" { source \"a\"; namespaces \"shop\" \"bank\"; labels \"tier in (web, api),!old\" }
        list \"b\" { source \"b\"; clients \"10.0.0.0/8\"; namespace-labels \"team!=ops\" }
        list \"all\" { source \"all\" }";
    let lists = up(Lists::new(&config(folder.path(), words), &Known::default())).await;
    let web: &[(&str, &str)] = &[("tier", "web")];
    for (identity, client, [a, b]) in [
        (pod("shop", &[], web), "10.0.0.1", [true, true]),
        (
            pod("bank", &[("team", "ops")], &[("tier", "api")]),
            "10.0.0.1",
            [true, false],
        ),
        (pod("shop", &[], &[]), "192.0.2.9", [false, false]),
        (
            pod("shop", &[], &[("tier", "web"), ("old", "")]),
            "10.0.0.1",
            [false, true],
        ),
        (pod("shops", &[("team", "dev")], web), "10.0.0.1", [false, true]),
        (Identity::Host, "10.0.0.1", [false, false]),
        (Identity::Unknown, "10.0.0.1", [false, false]),
    ] {
        for (name, listed) in [
            ("a.example", a),
            ("b.example", b),
            ("all.example", true),
            ("c.example", false),
        ] {
            let said = said_to(&identity, &lists, client, name, "A");
            assert_eq!(
                said.is_some(),
                listed,
                "{name} for {identity} at {client}: {said:?}"
            );
        }
    }
    for (name, apart) in [
        ("a.example", true),
        ("b.example", true),
        ("all.example", false),
        ("c.example", false),
    ] {
        let name = Name::parse(name).unwrap();
        assert_eq!(lists.tells_clients_apart(name.as_bytes()), apart, "{name}");
    }
}

/// A missing list passes all names to the next stage, and reports so as long as it is waited for.
#[tokio::test]
async fn a_list_comes_when_its_file_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late");
    let words = "list \"late\" { source \"late\" }; wait \"1h\"";
    let lists = Lists::new(&config(folder.path(), words), &Known::default());
    lists.begin();
    assert!(
        lists
            .not_ready(true)
            .unwrap()
            .contains("the list \"late\" has not been loaded yet")
    );
    assert_eq!(said(&lists, "192.0.2.9", "a.example", "A"), None);
    std::fs::write(&file, "a.example\n").unwrap();
    lists.ready().await;
    assert!(said(&lists, "192.0.2.9", "a.example", "A").is_some());
    // A file that is not a list does not replace it; the next valid one does.
    std::fs::write(&file, "<!DOCTYPE html>\nb.example\n").unwrap();
    wait_until(|| lists.status().text.contains("it is a page")).await;
    assert!(said(&lists, "192.0.2.9", "a.example", "A").is_some());
    // Nor does an empty one.
    std::fs::write(&file, "").unwrap();
    wait_until(|| lists.status().text.contains("it has no name")).await;
    assert!(said(&lists, "192.0.2.9", "a.example", "A").is_some());
    std::fs::write(&file, "b.example\n").unwrap();
    wait_until(|| said(&lists, "192.0.2.9", "b.example", "A").is_some()).await;
    assert_eq!(said(&lists, "192.0.2.9", "a.example", "A"), None);
    // A new configuration takes over what is known, and reads it again.
    let other = config(
        folder.path(),
        "list \"renamed\" { source \"late\"; answer \"nodata\" }",
    );
    let next = Lists::new(&other, &Known::of([&lists].into_iter()));
    assert!(
        said(&next, "192.0.2.9", "b.example", "A")
            .unwrap()
            .starts_with("NOERROR")
    );
}

/// Polls until it holds: the other thread sends no notification.
async fn wait_until(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it does not come to be"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A server with scripted contents.
#[derive(Default)]
struct Server {
    kept: Option<&'static str>,
    now: Mutex<Option<&'static str>>,
}

fn data(text: &str) -> Arc<Data> {
    let mut writer = DataWriter::new().unwrap();
    writer.append(text.as_bytes()).unwrap();
    writer.finish().unwrap()
}

impl Fetch for Server {
    fn kept(&self, _: &Location) -> Option<Arc<Data>> {
        self.kept.map(data)
    }
    fn fetch(&self, _: &Location) -> Fetched {
        let now = self
            .now
            .lock()
            .map(data)
            .ok_or_else(|| "the server is away".to_owned());
        Box::pin(std::future::ready(now))
    }
}

#[tokio::test]
async fn a_list_that_was_kept_is_as_good_as_there_is() {
    let words = "list \"l\" { source \"https://lists.example/l\" }; every \"1s\"";
    let config = config(Path::new("/"), words);
    let server = Arc::new(Server {
        kept: Some("kept.example\n"),
        now: Mutex::new(None),
    });
    let lists = Lists::new(&config, &Known::default());
    let fetch: Arc<dyn Fetch> = Arc::clone(&server) as Arc<dyn Fetch>;
    lists.fetch_by(&fetch);
    let lists = up(lists).await;
    assert!(said(&lists, "192.0.2.9", "kept.example", "A").is_some());
    wait_until(|| lists.status().text.contains("the server is away")).await;
    *server.now.lock() = Some("new.example\n");
    wait_until(|| said(&lists, "192.0.2.9", "new.example", "A").is_some()).await;
    assert_eq!(said(&lists, "192.0.2.9", "kept.example", "A"), None);
}

#[test]
fn what_is_hostile_is_counted_and_takes_no_more_than_it_may() {
    let of = |text: &[u8], words: &str| {
        read(text, &list(words)).map(|(rules, skipped)| (rules.names(), skipped.count))
    };
    let long = [&b"a.example\n"[..], &[b'a'; 16 << 20], b"\nb.example"].concat();
    assert_eq!(of(&long, ""), Ok((2, 1)));
    assert_eq!(of(&long, "format \"rpz\""), Err("it has no name: 3 lines cannot be used, line 1: its policy is not known here, line 2: it is too long, line 3: its policy is not known here".into()));
    let bad = [&b"a.example\n"[..], &b"not a name at all\n".repeat(1_000_000)].concat();
    assert_eq!(of(&bad, ""), Ok((1, 1_000_000)));
    let binary: Vec<u8> = (0..1_000_000_u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let read = of(&[&b"a.example\n"[..], &binary].concat(), "");
    assert!(read.is_ok(), "{read:?}");
    let open = [&b"a CNAME .\nb CNAME (\n"[..], &b"c CNAME .\n".repeat(1000)].concat();
    assert_eq!(of(&open, "format \"rpz\""), Ok((1, 1)));
    let none = Err("it has no name".to_owned());
    assert_eq!(of(b"", ""), none);
    assert_eq!(of(b"\xef\xbb\xbf# nothing\r\n\r\n", ""), none);
    assert_eq!(of(b"$TTL 60\n@ SOA a. b. 1\n", "format \"rpz\""), none);
    // One with exceptions alone has names.
    assert_eq!(of(b"@@||a.example^\n", ""), Ok((1, 0)));
    let passes = of(b"a.example CNAME rpz-passthru.\n", "format \"rpz\"");
    assert_eq!(passes, Ok((1, 0)));
    let names: String = (0..100)
        .map(|number| format!("name-{number}.example\n"))
        .collect();
    assert_eq!(of(names.as_bytes(), "memory \"1600B\""), Ok((100, 0)));
    assert_eq!(
        of(names.as_bytes(), "memory \"1KiB\""),
        Err("its names take more than 1KiB: raise `memory`".into())
    );
}
