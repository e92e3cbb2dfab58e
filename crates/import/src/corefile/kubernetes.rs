//! `kubernetes`.

use super::blocks::{Plugin, PluginOption};
use super::document::Node;
use super::draft::{Draft, spelled, whole};
use super::key;
use super::sites::{Site, are_about, is_for, is_in};
use super::values::duration;

/// Translates `kubernetes [ZONES…]` for one of its zones; also returns whether it passes on missing names.
pub fn kubernetes(draft: &mut Draft, plugin: &Plugin, site: &Site<'_>, zone: &str) -> (Node, bool) {
    let mut node = Node::new("kubernetes").from(plugin.span());
    let domain = domain(plugin, site);
    match &domain {
        Some(domain) => node = node.child(Node::new("domain").text(domain)),
        None => draft.mistake(
            plugin.span(),
            "`kubernetes` needs a zone that is not for addresses",
            "write it: kubernetes cluster.local in-addr.arpa ip6.arpa",
        ),
    }
    let autopath = domain.and_then(|domain| autopath(draft, plugin, site, &domain));
    let mut through = false;
    for option in &plugin.options {
        match option.name.text.as_str() {
            "fallthrough" => through |= are_about(&option.arguments, zone),
            _ => node = node.children(child(draft, option)),
        }
    }
    node = node.children(autopath);
    if through {
        node = node.child(Node::new("fallthrough"));
    }
    (node, through)
}

/// Translates `k8s_external [ZONES…]` likewise: the external view of the services in `kubernetes`.
pub fn external(draft: &mut Draft, plugin: &Plugin, site: &Site<'_>, zone: &str) -> (Node, bool) {
    let mut node = Node::new("kubernetes");
    let mut plugins = site.block.plugins.iter();
    let Some(cluster) = plugins.find(|other| other.name.text == "kubernetes") else {
        let problem = "`k8s_external` needs a `kubernetes` whose services it publishes";
        draft.mistake(plugin.span(), problem, "write both in one block");
        return (node, false);
    };
    node = node.children(domain(cluster, site).map(|domain| Node::new("domain").text(&domain)));
    // Both watch the same objects, so they share one index.
    let is_own = |name: &str| ["ttl", "fallthrough", "multicluster"].contains(&name);
    let followed = cluster.options.iter();
    for option in followed.filter(|option| !is_own(&option.name.text)) {
        node = node.children(child(draft, option));
    }
    let zones = zones(plugin, site).into_iter().filter(|zone| !is_reverse(zone));
    let mut outside = zones.fold(Node::new("external"), |node, zone| node.text(&zone));
    let mut through = false;
    for option in &plugin.options {
        let argument = option.arguments.first().map_or("", |word| &*word.text);
        match option.name.text.as_str() {
            "apex" => outside = outside.property("apex", argument),
            "headless" => outside = outside.raw("headless=#true"),
            "fallthrough" => through |= are_about(&option.arguments, zone),
            _ => node = node.children(child(draft, option)),
        }
    }
    node = node.child(outside);
    if through {
        node = node.child(Node::new("fallthrough"));
    }
    (node, through)
}

/// The order of plugins for a query in a zone. With `autopath`, `cache` goes below `kubernetes`: otherwise,
/// it would store one pod's search results for all clients.
pub fn order(order: &[&'static str], plugins: &[Plugin], zone: &str) -> Vec<&'static str> {
    let mut order = order.to_vec();
    let is_here = |name: &str| {
        plugins
            .iter()
            .any(|plugin| plugin.name.text == name && is_for(plugin, zone))
    };
    if is_here("autopath") && is_here("kubernetes") {
        order.retain(|name| *name != "cache");
        let behind = order.iter().position(|name| *name == "kubernetes");
        order.insert(behind.map_or(order.len(), |at| at + 1), "cache");
    }
    order
}

/// Translates `autopath [ZONES…] @kubernetes`, which here is a setting of `kubernetes`.
fn autopath(draft: &mut Draft, kubernetes: &Plugin, site: &Site<'_>, domain: &str) -> Option<Node> {
    let mut plugins = site.block.plugins.iter();
    let plugin = plugins.find(|plugin| plugin.name.text == "autopath")?;
    let (last, zones) = plugin.arguments.split_last()?;
    if last.text != "@kubernetes" || !are_about(zones, domain) {
        return None;
    }
    let is_verified = |option: &PluginOption| {
        option.name.text == "pods" && option.arguments.iter().any(|word| word.text == "verified")
    };
    if !kubernetes.options.iter().any(is_verified) {
        let problem = "`autopath` does nothing: it has to know which pod asks";
        let help = "write `pods verified` in `kubernetes`, or remove `autopath`";
        draft.mistake(plugin.span(), problem, help);
        return None;
    }
    // As in CoreDNS: in its pod, this is the search list of the node.
    Some(Node::new("autopath").text("/etc/resolv.conf"))
}

/// Translates an option.
fn child(draft: &mut Draft, option: &PluginOption) -> Option<Node> {
    let words = || option.arguments.iter().map(|word| word.text.as_str());
    match option.name.text.as_str() {
        "pods" => {
            let known = |text: &str| ["disabled", "insecure", "verified"].contains(&text);
            let pods = draft.argument(option, "disabled, insecure or verified", |text| {
                known(text).then(|| text.to_owned())
            })?;
            Some(Node::new("pods").text(&pods))
        }
        "ttl" => {
            let seconds = |text: &str| text.parse::<u16>().ok().filter(|ttl| *ttl <= 3600);
            let ttl = draft.argument(option, "a number of seconds up to 3600", seconds)?;
            Some(Node::new("ttl").text(&format!("{ttl}s")))
        }
        "startup_timeout" => {
            let time = draft.argument(option, "a duration such as 5s", duration)?;
            Some(Node::new("wait").text(&spelled(time)))
        }
        "endpoint_pod_names" => Some(Node::new("endpoint-pod-names")),
        "ignore" => Some(Node::new("ignore-empty-services")),
        "multicluster" => Some(
            draft
                .zones(&option.arguments)
                .iter()
                .fold(Node::new("multicluster"), |node, zone| node.text(zone)),
        ),
        "namespaces" => Some(words().fold(Node::new("namespaces"), Node::text)),
        "labels" => Some(Node::new("labels").text(&words().collect::<Vec<_>>().join(" "))),
        "namespace_labels" => {
            Some(Node::new("namespace-labels").text(&words().collect::<Vec<_>>().join(" ")))
        }
        "kubeconfig" => {
            let mut words = words();
            let file = words.next().unwrap_or_default();
            // `root` does not apply to this path in CoreDNS.
            let node = Node::new("kubeconfig").text(&whole(&draft.folder, file));
            Some(match words.next() {
                Some(context) => node.property("context", context),
                None => node,
            })
        }
        _ => None,
    }
}

/// The domain of the services: the first zone that is not a reverse zone.
fn domain(plugin: &Plugin, site: &Site<'_>) -> Option<String> {
    let others = plugin
        .options
        .iter()
        .filter(|option| option.name.text == "multicluster");
    let others = others.flat_map(|option| &option.arguments);
    let others: Vec<String> = others
        .filter_map(|word| key::zones(&word.text).ok())
        .flatten()
        .collect();
    let mut zones = zones(plugin, site).into_iter();
    zones.find(|zone| !is_reverse(zone) && !others.contains(zone))
}

/// The zones of a plugin: those it names, or else all of its block.
fn zones(plugin: &Plugin, site: &Site<'_>) -> Vec<String> {
    let named = plugin
        .arguments
        .iter()
        .filter_map(|word| key::zones(&word.text).ok());
    let mut zones: Vec<String> = named.flatten().collect();
    if plugin.arguments.is_empty() {
        zones.extend(site.zones.iter().map(|(zone, _)| zone.clone()));
    }
    zones
}

/// Whether a zone contains reverse names.
fn is_reverse(zone: &str) -> bool {
    is_in(zone, "in-addr.arpa.") || is_in(zone, "ip6.arpa.")
}
