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
    pub struct Transfer in TRANSFER(0..=0): r#"transfer { to "192.0.2.7"; key "transfers.example.org"; notify "192.0.2.7" }"#;

    /// Clients that may transfer the zone; all others get REFUSED.
    list "to"(1..=256) to: Vec<Network> = ("required": "192.0.2.0/24" "2001:db8::7") in network(RECEIVERS), "networks or addresses";
    /// Transfers must be signed with it; replies and NOTIFY messages are signed too.
    hand "key" key: Option<Key> = none in KEY, "the name of a [`tsig`](#tsig)";
    /// Secondaries that get NOTIFY (RFC 1996) when the zone changes and at each start; sent up to five times. The default
    /// port is 53.
    list "notify"(1..=64) notify: Vec<SocketAddr> = ("none": "192.0.2.7" "[2001:db8::7]:5353") in address(DNS_PORT), "addresses";
}

pub(super) const KEY: Table<()> = Table::plain(1..=1, r#"key "transfers.example.org""#);

/// Decodes `transfer` among the nodes of a source, if present.
pub(super) fn decode(decoder: &mut Decoder, keys: &[Key], nodes: &[KdlNode]) -> Option<Transfer> {
    let node = child(nodes, "transfer")?;
    let mut transfer = TRANSFER.read(decoder, node);
    let nodes = block(node);
    if child(nodes, "to").is_none() {
        decoder.report(node, "this `transfer` has no `to`", TRANSFER.shape.help());
    }
    transfer.key = key(decoder, keys, nodes);
    Some(transfer)
}

/// The help for those that may transfer the zone.
const RECEIVERS: &str = "write a network or an address: \"192.0.2.0/24\", \"2001:db8::7\"";

/// Looks up the key that `key "NAME"` names.
pub(super) fn key(decoder: &mut Decoder, keys: &[Key], nodes: &[KdlNode]) -> Option<Key> {
    let name = decoder.scalar(nodes, KEY.shape.example, zone_name)?;
    let known = keys.iter().find(|key| key.name().to_string() == name);
    if known.is_none() {
        let node = child(nodes, "key")?;
        let help = format!("define it: tsig {name:?} {{ secret (file)\"PATH\" }}");
        decoder.report(value_span(node), format!("there is no key {name}"), help);
    }
    known.cloned()
}
