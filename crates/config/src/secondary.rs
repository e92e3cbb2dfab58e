//! `secondary`: a zone transferred from other servers.

use std::net::SocketAddr;
use std::time::Duration;

use kdl::KdlNode;

use super::address::{DNS_PORT, address};
use super::decode::Decoder;
use super::kubernetes::FALLTHROUGH;
use super::transfer::{self, Transfer};
use super::units::{duration, ms, s, size};
use super::words::words;
use crate::dns::tsig::Key;

words! {
    /// `secondary "ADDRESS"… { … }`: a zone transferred from other servers.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Secondary in SECONDARY(1..=16): r#"secondary "192.0.2.1" "192.0.2.2" { key "transfers.example.org" }"#,
        then finish;

    /// The primaries, asked in order until one has a newer zone; the sender of a NOTIFY is first; the default
    /// port is 53.
    values "ADDRESS" primaries: Vec<SocketAddr> = ("required"), "addresses";
    /// Signs requests; unsigned answers are refused.
    table "key" key: Option<Key> = ("none") in transfer::KEY, "the name of a [`tsig`](#tsig)";
    /// As in [`file`](#file).
    table "fallthrough" fallthrough: Vec<String> = ("off") in FALLTHROUGH, "names";
    /// Memory for each zone, and largest size of a transfer. A transfer needs four times as much.
    one "memory" memory: usize = "64MiB" in size(1 << 10..=1 << 36);
    /// How long a refresh from one primary may take.
    one "time" time: Duration = "10m" in duration(s(1)..=s(86_400));
    /// How long `/ready` may fail, and a reload may wait, until the first transfer is complete.
    one "wait" wait: Duration = "1m" in duration(ms(0)..=s(3600));
    /// Who may transfer the zones from dnsweir.
    table "transfer" transfer: Option<Transfer> = none in transfer::TRANSFER, "as in [`file`](#transfer)";
    besides {
        /// The zones: each name of the `zone` block, in lower case with a final dot.
        origins: Vec<String>;
    }
}

fn finish(decoder: &mut Decoder, node: &KdlNode, secondary: &mut Secondary) {
    secondary.primaries = decoder.values(node, address(DNS_PORT));
    secondary.origins.clone_from(&decoder.around.zones);
}
