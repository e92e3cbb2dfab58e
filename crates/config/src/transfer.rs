//! `transfer`: which clients may transfer a zone, and which servers are notified of changes.

use std::net::SocketAddr;

use kdl::KdlNode;

use super::address::{DNS_PORT, address};
use super::clients::network;
use super::decode::{Decoder, block, child, value_span};
use super::name::zone_name;
use super::network::Network;
use super::words::{Table, words};
use crate::dns::tsig::Key;

words! {
    /// `transfer { … }`: which clients may transfer a zone, and which servers are notified of changes.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Transfer in TRANSFER(0..=0): r#"transfer { to "192.0.2.7"; key "transfers.example.org"; notify "192.0.2.7" }"#,
        then require_to;

    /// Clients that may transfer the zone; all others get REFUSED.
    list "to"(1..=256) to: Vec<Network> = ("required": "192.0.2.0/24" "2001:db8::7") in network(RECEIVERS), "networks or addresses";
    /// Transfers must be signed with it; replies and NOTIFY messages are signed too.
    table "key" key: Option<Key> = ("none") in KEY, "the name of a [`tsig`](#tsig)";
    /// Secondaries that get NOTIFY (RFC 1996) when the zone changes and at each start; sent up to five times. The default
    /// port is 53.
    list "notify"(1..=64) notify: Vec<SocketAddr> = ("none": "192.0.2.7" "[2001:db8::7]:5353") in address(DNS_PORT), "addresses";
}

/// A key, by its name.
pub(super) const KEY: Table<Option<Key>> =
    Table::of_values(1..=1, r#"key "transfers.example.org""#, find_key);

/// The help for those that may transfer the zone.
const RECEIVERS: &str = "write a network or an address: \"192.0.2.0/24\", \"2001:db8::7\"";

fn require_to(decoder: &mut Decoder, node: &KdlNode, _: &mut Transfer) {
    if child(block(node), "to").is_none() {
        decoder.report(node, "this `transfer` has no `to`", TRANSFER.shape.help());
    }
}

fn find_key(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Option<Key> {
    let name = decoder.argument(node, zone_name)?;
    let mut keys = decoder.around.keys.iter();
    let known = keys.find(|key| key.name().to_string() == name).cloned();
    if known.is_none() {
        let help = format!("define it: tsig {name:?} {{ secret (file)\"PATH\" }}");
        decoder.report(value_span(node), format!("there is no key {name}"), help);
    }
    known
}
