//! `country`: clients of two countries, and a database that is replaced.

use std::fs;
use std::net::SocketAddr;

use super::{anything, documented};
use crate::harness::{Proxy, until};
use maker::database;

#[path = "../../examples/country/tests/maker/mod.rs"]
mod maker;

/// A database that assigns all of loopback to a country.
pub fn database_of(country: &str) -> Vec<u8> {
    database(28, &[("::127.0.0.0", 96 + 8, country, "EU")])
}

/// The alias that loopback clients get, if any.
fn alias(proxy: &Proxy) -> Option<String> {
    let answer = proxy.query("www.example", "A");
    let records = answer.answers();
    let alias = records.iter().find(|record| record.contains("CNAME"))?;
    alias.split(' ').next_back().map(str::to_owned)
}

#[test]
fn the_documented_configuration_sends_clients_where_they_belong() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("country.mmdb");
    fs::write(&file, database_of("DE")).expect("a database");
    let upstream = anything();
    let path = file.display().to_string();
    let replaced = [
        ("/var/lib/GeoIP/GeoLite2-Country.mmdb", &*path),
        ("steer \"www.example\"", "steer \"WWW.Example\""),
    ];
    let address: SocketAddr = upstream.address;
    let proxy = Proxy::start(&documented("country", address, &replaced));
    assert_eq!(alias(&proxy).as_deref(), Some("de.www.example."));
    let new = folder.path().join("new");
    for (country, expected) in [("FR", Some("eu.www.example.")), ("AT", Some("de.www.example."))] {
        fs::write(&new, database_of(country)).expect("a database");
        fs::rename(&new, &file).expect("a database");
        until("the new database counts", || alias(&proxy).as_deref() == expected);
    }
}
