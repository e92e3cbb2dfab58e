//! Databases of each kind, built here, and clients from everywhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod maker;

use std::fs;
use std::net::{IpAddr, SocketAddr};

use dnsweir_filter::test::{self, Running, node};
use dnsweir_filter::{Type, Verdict};
use example_country::Country;
use maker::database;

fn start(database: &[u8]) -> Result<Running<Country>, Vec<test::Mistake>> {
    let rules = node("steer")
        .arg("www.example")
        .child(node("country").arg("de.www.example").arg("DE").arg("AT"))
        .child(node("continent").arg("eu.www.example").arg("EU"));
    test::start::<Country>([node("database").arg(test::data(database)), rules])
}

/// Documentation networks, which are not in any real country.
const NETWORKS: [(&str, u32, &str, &str); 4] = [
    ("::198.51.100.0", 96 + 24, "DE", "EU"),
    ("::203.0.113.128", 96 + 25, "FR", "EU"),
    ("2001:db8:1::", 48, "AT", "EU"),
    ("2001:db8:2::", 48, "US", "NA"),
];

/// `dnsweir filter test` cannot build the database for the recorded questions, so it is in the repository.
/// `BLESS=1` rewrites it.
#[test]
fn the_recorded_questions_are_about_the_database_that_is_made_here() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/networks.mmdb");
    let made = database(28, &NETWORKS);
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, &made).unwrap();
    }
    assert!(fs::read(file).unwrap() == made, "{file} is another database");
}

#[test]
fn clients_are_sent_where_they_come_from() {
    for record in [24, 28, 32] {
        let mut filter = start(&database(record, &NETWORKS)).unwrap();
        let mut ask = |client: &str, name: &str| {
            let client: IpAddr = client.parse().unwrap();
            filter.query(&test::query(name, Type::A).client(SocketAddr::from((client, 1053))))
        };
        let to = |name: &str| Verdict::alias(name.parse().unwrap());
        assert_eq!(
            ask("198.51.100.7", "www.example"),
            to("de.www.example"),
            "{record}"
        );
        assert_eq!(ask("203.0.113.200", "www.example"), to("eu.www.example"));
        assert_eq!(ask("2001:db8:1::1", "www.example"), to("de.www.example"));
        for client in ["2001:db8:2::1", "203.0.113.7", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(ask(client, "www.example"), Verdict::pass(), "{client}");
        }
        assert_eq!(ask("198.51.100.7", "a.www.example"), Verdict::pass());
    }
}

/// Whatever it contains, a broken database is refused or has no results.
#[test]
fn broken_databases_do_no_harm() {
    let whole = database(24, &[("::198.51.100.0", 96 + 24, "DE", "EU")]);
    assert_eq!(
        start(&whole[..whole.len() - 1]).unwrap_err()[0].message,
        "the first argument of `database` must be a database in MaxMind's format, not (data)"
    );
    let client = SocketAddr::from(([198, 51, 100, 7], 1053));
    let query = test::query("www.example", Type::A).client(client);
    for octet in 0..whole.len() {
        let mut broken = whole.clone();
        broken[octet] ^= 0xff;
        if let Ok(mut filter) = start(&broken) {
            let _ = filter.query(&query);
        }
    }
}
