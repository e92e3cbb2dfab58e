//! `kubernetes`: the records of a cluster.

use std::path::Path;

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, arguments, block, boolean, child, head, property, text, word};
use super::error::Diagnostic;
use super::forward::{Place, is_path};
use super::name::zone_name;
use super::resolv_conf::search_list;
use super::units::{duration, ms, s, size, ttl};
use super::{External, Kubeconfig, Kubernetes, Pods, files, transfer};

pub(super) const KUBERNETES: Shape = Shape {
    example: r#"kubernetes { pods "verified"; fallthrough "in-addr.arpa" "ip6.arpa" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &[
        "domain",
        "pods",
        "namespaces",
        "namespace-labels",
        "labels",
        "endpoint-pod-names",
        "ignore-empty-services",
        "ttl",
        "multicluster",
        "external",
        "autopath",
        "fallthrough",
        "kubeconfig",
        "wait",
        "memory",
        "transfer",
    ],
    repeated: &[],
};

pub(super) const NAMESPACES: Shape = Shape::plain(1..=256, r#"namespaces "default" "shop""#);
pub(super) const FALLTHROUGH: Shape = Shape::plain(0..=256, r#"fallthrough "in-addr.arpa" "ip6.arpa""#);
pub(super) const MULTICLUSTER: Shape = Shape::plain(1..=16, r#"multicluster "clusterset.local""#);
pub(super) const EXTERNAL: Shape = Shape {
    example: r#"external "example.org" headless=#true"#,
    arguments: 1..=16,
    properties: &["headless", "apex"],
    children: &[],
    repeated: &[],
};
pub(super) const AUTOPATH: Shape = Shape::plain(0..=MOST_SEARCHED, r#"autopath "corp.example""#);
pub(super) const KUBECONFIG: Shape = Shape {
    example: r#"kubeconfig "/etc/dnsweir/kubeconfig" context="lab""#,
    arguments: 1..=1,
    properties: &["context"],
    children: &[],
    repeated: &[],
};

/// With it, some questions are left to the stages below.
pub(super) const PASSES_ON: [&str; 1] = ["fallthrough"];

const PODS: [(&str, Pods); 3] = [
    ("disabled", Pods::Disabled),
    ("insecure", Pods::Insecure),
    ("verified", Pods::Verified),
];

/// The domain of a cluster that was given no other.
pub(super) const DOMAIN: &str = "cluster.local.";

/// Domains that pods search in, besides those of the cluster: with them and the name alone, as many as a filter may list.
const MOST_SEARCHED: usize = 29;

/// What a kubeconfig has at most, in octets.
const LONGEST_KUBECONFIG: u64 = 1 << 20;

/// Decodes `kubernetes` in a zone with these names.
pub(super) fn decode(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    zones: &[String],
    node: &KdlNode,
) -> Kubernetes {
    mistakes.check(node, &KUBERNETES);
    let nodes = block(node);
    let pods = mistakes
        .scalar(nodes, r#"pods "disabled""#, word(&PODS))
        .unwrap_or_default();
    let domain = mistakes.scalar(nodes, r#"domain "cluster.local""#, zone_name);
    let external = external(mistakes, zones, nodes);
    let multicluster = match child(nodes, "multicluster") {
        Some(node) => {
            mistakes.check(node, &MULTICLUSTER);
            own_names(mistakes, zones, node)
        }
        None => Vec::new(),
    };
    let is_other = |zone: &String| {
        let others = external.iter().flat_map(|external| &external.zones);
        others.chain(&multicluster).any(|other| other == zone)
    };
    let own = || {
        zones
            .iter()
            .find(|zone| *zone != "." && !is_reverse(zone) && !is_other(zone))
            .cloned()
    };
    let domain = domain.or_else(own).unwrap_or_else(|| DOMAIN.to_owned());
    Kubernetes {
        domain,
        pods,
        namespaces: mistakes
            .list(nodes, "namespaces", &NAMESPACES, label)
            .unwrap_or_default(),
        namespace_labels: mistakes.scalar(nodes, r#"namespace-labels "team=shop""#, selector),
        labels: mistakes.scalar(nodes, r#"labels "tier in (web, api)""#, selector),
        endpoint_pod_names: mistakes.switch(nodes, "endpoint-pod-names"),
        ignore_empty_services: mistakes.switch(nodes, "ignore-empty-services"),
        ttl: mistakes
            .scalar(nodes, r#"ttl "5s""#, ttl(s(0)..=s(3600)))
            .unwrap_or(s(5)),
        multicluster,
        external,
        autopath: autopath(mistakes, place, nodes, pods),
        fallthrough: fallthrough(mistakes, nodes),
        kubeconfig: kubeconfig(mistakes, place.folder, nodes),
        wait: mistakes
            .scalar(nodes, r#"wait "1m""#, duration(ms(0)..=s(3600)))
            .unwrap_or(s(60)),
        memory: mistakes
            .scalar(nodes, r#"memory "256MiB""#, size(1 << 20..=1 << 36))
            .unwrap_or(256 << 20),
        transfer: transfer::decode(mistakes, place.keys, nodes),
    }
}

/// The zones of services' outside addresses.
fn external(mistakes: &mut Mistakes, zones: &[String], nodes: &[KdlNode]) -> Option<External> {
    let node = child(nodes, "external")?;
    mistakes.check(node, &EXTERNAL);
    let headless = property(node, "headless").and_then(|entry| mistakes.value("headless", entry, boolean));
    let apex = property(node, "apex").and_then(|entry| mistakes.value("apex", entry, label));
    Some(External {
        zones: own_names(mistakes, zones, node),
        headless: headless.unwrap_or_default(),
        apex: apex.unwrap_or_else(|| "dns".to_owned()),
    })
}

/// The names that a node has, of which queries come to the zone.
fn own_names(mistakes: &mut Mistakes, zones: &[String], node: &KdlNode) -> Vec<String> {
    let word = node.name().value();
    let mut names = Vec::new();
    for entry in arguments(node) {
        let Some(name) = mistakes.value(word, entry, zone_name) else {
            continue;
        };
        let is_in = |zone: &String| zone == "." || name == *zone || name.ends_with(&format!(".{zone}"));
        if !zones.iter().any(is_in) {
            let problem = format!("`{word}`: no query for {name} comes to this zone");
            let lost = Diagnostic::new(entry.span().into(), problem);
            mistakes.push(lost.help(format!("write the name behind `zone`, too: zone {name:?}")));
        }
        names.push(name);
    }
    names
}

/// What pods search in after the domains of the cluster.
fn autopath(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    nodes: &[KdlNode],
    pods: Pods,
) -> Option<Vec<String>> {
    let node = child(nodes, "autopath")?;
    mistakes.check(node, &AUTOPATH);
    if pods != Pods::Verified {
        let unknown = Diagnostic::new(head(node), "`autopath` has to know which pod asks");
        mistakes.push(unknown.help("write `pods \"verified\"` beside it"));
    }
    let mut domains = Vec::new();
    for entry in arguments(node) {
        match entry.value().as_string().filter(|text| is_path(text)) {
            Some(path) => domains.extend(search_list_of(mistakes, place, entry, path)),
            None => domains.extend(mistakes.value("autopath", entry, zone_name)),
        }
    }
    if domains.len() > MOST_SEARCHED {
        let problem = format!("{} domains are too many to search in", domains.len());
        mistakes.push(Diagnostic::new(head(node), problem).help(format!("at most {MOST_SEARCHED}")));
    }
    Some(domains)
}

/// The search list of a resolv.conf. What is no domain there is nothing that pods search in.
fn search_list_of(
    mistakes: &mut Mistakes,
    place: &mut Place<'_>,
    entry: &KdlEntry,
    path: &str,
) -> Vec<String> {
    let path = place.folder.join(path);
    place.files.note(&path);
    let list = search_list(&path).unwrap_or_else(|problem| {
        let unusable = Diagnostic::new(entry.span().into(), format!("{}: {problem}", path.display()));
        mistakes.push(unusable.help("name a resolv.conf, or write the domains here"));
        Vec::new()
    });
    let names = list.into_iter().map(KdlValue::String);
    names.filter_map(|name| zone_name(&name).ok()).collect()
}

/// Below which names what does not exist is left to the next stage.
pub(super) fn fallthrough(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> Vec<String> {
    match mistakes.list(nodes, "fallthrough", &FALLTHROUGH, zone_name) {
        // Without names: whatever it is.
        Some(names) if names.is_empty() => vec![".".to_owned()],
        names => names.unwrap_or_default(),
    }
}

pub(super) fn kubeconfig(mistakes: &mut Mistakes, folder: &Path, nodes: &[KdlNode]) -> Option<Kubeconfig> {
    let node = child(nodes, "kubeconfig")?;
    mistakes.check(node, &KUBECONFIG);
    let path = folder.join(mistakes.argument(node, text)?);
    if let Err(error) = files::read(&path, LONGEST_KUBECONFIG) {
        let span = arguments(node)
            .next()
            .map_or(head(node), |entry| entry.span().into());
        let problem = format!("{}: cannot be read: {error}", path.display());
        mistakes.push(Diagnostic::new(span, problem).help("name a kubeconfig file that dnsweir may read"));
    }
    let context = property(node, "context").and_then(|entry| mistakes.value("context", entry, text));
    Some(Kubeconfig { path, context })
}

/// The name of a namespace, or another label.
pub(super) fn label(value: &KdlValue) -> Result<String, Wrong> {
    let name = text(value)?;
    let allowed = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-';
    match name.len() {
        1..=63 if name.bytes().all(allowed) => Ok(name),
        _ => Err(Wrong::new(
            "is not a label",
            "it has lower-case letters, digits and hyphens, 63 at most",
        )),
    }
}

/// A label selector. What is wrong with it inside, the API server says.
pub(super) fn selector(value: &KdlValue) -> Result<String, Wrong> {
    let selector = text(value)?;
    let has_name = selector.bytes().any(|octet| octet.is_ascii_alphanumeric());
    match has_name && !selector.contains(|letter: char| letter.is_control()) {
        true => Ok(selector),
        false => Err(Wrong::new(
            "is not a label selector",
            "write it as for `kubectl -l`: \"app=web,tier in (front, back)\"",
        )),
    }
}

/// Whether names in a zone are those of addresses.
fn is_reverse(zone: &str) -> bool {
    let dotted = format!(".{zone}");
    [".in-addr.arpa.", ".ip6.arpa."]
        .iter()
        .any(|end| dotted.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, in_zone, problems, zone};
    use super::super::{SourceConfig, Stage};
    use super::*;

    fn kubernetes(stages: Vec<Stage>) -> Kubernetes {
        match stages.into_iter().next() {
            Some(Stage::Source(SourceConfig::Kubernetes(kubernetes))) => kubernetes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_has_a_default() {
        assert_eq!(
            kubernetes(zone("kubernetes").stages),
            Kubernetes {
                domain: "cluster.local.".into(),
                pods: Pods::Disabled,
                namespaces: vec![],
                namespace_labels: None,
                labels: None,
                endpoint_pod_names: false,
                ignore_empty_services: false,
                ttl: s(5),
                multicluster: vec![],
                external: None,
                autopath: None,
                fallthrough: vec![],
                kubeconfig: None,
                wait: s(60),
                memory: 256 << 20,
                transfer: None,
            }
        );
    }

    #[test]
    fn every_word_is_read() {
        let read = kubernetes(
            zone(
                r#"kubernetes {
                    domain "Cluster.example"; pods "verified"; namespaces "a" "b"; namespace-labels "x"; labels "y=z"
                    endpoint-pod-names; ignore-empty-services; ttl "30s"; fallthrough; wait "5s"; memory "1GiB"
                    autopath "corp.example" "Eu.example."
                }
                forward "192.0.2.1""#,
            )
            .stages,
        );
        assert_eq!(
            (read.domain.as_str(), read.pods),
            ("cluster.example.", Pods::Verified)
        );
        assert_eq!(read.namespaces, ["a", "b"]);
        assert_eq!(
            (read.namespace_labels.as_deref(), read.labels.as_deref()),
            (Some("x"), Some("y=z"))
        );
        assert!(read.endpoint_pod_names && read.ignore_empty_services);
        assert_eq!((read.ttl, read.wait, read.memory), (s(30), s(5), 1 << 30));
        assert_eq!(read.fallthrough, ["."]);
        assert_eq!(read.autopath.unwrap(), ["corp.example.", "eu.example."]);
    }

    #[test]
    fn outside_addresses_have_zones_of_their_own() {
        let read = |zones: &str, text: &str| {
            let text = format!("listen \"127.0.0.1\"\nzone {zones} {{ kubernetes {{ {text} }} }}");
            kubernetes(config(&text).zones[0].stages.clone())
        };
        let both = read(
            r#""example.org" "cluster.example""#,
            r#"external "Example.org" headless=#true apex="names""#,
        );
        assert_eq!(both.domain, "cluster.example.");
        let external = |headless, apex: &str| External {
            zones: vec!["example.org.".into()],
            headless,
            apex: apex.into(),
        };
        assert_eq!(both.external, Some(external(true, "names")));
        let alone = read(r#""org""#, r#"domain "cluster.local"; external "example.org""#);
        assert_eq!(alone.external, Some(external(false, "dns")));
    }

    #[test]
    fn several_clusters_have_domains_of_their_own() {
        let text = "listen \"127.0.0.1\"\nzone \"clusterset.local\" \"c.example\" { kubernetes { multicluster \"Clusterset.local\" } }";
        let read = kubernetes(config(text).zones[0].stages.clone());
        assert_eq!(
            (read.domain.as_str(), &*read.multicluster),
            ("c.example.", &["clusterset.local.".to_owned()][..])
        );
    }

    /// The names of services end in the first zone that is not for addresses.
    #[test]
    fn the_domain_is_that_of_its_zone() {
        for (zones, expected) in [
            (r#""10.in-addr.arpa" "cluster.example" "x""#, "cluster.example."),
            (r#""in-addr.arpa" "ip6.arpa""#, "cluster.local."),
        ] {
            let config = config(&format!("listen \"127.0.0.1\"\nzone {zones} {{ kubernetes }}"));
            let stages = config.zones[0].stages.clone();
            assert_eq!(kubernetes(stages).domain, expected);
        }
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("kubernetes \"cluster.local\"", "`kubernetes` takes no values"),
            (
                "kubernetes { pods \"some\" }",
                "`pods`: \"some\" is not a valid value",
            ),
            (
                "kubernetes { namespaces \"A.b\" }",
                "`namespaces`: \"A.b\" is not a label",
            ),
            ("kubernetes { namespaces }", "`namespaces` needs a value"),
            (
                "kubernetes { labels \" \" }",
                "`labels`: \" \" is not a label selector",
            ),
            ("kubernetes { ttl \"2h\" }", "`ttl`: \"2h\" is out of range"),
            (
                "kubernetes; forward \"192.0.2.1\"",
                "no query reaches this `forward`",
            ),
            ("kubernetes { external }", "`external` needs a value"),
            (
                "kubernetes { external \"example.org\" apex=\"a.b\" }",
                "`apex`: \"a.b\" is not a label",
            ),
            ("kubernetes { autopath }", "`autopath` has to know which pod asks"),
            (
                "cache; kubernetes { pods \"verified\"; autopath }",
                "`autopath` decides by who asks, and stands below `cache`: what is kept there is for everybody",
            ),
            ("kubernetes { ttl \"1s\"; ttl \"2s\" }", "`ttl` is written twice"),
        ] {
            assert_eq!(problems(&in_zone(text)), [expected], "{text}");
        }
        let absent = problems(&in_zone("kubernetes { kubeconfig \"/none/such\" }"));
        assert!(absent[0].starts_with("/none/such: cannot be read"), "{absent:?}");
        let elsewhere =
            "listen \"127.0.0.1\"\nzone \"cluster.local\" { kubernetes { external \"example.org\" } }";
        assert_eq!(
            problems(elsewhere),
            ["`external`: no query for example.org. comes to this zone"]
        );
        let named = "listen \"127.0.0.1\"\nzone \".\" { forward \"192.0.2.1\" }\nsource \"a\" { kubernetes }";
        assert_eq!(
            problems(named),
            ["`kubernetes` answers for the names of a zone, and a named source has none"]
        );
    }
}
