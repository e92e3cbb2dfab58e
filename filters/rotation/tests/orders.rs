//! The order for each name.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Rdata, ResponseEdit, ResponseVerdict, Type, Verdict};
use dnsweir_filter_rotation::Rotation;

const HOUR: Duration = Duration::from_secs(3600);

fn start(config: impl IntoIterator<Item = Node>) -> Running<Rotation> {
    test::start(config).unwrap()
}

fn ask(filter: &mut Running<Rotation>, client: &str, name: &str) -> Verdict {
    let client = SocketAddr::new(client.parse().unwrap(), 1053);
    filter.query(&test::query(name, Type::A).client(client))
}

fn random() -> Verdict {
    Verdict::pass()
        .edit(ResponseEdit::new().shuffle())
        .skip_response()
        .remember(HOUR)
}

#[test]
fn the_order_is_random_unless_something_else_is_said() {
    assert_eq!(ask(&mut start([]), "192.0.2.1", "www.test"), random());
    let orders = [
        node("order").arg("random"),
        node("order").arg("as-is").arg("mail.test").arg("ns.test"),
    ];
    let mut filter = start(orders);
    assert_eq!(ask(&mut filter, "192.0.2.1", "www.test"), random());
    for name in ["mail.test", "a.ns.test"] {
        assert_eq!(
            ask(&mut filter, "192.0.2.1", name),
            Verdict::pass().skip_response().remember(HOUR)
        );
    }
}

/// The last bytes of an answer's addresses in their new order; `addresses` is the original order.
fn order(filter: &mut Running<Rotation>, client: &str, addresses: &[u8]) -> Vec<u8> {
    let alias = Rdata::Cname("real.shop.test.".parse().unwrap());
    let data = addresses
        .iter()
        .map(|&last| Rdata::A([198, 51, 100, last].into()));
    let records = [alias].into_iter().chain(data).map(|data| ("shop.test", data));
    let client = SocketAddr::new(client.parse().unwrap(), 1053);
    let query = test::query("shop.test", Type::A).client(client);
    let verdict = filter.response(&test::response(query).records(records));
    let permutations = permutations(addresses.len());
    let found = permutations.into_iter().find(|order| {
        let indexes = [0].into_iter().chain(order.iter().map(|&index| index as u32 + 1));
        verdict == ResponseVerdict::edit(ResponseEdit::new().permute(indexes))
    });
    found.unwrap().into_iter().map(|index| addresses[index]).collect()
}

fn permutations(length: usize) -> Vec<Vec<usize>> {
    match length {
        0 => vec![Vec::new()],
        _ => permutations(length - 1)
            .into_iter()
            .flat_map(|shorter| {
                (0..length).map(move |at| {
                    let mut longer = shorter.clone();
                    longer.insert(at, length - 1);
                    longer
                })
            })
            .collect(),
    }
}

#[test]
fn a_client_and_its_network_see_the_same_address_first() {
    let mut filter = start([
        node("order").arg("affinity").arg("shop.test"),
        node("prefix").prop("ipv4", 24).prop("ipv6", 64),
    ]);
    let mut order = |client: &str, addresses: &[u8]| order(&mut filter, client, addresses);
    let first = order("192.0.2.1", &[1, 2, 3, 4]);
    for upstream in [[1, 2, 3, 4], [4, 3, 2, 1], [3, 1, 4, 2]] {
        assert_eq!(order("192.0.2.200", &upstream), first);
    }
    // Removing an address moves only the clients that had it first.
    let rest: Vec<u8> = first.iter().copied().filter(|last| *last != first[3]).collect();
    assert_eq!(order("192.0.2.1", &rest), rest);
    let firsts = (0..40).map(|third| order(&format!("192.0.{third}.1"), &[1, 2, 3, 4])[0]);
    let firsts: HashSet<u8> = firsts.collect();
    assert_eq!(firsts.len(), 4, "clients spread over all");
}

#[test]
fn mistakes_are_told() {
    let mistakes = test::start::<Rotation>([node("order").arg("sorted")])
        .err()
        .unwrap();
    assert_eq!(
        mistakes[0].message,
        "the first argument of `order` must be an order, not \"sorted\""
    );
}
