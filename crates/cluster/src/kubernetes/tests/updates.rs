//! Lists and changes, and the resulting index.

use super::super::known::{Full, Known};
use super::super::objects::{Service, Slice};
use super::super::state::{Kind, State};
use super::*;
use crate::api_server::Change;

fn object<K: serde::de::DeserializeOwned, T>(
    read: fn(&Interest, K) -> Result<Reading<T>, Malformed>,
    name: &str,
    mut object: Value,
) -> Change<T> {
    object["metadata"]["name"] = name.into();
    object["metadata"]["namespace"] = "zoo".into();
    let read = read(&Interest::default(), serde_json::from_value(object).unwrap());
    Change::Object(format!("zoo/{name}").into(), read.unwrap())
}

fn service(name: &str, address: &str) -> Change<Service> {
    object(
        Interest::service,
        name,
        json!({"spec": {"clusterIP": address, "ports": [{"port": 1}]}}),
    )
}

fn slice(name: &str, service: &str, addresses: &[&str]) -> Change<Slice> {
    let labels = json!({"kubernetes.io/service-name": service});
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address]}))
        .collect();
    let slice = json!({"metadata": {"labels": labels}, "addressType": "IPv4", "endpoints": endpoints});
    object(Interest::slice, name, slice)
}

const ROOM: usize = 1 << 20;

#[test]
fn changes_change_answers_and_nothing_else() {
    let mut zoo = Zoo::new(config());
    let mut services = Known::default();
    let before = zoo.index.clone();
    for (change, changed, expected) in [
        (
            service("web", "10.0.0.1"),
            true,
            "web.zoo.svc.cluster.local. 5 IN A 10.0.0.1",
        ),
        (
            service("web", "10.0.0.1"),
            false,
            "web.zoo.svc.cluster.local. 5 IN A 10.0.0.1",
        ),
        (
            service("web", "10.0.0.2"),
            true,
            "web.zoo.svc.cluster.local. 5 IN A 10.0.0.2",
        ),
        (
            Change::Object("zoo/web".into(), Reading::Unchanged),
            false,
            "web.zoo.svc.cluster.local. 5 IN A 10.0.0.2",
        ),
        (Change::Gone("zoo/web".into()), true, "NXDOMAIN"),
        (Change::Gone("zoo/web".into()), false, "NXDOMAIN"),
    ] {
        assert_eq!(services.change(change, &mut zoo.index, ROOM), Ok(changed));
        assert_eq!(zoo.ask("web.zoo.svc", rtype::A), [expected]);
    }
    // Readers of an old index still see its state.
    zoo.index = before;
    assert_eq!(zoo.ask("web.zoo.svc", rtype::A), ["NXDOMAIN"]);
    assert_eq!((services.count(), services.octets()), (0, 0));
}

/// Objects that a list omits are removed when it ends, not before.
#[test]
fn a_list_replaces_what_is_known() {
    let mut zoo = Zoo::new(config());
    let mut services = Known::default();
    let mut take = |zoo: &mut Zoo, change| services.change(change, &mut zoo.index, ROOM).unwrap();
    take(&mut zoo, service("old", "10.0.0.1"));
    take(&mut zoo, service("both", "10.0.0.2"));
    take(&mut zoo, Change::ListBegins);
    take(&mut zoo, service("both", "10.0.0.2"));
    // The list was aborted: another one begins.
    take(&mut zoo, Change::ListBegins);
    take(&mut zoo, service("new", "10.0.0.3"));
    assert_eq!(zoo.ask("old.zoo.svc", rtype::A).len(), 1);
    assert!(take(&mut zoo, Change::ListEnds));
    for (name, there) in [("old", false), ("both", false), ("new", true)] {
        assert_eq!(
            zoo.ask(&format!("{name}.zoo.svc"), rtype::A) != ["NXDOMAIN"],
            there,
            "{name}"
        );
    }
    assert_eq!(
        zoo.ask_in("in-addr.arpa", "1.0.0.10.in-addr.arpa", rtype::PTR),
        ["NXDOMAIN"]
    );
}

/// Slices may come before or after their service, and an address may be in several.
#[test]
fn slices_and_services_come_in_any_order() {
    let mut zoo = Zoo::new(config());
    let (mut services, mut slices) = (Known::default(), Known::default());
    let mut slice = |zoo: &mut Zoo, change| slices.change(change, &mut zoo.index, ROOM).unwrap();
    slice(
        &mut zoo,
        super::updates::slice("a-1", "a", &["10.0.0.1", "10.0.0.2"]),
    );
    slice(&mut zoo, super::updates::slice("b-1", "b", &["10.0.0.1"]));
    assert_eq!(zoo.ask("a.zoo.svc", rtype::A), ["NXDOMAIN"]);
    for name in ["a", "b"] {
        services
            .change(service(name, "None"), &mut zoo.index, ROOM)
            .unwrap();
    }
    let pointers = |zoo: &Zoo| {
        zoo.ask_in("in-addr.arpa", "1.0.0.10.in-addr.arpa", rtype::PTR)
            .len()
    };
    assert_eq!((zoo.ask("a.zoo.svc", rtype::A).len(), pointers(&zoo)), (2, 2));
    // The slice now belongs to another service.
    slice(&mut zoo, super::updates::slice("b-1", "c", &["10.0.0.1"]));
    assert_eq!(zoo.ask("b.zoo.svc", rtype::A), ["NXDOMAIN"]);
    slice(&mut zoo, super::updates::slice("a-1", "a", &["10.0.0.2"]));
    assert_eq!((zoo.ask("a.zoo.svc", rtype::A).len(), pointers(&zoo)), (1, 1));
}

/// What a limit kept out comes in with the next list, once there is room.
#[test]
fn what_was_left_out_comes_in_later() {
    let mut zoo = Zoo::new(config());
    let mut slices = Known::default();
    let numbered = |n: usize| {
        let address = format!("10.0.{}.{}", n / 250, n % 250);
        slice(&format!("s{n}"), "web", &[&address])
    };
    let mut take = |zoo: &mut Zoo, change| slices.change(change, &mut zoo.index, ROOM).unwrap();
    let count = |zoo: &Zoo| zoo.index.service(b"\x03web\x03zoo").unwrap().slices().count();
    for n in 0..=1000 {
        take(&mut zoo, numbered(n));
    }
    assert_eq!(count(&zoo), 1000);
    assert!(!take(&mut zoo, numbered(1000)));
    take(&mut zoo, Change::Gone("zoo/s0".into()));
    assert_eq!(count(&zoo), 999);
    assert!(take(&mut zoo, numbered(1000)));
    assert_eq!(count(&zoo), 1000);
    assert!(!take(&mut zoo, numbered(1000)));
}

/// So does a part of it, and answers change, although there is still no room for the rest.
#[test]
fn a_part_of_what_was_left_out_comes_in_later() {
    let mut zoo = Zoo::new(config());
    let mut slices = Known::default();
    let mut take = |zoo: &mut Zoo, name: &str, addresses: &[&str]| {
        let change = slice(name, name, addresses);
        slices.change(change, &mut zoo.index, ROOM).unwrap()
    };
    let (one, two) = ("10.0.0.1", "10.0.0.2");
    for n in 0..=1000 {
        take(&mut zoo, &format!("s{n}"), &[one, two]);
    }
    let holders = |zoo: &Zoo| [one, two].map(|address| zoo.index.holders(address.parse().unwrap()).len());
    assert!(!take(&mut zoo, "s1000", &[one, two]));
    take(&mut zoo, "s0", &[two]);
    assert_eq!(holders(&zoo), [999, 1000]);
    assert!(take(&mut zoo, "s1000", &[one, two]));
    assert_eq!(holders(&zoo), [1000, 1000]);
    assert!(!take(&mut zoo, "s1000", &[one, two]));
}

/// A kind that a cluster lacks hides nothing about the others.
#[test]
fn kinds_without_a_message_are_named() {
    let state = State::new(vec![Kind::Namespaces, Kind::Services, Kind::ServiceImports]);
    assert_eq!(state.silence(), None);
    assert!(state.begins() && !state.begins());
    assert_eq!(state.heard(), "no message yet");
    assert!(state.silence().is_some(), "since it is followed");
    state.of(Kind::Services).heard();
    let told = state.heard();
    assert!(told.starts_with("last message "), "{told}");
    assert!(
        told.ends_with(" ago; none yet about namespaces, serviceimports"),
        "{told}"
    );
    state.of(Kind::Namespaces).listed();
    state.of(Kind::ServiceImports).heard();
    let told = state.heard();
    assert!(told.ends_with(" ago"), "{told}");
}

/// An object that does not fit leaves the old version, and is reported; smaller ones still fit.
#[test]
fn memory_is_bounded() {
    let mut zoo = Zoo::new(config());
    let mut slices = Known::default();
    let small = slice("s", "a", &["10.0.0.1"]);
    assert_eq!(slices.change(small, &mut zoo.index, 1000), Ok(true));
    let many: Vec<String> = (0..50).map(|n| format!("10.0.1.{n}")).collect();
    let many: Vec<&str> = many.iter().map(|address| &**address).collect();
    let room = 1000 - slices.octets();
    assert_eq!(
        slices.change(slice("s", "a", &many), &mut zoo.index, room),
        Err(Full("zoo/s".into()))
    );
    assert_eq!(
        slices.change(slice("t", "a", &many), &mut zoo.index, room),
        Err(Full("zoo/t".into()))
    );
    assert_eq!(
        slices.change(slice("s", "a", &["10.0.0.2"]), &mut zoo.index, room),
        Ok(true)
    );
    assert_eq!(
        (
            slices.count(),
            slices.change(Change::Gone("zoo/s".into()), &mut zoo.index, 0)
        ),
        (1, Ok(true))
    );
    assert_eq!(slices.octets(), 0);
}
