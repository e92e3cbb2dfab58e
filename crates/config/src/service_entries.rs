//! `service-entries`: serves the hosts of Istio's `ServiceEntry` objects.

use std::time::Duration;

use kdl::KdlNode;

use super::clients::network;
use super::decode::Decoder;
use super::kubernetes::{KUBECONFIG, Kubeconfig, label, selector};
use super::name::zone_name;
use super::network::Network;
use super::units::{duration, ms, s, size, ttl};
use super::words::{Table, words};

words! {
    /// `service-entries { … }`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct ServiceEntries in SERVICE_ENTRIES(0..=0): r#"service-entries { range "240.240.0.0/16" }"#;

    /// Only objects in these namespaces. Without it, `check` warns: anyone who may write a ServiceEntry can answer any
    /// client's queries.
    list "namespaces"(1..=256) namespaces: Vec<String> = ("all": "default" "shop") in label, "names";
    /// Only hosts at or below these names.
    list "hosts"(1..=256) hosts: Vec<String> = ("all": "example.com" "example.org") in zone_name, "names";
    /// Networks from which hosts without an address get one.
    table "range" ranges: Vec<Network> = ("none") in RANGE, "networks, one per family";
    /// Only objects with these labels.
    one "labels" labels: Option<String> = ("all": "team=shop") in selector, "a label selector";
    /// TTL of the answers.
    one "ttl" ttl: Duration = "30s" in ttl(s(0)..=s(3600));
    /// As in [`kubernetes`](#kubernetes).
    table "kubeconfig" kubeconfig: Option<Kubeconfig> = (none: "the pod's service account") in KUBECONFIG, "a path";
    /// How long `/ready` may fail until the objects have been listed.
    one "wait" wait: Duration = "10s" in duration(ms(0)..=s(3600));
    /// Memory for the objects. A new or changed object that does not fit is ignored and reported.
    one "memory" memory: usize = "16MiB" in size(1 << 20..=1 << 30);
    besides {
        /// Names that others answer for, with everything below them: those of other zones, of other sources
        /// in this zone, and of the cluster.
        taken: Vec<String>;
    }
}

const RANGE: Table<Vec<Network>> = Table::of_values(
    1..=2,
    r#"range "240.240.0.0/16" "2001:db8:f0f0::/96""#,
    read_ranges,
);

/// The fewest host bits of a range: some addresses must be left besides the first and the last.
const FREE: u8 = 2;

/// The ranges for hosts without addresses: at most one per family.
fn read_ranges(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Vec<Network> {
    const HELP: &str = "write a network of unused addresses: \"240.240.0.0/16\"";
    let mut ranges: Vec<Network> = Vec::new();
    for (range, span) in decoder.values_at(node, network(HELP)) {
        let width = if range.address.is_ipv4() { 32 } else { 128 };
        if range.length > width - FREE {
            decoder.report(span, format!("{range} is too small a range"), HELP);
        }
        let is_same = |other: &Network| other.address.is_ipv4() == range.address.is_ipv4();
        if ranges.iter().any(is_same) {
            let problem = format!("{range} is a second range of its family");
            decoder.report(span, problem, "keep one of them");
        }
        ranges.push(range);
    }
    ranges
}
