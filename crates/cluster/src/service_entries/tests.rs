//! Objects, tables and answers.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::entry::{Entry, ServiceEntry};
use super::follower::chosen;
use super::host_name::Malformed;
use super::rules::Rules;
use super::table::Table;
use crate::api_server::Reading;
use crate::config::{self, Network};
use crate::dns::name::Name;
use crate::kubernetes::known::Indexed;

fn object(name: &str, spec: Value, status: Value) -> ServiceEntry {
    let metadata = json!({"namespace": "shop", "name": name});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// Reads an object without any rules.
fn read(object: ServiceEntry) -> Result<Reading<Entry>, Malformed> {
    Entry::read(object, &Rules::default(), |problem| panic!("{problem}"))
}

fn entry(name: &str, spec: Value) -> Arc<Entry> {
    match read(object(name, spec, Value::Null)).unwrap() {
        Reading::Present(entry) => Arc::new(entry),
        other => panic!("{other:?}"),
    }
}

/// A table with one range of this prefix length, and these entries.
fn table(length: u8, entries: &[&Arc<Entry>]) -> Table {
    let range = Network::of("240.240.0.0".parse().unwrap(), length).unwrap();
    let mut table = Table::new(&[range]);
    entries
        .iter()
        .for_each(|entry| assert_eq!(entry.enter(&mut table), 0));
    table
}

fn ask(table: &Table, name: &str) -> Option<Vec<IpAddr>> {
    table.addresses(Name::parse(name).unwrap().as_bytes())
}

fn are(addresses: &[&str]) -> Option<Vec<IpAddr>> {
    Some(addresses.iter().map(|address| address.parse().unwrap()).collect())
}

#[test]
fn hosts_have_the_addresses_of_their_entry() {
    let own = entry(
        "own",
        json!({"hosts": ["API.example.com", "*.example.org"], "addresses": ["192.0.2.1", "192.0.2.0/24", "2001:db8::1/128"]}),
    );
    let closer = entry(
        "closer",
        json!({"hosts": ["*.a.example.org"], "addresses": ["192.0.2.2"]}),
    );
    let table = table(16, &[&own, &closer]);
    let both = are(&["192.0.2.1", "2001:db8::1"]);
    for (name, expected) in [
        ("api.example.com", both.clone()),
        ("x.api.example.com", None),
        ("example.org", None),
        ("www.example.org", both.clone()),
        ("x.y.example.org", both),
        ("x.a.example.org", are(&["192.0.2.2"])),
        ("example.com", None),
    ] {
        assert_eq!(ask(&table, name), expected, "{name}");
    }
}

#[test]
fn assigned_addresses_belong_to_their_hosts() {
    let spec = json!({"hosts": ["a.example", "b.example", "c.example"], "resolution": "DNS"});
    let status = json!({"addresses": [{"value": "240.240.0.7", "host": "a.example"}, {"value": "240.240.0.8", "host": "b.example"},
                                      {"value": "2001:2::7", "host": "a.example"}]});
    let Ok(Reading::Present(entry)) = read(object("assigned", spec, status)) else {
        panic!("an entry")
    };
    let entry = Arc::new(entry);
    let mut table = Table::new(&[]);
    entry.enter(&mut table);
    assert_eq!(ask(&table, "a.example"), are(&["240.240.0.7", "2001:2::7"]));
    assert_eq!(ask(&table, "b.example"), are(&["240.240.0.8"]));
    assert_eq!(ask(&table, "c.example"), None, "there is no range");
}

/// The same on every node, after every restart and in every version, because clients keep them.
#[test]
fn hashed_addresses_never_change() {
    let hosts = entry(
        "hashed",
        json!({"hosts": ["api.example.com", "*.example.com"], "resolution": "STATIC"}),
    );
    let table = table(16, &[&hosts]);
    assert_eq!(ask(&table, "api.example.com"), are(&["240.240.31.43"]));
    let below = ask(&table, "x.example.com");
    assert_eq!(below, are(&["240.240.32.42"]));
    assert_eq!(ask(&table, "y.z.example.com"), below);
}

/// Entries without resolution get no address: their clients know it already.
#[test]
fn some_entries_say_nothing() {
    for spec in [
        json!({"hosts": ["a.example"]}),
        json!({"hosts": ["a.example"], "resolution": "NONE"}),
        json!({"hosts": ["a.example"], "resolution": "DNS", "addresses": ["10.0.0.0/8"]}),
        json!({"hosts": ["a.example"], "addresses": ["10.0.0.1"], "exportTo": ["."]}),
        json!({"hosts": []}),
    ] {
        let said = read(object("nothing", spec.clone(), Value::Null));
        assert_eq!(said, Ok(Reading::Nothing), "{spec}");
    }
    let shown = json!({"hosts": ["a.example"], "addresses": ["10.0.0.1"], "exportTo": [".", "*"]});
    assert!(matches!(
        read(object("shown", shown, Value::Null)),
        Ok(Reading::Present(_))
    ));
    for host in ["", "*", "*.", "a..b", "."] {
        let spec = json!({"hosts": [host], "addresses": ["10.0.0.1"]});
        let problem = read(object("bad", spec, Value::Null)).unwrap_err().to_string();
        assert_eq!(problem, format!("the host {host:?} is not valid in DNS"));
    }
}

/// An object's author cannot claim others' names; the rest of the object counts.
#[test]
fn some_names_are_not_theirs() {
    let names = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let mut config = config::ServiceEntries {
        namespaces: names(&["shop"]),
        hosts: vec![],
        taken: names(&["cluster.local.", "corp.example."]),
        ranges: vec![],
        labels: None,
        ttl: Duration::from_secs(30),
        kubeconfig: None,
        wait: Duration::ZERO,
        memory: 1 << 20,
    };
    let hosts = [
        "db",
        "*.com",
        "*.a.com",
        "www.corp.example",
        "corp.example",
        "x.svc.cluster.local",
        "b.com",
    ];
    let spec = json!({"hosts": hosts, "addresses": ["10.0.0.1"]});
    let taken_from = |config: &config::ServiceEntries| {
        let refused = RefCell::new(Vec::new());
        let object = object("one", spec.clone(), Value::Null);
        let read = Entry::read(object, &Rules::of(config), |why| {
            refused.borrow_mut().push(why.to_owned())
        });
        let hosts = match read.unwrap() {
            Reading::Present(entry) => entry.hosts.iter().map(|host| host.name.to_string()).collect(),
            _ => Vec::new(),
        };
        (hosts, refused.into_inner())
    };
    let (hosts, refused) = taken_from(&config);
    assert_eq!(hosts, ["*.a.com.", "b.com."]);
    assert_eq!(
        refused,
        [
            "db. of shop/one is left out: it has one label",
            "*.com. of shop/one is left out: it is all names of a top-level domain",
            "www.corp.example. of shop/one is left out: corp.example. is answered elsewhere",
            "corp.example. of shop/one is left out: corp.example. is answered elsewhere",
            "x.svc.cluster.local. of shop/one is left out: cluster.local. is answered elsewhere",
        ]
    );
    config.hosts = names(&["a.com."]);
    assert_eq!(taken_from(&config), (names(&["*.a.com."]), vec![]));
    config.namespaces = names(&["mesh"]);
    assert_eq!(taken_from(&config), (vec![], vec![]));
}

/// Three hosts hash into a range of two addresses: the first by name has it, whatever the order of arrival,
/// and the others are reported.
#[test]
fn who_collides_is_refused_by_name() {
    let hosts = ["a", "b", "c"].map(|name| {
        entry(
            name,
            json!({"hosts": [format!("{name}.example")], "resolution": "DNS"}),
        )
    });
    let [a, b, c] = &hosts;
    let mut forwards = table(30, &[a, b, c]);
    let backwards = table(30, &[c, b, a]);
    let all = |table: &Table| ["a.example", "b.example", "c.example"].map(|name| ask(table, name));
    assert_eq!(all(&forwards), all(&backwards));
    let without = all(&forwards).iter().filter(|found| found.is_none()).count();
    assert!(
        without > 0 && forwards.collisions == without,
        "{:?}",
        all(&forwards)
    );
    assert!(ask(&forwards, "a.example").is_some());
    let told = &forwards.refused[0];
    assert!(told.contains("has no address, because 240.240.0."), "{told}");
    // When the others go, no host is without an address.
    b.leave(&mut forwards);
    c.leave(&mut forwards);
    assert_eq!(forwards.collisions, 0);
    assert!(ask(&forwards, "a.example").is_some() && ask(&forwards, "b.example").is_none());
}

/// Two objects with the same host do not collide: the first one counts.
#[test]
fn one_host_may_be_in_several_entries() {
    let one = entry("one", json!({"hosts": ["a.example"], "resolution": "DNS"}));
    let two = entry("two", json!({"hosts": ["a.example"], "addresses": ["10.0.0.2"]}));
    let three = entry("three", json!({"hosts": ["a.example"], "resolution": "DNS"}));
    let mut table = table(24, &[&two, &three, &one]);
    assert_eq!(table.collisions, 0);
    let hashed = ask(&table, "a.example");
    assert_ne!(hashed, are(&["10.0.0.2"]));
    one.leave(&mut table);
    assert_eq!(ask(&table, "a.example"), hashed);
    three.leave(&mut table);
    assert_eq!(ask(&table, "a.example"), are(&["10.0.0.2"]));
    two.leave(&mut table);
    assert_eq!(ask(&table, "a.example"), None);
}

#[test]
fn the_version_is_the_preferred_one() {
    let chosen = |served: &[&str]| {
        let served: Vec<String> = served.iter().map(|&version| version.to_owned()).collect();
        chosen(&served)
    };
    assert_eq!(chosen(&["v1beta1", "v1", "v1beta1", "v1alpha3"]), Some("v1beta1"));
    assert_eq!(chosen(&["v2", "v1alpha3", "v1beta1"]), Some("v1beta1"));
    assert_eq!(chosen(&["v1alpha3"]), Some("v1alpha3"));
    assert_eq!(chosen(&["v2"]), None);
    assert_eq!(chosen(&[]), None);
}
