//! `service-entries`: hosts of Istio's `ServiceEntry` objects.

use std::net::IpAddr;

use kdl::KdlNode;

use super::clients::network;
use super::decode::{Mistakes, Shape, arguments, block, child};
use super::error::Diagnostic;
use super::forward::Place;
use super::kubernetes::{DOMAIN, NAMESPACES, kubeconfig, label, selector};
use super::name::zone_name;
use super::units::{duration, ms, s, size, ttl};
use super::{Network, ServiceEntries, SourceConfig, Stage, Zone};

pub(super) const SERVICE_ENTRIES: Shape = Shape {
    example: r#"service-entries { range "240.240.0.0/16" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &[
        "namespaces",
        "hosts",
        "range",
        "labels",
        "ttl",
        "kubeconfig",
        "wait",
        "memory",
    ],
    repeated: &[],
};

pub(super) const HOSTS: Shape = Shape::plain(1..=256, r#"hosts "example.com" "example.org""#);

pub(super) const RANGE: Shape = Shape::plain(1..=2, r#"range "240.240.0.0/16" "2001:db8:f0f0::/96""#);

/// Bits that a range leaves free at least: without its first and last address, some are left.
const FREE: u8 = 2;

/// Decodes `service-entries`.
pub(super) fn decode(mistakes: &mut Mistakes, place: &Place<'_>, node: &KdlNode) -> ServiceEntries {
    mistakes.check(node, &SERVICE_ENTRIES);
    let nodes = block(node);
    ServiceEntries {
        namespaces: mistakes
            .list(nodes, "namespaces", &NAMESPACES, label)
            .unwrap_or_default(),
        hosts: mistakes
            .list(nodes, "hosts", &HOSTS, zone_name)
            .unwrap_or_default(),
        taken: Vec::new(),
        ranges: ranges(mistakes, nodes),
        labels: mistakes.scalar(nodes, r#"labels "team=shop""#, selector),
        ttl: mistakes
            .scalar(nodes, r#"ttl "30s""#, ttl(s(0)..=s(3600)))
            .unwrap_or(s(30)),
        kubeconfig: kubeconfig(mistakes, place.folder, nodes),
        wait: mistakes
            .scalar(nodes, r#"wait "10s""#, duration(ms(0)..=s(3600)))
            .unwrap_or(s(10)),
        memory: mistakes
            .scalar(nodes, r#"memory "16MiB""#, size(1 << 20..=1 << 30))
            .unwrap_or(16 << 20),
    }
}

/// Notes, for the stages of all zones, which names others answer for.
pub(super) fn note_taken(zones: &mut [Zone]) {
    for at in 0..zones.len() {
        let is_one = |stage: &Stage| matches!(stage, Stage::Source(SourceConfig::ServiceEntries(_)));
        if !zones[at].stages.iter().any(is_one) {
            continue;
        }
        let others = zones.iter().enumerate().filter(|(other, _)| *other != at);
        let others = others.flat_map(|(_, zone)| zone.names.iter().cloned());
        let beside = zones[at].stages.iter().filter_map(|stage| match stage {
            Stage::Source(source) => Some(source.origins()),
            _ => None,
        });
        let mut taken: Vec<String> = others.chain(beside.flatten()).collect();
        taken.push(DOMAIN.to_owned());
        taken.retain(|name| name != ".");
        taken.sort_unstable();
        taken.dedup();
        for stage in &mut zones[at].stages {
            if let Stage::Source(SourceConfig::ServiceEntries(entries)) = stage {
                entries.taken.clone_from(&taken);
            }
        }
    }
}

/// Where hosts without addresses have theirs: in one range of each family at most.
fn ranges(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> Vec<Network> {
    const HELP: &str = "write a network of addresses that nobody has: \"240.240.0.0/16\"";
    let Some(node) = child(nodes, "range") else {
        return Vec::new();
    };
    mistakes.check(node, &RANGE);
    let mut ranges: Vec<Network> = Vec::new();
    for entry in arguments(node) {
        let Some(range) = mistakes.value("range", entry, |value: &_| network(value, HELP)) else {
            continue;
        };
        let span = entry.span().into();
        let width = if range.address.is_ipv4() { 32 } else { 128 };
        if range.length > width - FREE {
            let small = Diagnostic::new(span, format!("{range} is too small a range"));
            mistakes.push(small.help(HELP));
        }
        let is_same = |other: &Network| {
            matches!(
                (other.address, range.address),
                (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_))
            )
        };
        if ranges.iter().any(is_same) {
            let second = Diagnostic::new(span, format!("{range} is a second range of its family"));
            mistakes.push(second.help("keep one of them"));
        }
        ranges.push(range);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, in_zone, problems, zone};
    use super::*;

    fn read(text: &str) -> ServiceEntries {
        match zone(text).stages.into_iter().next() {
            Some(Stage::Source(SourceConfig::ServiceEntries(entries))) => entries,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_word_is_read() {
        let none = ServiceEntries {
            namespaces: vec![],
            hosts: vec![],
            taken: vec!["cluster.local.".into()],
            ranges: vec![],
            labels: None,
            ttl: s(30),
            kubeconfig: None,
            wait: s(10),
            memory: 16 << 20,
        };
        assert_eq!(read("service-entries; forward \"192.0.2.1\""), none);
        let all = read(
            "service-entries { namespaces \"mesh\" \"shop\"; hosts \"Example.com\"; range \"240.240.0.0/16\" \"2001:db8::/96\"; labels \"a=b\"; ttl \"5s\"; wait \"1s\"; memory \"1MiB\" }\n\
             forward \"192.0.2.1\"",
        );
        let ranges: Vec<String> = all.ranges.iter().map(ToString::to_string).collect();
        assert_eq!(ranges, ["240.240.0.0/16", "2001:db8::/96"]);
        assert_eq!(
            (all.namespaces, all.hosts),
            (vec!["mesh".into(), "shop".into()], vec!["example.com.".into()])
        );
        let rest = (all.labels.as_deref(), all.ttl, all.wait, all.memory);
        assert_eq!(rest, (Some("a=b"), s(5), s(1), 1 << 20));
    }

    #[test]
    fn names_that_others_answer_for_are_known() {
        let config = config(
            "listen \"127.0.0.1\"\nzone \".\" { service-entries; forward \"192.0.2.1\" }\n\
             zone \"b.example\" { service-entries; kubernetes { domain \"k8s.example\"; fallthrough }; forward \"192.0.2.1\" }",
        );
        let taken = config.zones.iter().map(|zone| match &zone.stages[0] {
            Stage::Source(SourceConfig::ServiceEntries(entries)) => entries.taken.clone(),
            other => panic!("{other:?}"),
        });
        let taken: Vec<Vec<String>> = taken.collect();
        assert_eq!(taken[0], ["b.example.", "cluster.local."]);
        assert_eq!(taken[1], ["cluster.local.", "k8s.example."]);
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("service-entries { range }", "`range` needs a value"),
            (
                "service-entries { range \"240.240.0.1/16\" }",
                "`range`: \"240.240.0.1/16\" has bits set after its prefix",
            ),
            (
                "service-entries { range \"192.0.2.0/31\" }",
                "192.0.2.0/31 is too small a range",
            ),
            (
                "service-entries { range \"192.0.2.0/24\" \"240.240.0.0/16\" }",
                "240.240.0.0/16 is a second range of its family",
            ),
            (
                "service-entries { labels \" \" }",
                "`labels`: \" \" is not a label selector",
            ),
        ] {
            let text = format!("{text}; forward \"192.0.2.1\"");
            assert_eq!(problems(&in_zone(&text)), [expected], "{text}");
        }
        let named =
            "listen \"127.0.0.1\"\nzone \".\" { forward \"192.0.2.1\" }\nsource \"a\" { service-entries }";
        assert_eq!(
            problems(named),
            ["`service-entries` answers for the names of a zone, and a named source has none"]
        );
    }
}
