//! The configuration as KDL Schema describes it, for editors: <https://github.com/kdl-org/kdl/blob/main/SCHEMA-SPEC.md>.
//!
//! It is made of the [`Shape`]s by which a configuration is checked, so it cannot allow other words than they do.

use std::fmt::Write as _;

use super::decode::Shape;
use super::{
    admin, cache, clients, dnstap, encrypted, filter, forward, include, kubernetes, listen, load, module,
    node, pods, refresh, registries, secondary, service_entries, signatures, source, transfer, tsig, wasi,
    zone, zone_file,
};

/// The nodes with a shape of their own: in whose block they stand, nobody's at the top, and their name.
pub(super) const SHAPES: &[(&str, &str, &Shape)] = &[
    ("", include::NAME, &include::INCLUDE),
    ("", "listen", &listen::LISTEN),
    ("", "clients", &clients::CLIENTS),
    ("listen", "clients", &clients::OF_LISTENER),
    ("listen", "certificate", &encrypted::CERTIFICATE),
    ("zone", "clients", &clients::OF_ZONE),
    ("clients", "allow", &clients::ALLOW),
    ("clients", "refuse", &clients::ALLOW),
    ("clients", "queries", &clients::QUERIES),
    ("clients", "responses", &clients::RESPONSES),
    ("", "admin", &admin::ADMIN),
    ("", "dnstap", &dnstap::DNSTAP),
    ("dnstap", "messages", &dnstap::MESSAGES),
    ("", "registries", &registries::REGISTRIES),
    ("registries", "mirror", &registries::MIRROR),
    ("registries", "plain-http", &registries::PLAIN_HTTP),
    ("", "signatures", &signatures::SIGNATURES),
    ("signatures", "key", &signatures::KEY),
    ("signatures", "identity", &signatures::IDENTITY),
    ("", "tsig", &tsig::TSIG),
    ("tsig", "secret", &tsig::SECRET),
    ("", "filter", &filter::FILTER),
    ("filter", "signed-by", &signatures::SIGNED_BY),
    ("filter", "module", &module::MODULE),
    ("filter", "on-error", &filter::ON_ERROR),
    ("filter", "limits", &filter::LIMITS),
    ("filter", "wasi", &wasi::WASI),
    ("filter", "refresh", &refresh::REFRESH),
    ("wasi", "env", &wasi::ENV),
    ("wasi", "folder", &wasi::FOLDER),
    ("", "zone", &zone::ZONE),
    ("zone", "on", &zone::ON),
    ("zone", "from", &zone::FROM),
    ("zone", "use", &zone::USE),
    ("zone", "cache", &cache::CACHE),
    ("cache", "success", &cache::SUCCESS),
    ("cache", "denial", &cache::DENIAL),
    ("cache", "prefetch", &cache::PREFETCH),
    ("cache", "serve-stale", &cache::SERVE_STALE),
    ("zone", "forward", &forward::FORWARD),
    ("source", "forward", &forward::FORWARD),
    ("forward", "except", &forward::EXCEPT),
    ("forward", "next", &forward::NEXT),
    ("forward", "tls", &encrypted::TLS),
    ("tls", "pin", &encrypted::PIN),
    ("tls", "certificate", &encrypted::CERTIFICATE),
    ("zone", "service-entries", &service_entries::SERVICE_ENTRIES),
    ("service-entries", "namespaces", &kubernetes::NAMESPACES),
    ("service-entries", "hosts", &service_entries::HOSTS),
    ("service-entries", "range", &service_entries::RANGE),
    ("service-entries", "kubeconfig", &kubernetes::KUBECONFIG),
    ("zone", "kubernetes", &kubernetes::KUBERNETES),
    ("kubernetes", "namespaces", &kubernetes::NAMESPACES),
    ("kubernetes", "multicluster", &kubernetes::MULTICLUSTER),
    ("kubernetes", "external", &kubernetes::EXTERNAL),
    ("kubernetes", "autopath", &kubernetes::AUTOPATH),
    ("kubernetes", "fallthrough", &kubernetes::FALLTHROUGH),
    ("kubernetes", "kubeconfig", &kubernetes::KUBECONFIG),
    ("zone", "file", &zone_file::FILE),
    ("file", "fallthrough", &kubernetes::FALLTHROUGH),
    ("file", "transfer", &transfer::TRANSFER),
    ("kubernetes", "transfer", &transfer::TRANSFER),
    ("zone", "secondary", &secondary::SECONDARY),
    ("secondary", "fallthrough", &kubernetes::FALLTHROUGH),
    ("secondary", "transfer", &transfer::TRANSFER),
    ("transfer", "to", &transfer::TO),
    ("transfer", "notify", &transfer::NOTIFY),
    ("", "source", &source::SOURCE),
    ("refresh", "source", &refresh::SOURCE),
    ("", "pods", &pods::PODS),
    ("pods", "kubeconfig", &kubernetes::KUBECONFIG),
    ("", "node", &node::NODE),
    ("node", "cluster-dns", &node::CLUSTER_DNS),
    ("node", "self-test", &node::SELF_TEST),
];

/// What every other node is: a switch, or a word with one value.
const SCALAR: Shape = Shape::plain(0..=1, "");

/// The schema, as a KDL document.
pub fn schema() -> String {
    let mut text = String::from(
        "document {\n    info {\n        title \"dnsweir's configuration\" lang=\"en\"\n        \
         link \"https://github.com/kdl-org/kdl/blob/main/SCHEMA-SPEC.md\" rel=\"documentation\"\n    }\n",
    );
    // It may stand anywhere else, too, which a schema can only say for each block.
    let sections = [&load::SECTIONS[..], &[include::NAME]].concat();
    let repeated = [&load::REPEATED[..], &[include::NAME]].concat();
    nodes(&mut text, 1, "", &sections, &repeated);
    text.push_str("}\n");
    text
}

/// Each node that may stand in the block of `owner`.
fn nodes(text: &mut String, depth: usize, owner: &str, names: &[&str], repeated: &[&str]) {
    for name in names {
        let known = SHAPES
            .iter()
            .find(|(parent, known, _)| *parent == owner && known == name);
        let shape = known.map_or(&SCALAR, |(_, _, shape)| *shape);
        let indent = "    ".repeat(depth);
        // Infallible for String, here and below.
        let _ = write!(text, "{indent}node {name:?}");
        if !shape.example.is_empty() {
            let _ = write!(text, " description=#\"For example: {}\"#", shape.example);
        }
        text.push_str(" {\n");
        if !repeated.contains(name) {
            let _ = writeln!(text, "{indent}    max 1");
        }
        if (owner, *name) == ("filter", "config") {
            // What may stand there, its module says.
            let _ = writeln!(
                text,
                "{indent}    children {{\n{indent}        other-nodes-allowed #true\n{indent}    }}"
            );
        }
        of_shape(text, depth + 1, name, shape);
        let _ = writeln!(text, "{indent}}}");
    }
}

fn of_shape(text: &mut String, depth: usize, name: &str, shape: &Shape) {
    let indent = "    ".repeat(depth);
    let (least, most) = (shape.arguments.start(), shape.arguments.end());
    if *most > 0 {
        let _ = writeln!(
            text,
            "{indent}value {{\n{indent}    min {least}\n{indent}    max {most}\n{indent}}}"
        );
    }
    for property in shape.properties {
        let _ = writeln!(text, "{indent}prop {property:?}");
    }
    if !shape.children.is_empty() {
        let _ = writeln!(text, "{indent}children {{");
        nodes(text, depth + 1, name, shape.children, shape.repeated);
        let _ = writeln!(text, "{indent}}}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kdl::{KdlDocument, KdlNode};

    use super::*;

    fn named<'k>(nodes: &'k KdlDocument, kind: &str, name: &str) -> Option<&'k KdlNode> {
        let mut all = nodes.nodes().iter().filter(|node| node.name().value() == kind);
        all.find(|node| node.get(0).and_then(|value| value.as_string()) == Some(name))
    }

    /// What stands in a configuration and not in the schema.
    fn missing(document: &KdlDocument, schema: Option<&KdlDocument>, found: &mut BTreeSet<String>) {
        for node in document.nodes() {
            let name = node.name().value();
            let Some(known) = schema.and_then(|schema| named(schema, "node", name)) else {
                found.insert(name.to_owned());
                continue;
            };
            let inside = known.children();
            for property in node.entries().iter().filter_map(|entry| entry.name()) {
                if inside.is_none_or(|inside| named(inside, "prop", property.value()).is_none()) {
                    found.insert(format!("{name} {}=", property.value()));
                }
            }
            let values = node
                .entries()
                .iter()
                .filter(|entry| entry.name().is_none())
                .count();
            let most = inside
                .and_then(|inside| inside.get("value")?.children()?.get_arg("max")?.as_integer())
                .unwrap_or(0);
            if values as i128 > most {
                found.insert(format!("{name} with {values} values"));
            }
            let children = inside.and_then(|inside| inside.get("children")?.children());
            let open = children.is_some_and(|children| children.get("other-nodes-allowed").is_some());
            if let (Some(block), false) = (node.children(), open) {
                missing(block, children, found);
            }
        }
    }

    /// Each shape is where its node is: whatever the examples of the configuration have is allowed.
    #[test]
    fn everything_in_an_example_is_in_the_schema() {
        let schema: KdlDocument = schema().parse().unwrap();
        let top = schema.get("document").unwrap().children();
        let mut found = BTreeSet::new();
        let check = |owners: &[&str], example: &str, found: &mut BTreeSet<String>| {
            let mut inside = top;
            for owner in owners {
                let node = inside.and_then(|inside| named(inside, "node", owner));
                inside = node.and_then(|node| node.children()?.get("children")?.children());
            }
            let document: KdlDocument = example.parse().unwrap();
            missing(&document, inside, found);
        };
        check(&[], include_str!("../default.kdl"), &mut found);
        for (owner, name, shape) in SHAPES {
            let mut owners: Vec<&str> = Vec::new();
            let mut above = *owner;
            while !above.is_empty() {
                owners.insert(0, above);
                above = SHAPES
                    .iter()
                    .find(|(_, known, _)| *known == above)
                    .map_or("", |(owner, _, _)| *owner);
            }
            if shape.example.starts_with(name) {
                check(&owners, shape.example, &mut found);
            }
        }
        assert!(found.is_empty(), "{found:#?}");
        let wrong = "listen \"::1\" { udp-sise 1 }\ncache\nworkers 1 2\nlocal-zones a=1";
        check(&[], wrong, &mut found);
        assert_eq!(found.len(), 4, "{found:#?}");
    }
}
