//! `kubernetes`: serves the DNS records of a cluster.

use std::path::PathBuf;
use std::time::Duration;

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, arguments, block, boolean, child, fitting, text, value_span, word};
use super::files;
use super::forward::is_path;
use super::name::{is_within, zone_name};
use super::resolv_conf::search_list;
use super::selector::HELP as SELECTOR_HELP;
use super::transfer::{self, Transfer};
use super::units::{duration, ms, s, size, ttl};
use super::words::{Table, words};

words! {
    /// `kubernetes { … }`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Kubernetes in KUBERNETES(0..=0): r#"kubernetes { pods "verified"; fallthrough "in-addr.arpa" "ip6.arpa" }"#,
        then finish;

    /// The domain in which services' names end.
    one "domain" domain: String = ("the zone's first name that is not a reverse name, or `\"cluster.local\"`":
        "cluster.local", else String::new()) in zone_name, "a name";
    /// Names such as `10-1-2-3.default.pod`: none, one for every address, or those of existing pods. `"verified"` watches
    /// every pod of the cluster.
    one "pods" pods: Pods = "disabled" in word(&PODS);
    /// Only these namespaces.
    list "namespaces"(1..=256) namespaces: Vec<String> = ("all": "default" "shop") in label, "names";
    /// Only namespaces with these labels.
    one "namespace-labels" namespace_labels: Option<String> = ("all": "team=shop") in selector, "a label selector";
    /// Only services, endpoint slices and pods with these labels.
    one "labels" labels: Option<String> = ("all": "tier in (web, api)") in selector, "a label selector";
    /// Endpoints without a hostname are named after their pods instead of their addresses.
    switch "endpoint-pod-names" endpoint_pod_names: bool = off;
    /// Services without a ready endpoint do not exist.
    switch "ignore-empty-services" ignore_empty_services: bool = off;
    /// TTL of the answers.
    one "ttl" ttl: Duration = "5s" in ttl(s(0)..=s(3600));
    /// Domains of [multi-cluster services](#multicluster).
    table "multicluster" multicluster: Vec<String> = ("none") in MULTICLUSTER, "names";
    /// [Zones of services' outside addresses](#external).
    table "external" external: Option<External> = none in EXTERNAL, "names";
    /// [Answers a pod's whole search at once](#autopath); these domains are searched after those of the cluster.
    table "autopath" autopath: Option<Vec<String>> = off in AUTOPATH, "domains, or paths of a `resolv.conf`";
    /// Missing names at or below these names (without a value, all) are left to the next stage.
    table "fallthrough" fallthrough: Vec<String> = ("off") in FALLTHROUGH, "names";
    /// How to connect to the API server.
    table "kubeconfig" kubeconfig: Option<Kubeconfig> = (none: "the pod's service account") in KUBECONFIG, "a path";
    /// How long `/ready` may fail until the cluster has been listed.
    one "wait" wait: Duration = "1m" in duration(ms(0)..=s(3600));
    /// Memory for the cluster's objects. A new or changed object that does not fit is ignored and reported.
    one "memory" memory: usize = "256MiB" in size(1 << 20..=1 << 36);
    /// Who may transfer the zone of `domain` and the reverse zones; NOTIFY is sent at most every five seconds.
    table "transfer" transfer: Option<Transfer> = none in transfer::TRANSFER, "as in [`file`](#transfer)";
}

/// `pods "disabled" | "insecure" | "verified"`: which pod names exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pods {
    /// None.
    #[default]
    Disabled,
    /// One for every address.
    Insecure,
    /// Only those of addresses that a pod of the namespace has.
    Verified,
}

words! {
    /// `external "ZONE"… headless=#true apex="LABEL"`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct External in EXTERNAL(1..=16): r#"external "example.org" headless=#true"#, then read_zones;

    /// The zones; lowercased, each ending in a dot.
    values "ZONE" zones: Vec<String> = ("required"), "names";
    /// Whether these zones also have the endpoints of headless services.
    property "headless" headless: bool = false in boolean;
    /// The label for the zone's own names, such as `ns1.dns.ZONE`.
    property "apex" apex: String = "dns" in label, "a label";
}

words! {
    /// `kubeconfig "FILE" context="NAME"`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Kubeconfig in KUBECONFIG(1..=1): r#"kubeconfig "/etc/dnsweir/kubeconfig" context="lab""#, then find_file;

    /// The file.
    values "FILE" path: PathBuf = ("required"), "a path";
    /// Which of the file's contexts.
    property "context" context: Option<String> = ("the current one") in text, "a name";
}

/// Names below which missing names are left to the next stage; without a value, all.
pub(super) const FALLTHROUGH: Table<Vec<String>> = Table::of_values(
    0..=256,
    r#"fallthrough "in-addr.arpa" "ip6.arpa""#,
    |decoder, node, _| match arguments(node).next() {
        Some(_) => decoder.values(node, zone_name),
        None => vec![".".to_owned()],
    },
);

const MULTICLUSTER: Table<Vec<String>> = Table::of_values(
    1..=16,
    r#"multicluster "clusterset.local""#,
    |decoder, node, _| own_names(decoder, node),
);

/// The search domains of pods after those of the cluster.
const AUTOPATH: Table<Vec<String>> =
    Table::of_values(0..=MOST_SEARCHED, r#"autopath "corp.example""#, read_domains);

/// A word with which some queries are passed to the stages below.
pub(super) const PASSES_ON: [&str; 1] = ["fallthrough"];

const PODS: [(&str, Pods); 3] = [
    ("disabled", Pods::Disabled),
    ("insecure", Pods::Insecure),
    ("verified", Pods::Verified),
];

/// The default domain of a cluster.
pub(super) const DOMAIN: &str = "cluster.local.";

/// The most domains in a pod's search list besides those of the cluster: with these and the bare name, as
/// many as a filter may list.
const MOST_SEARCHED: usize = 29;

/// Size limit of a kubeconfig, in bytes.
const LONGEST_KUBECONFIG: u64 = 1 << 20;

/// Chooses the default of `domain`, and checks `autopath`.
fn finish(decoder: &mut Decoder, node: &KdlNode, kubernetes: &mut Kubernetes) {
    if kubernetes.domain.is_empty() {
        let external = kubernetes.external.iter().flat_map(|external| &external.zones);
        let others: Vec<&String> = external.chain(&kubernetes.multicluster).collect();
        let is_own = |zone: &&String| *zone != "." && !is_reverse(zone) && !others.contains(zone);
        let own = decoder.around.zones.iter().find(is_own);
        kubernetes.domain = own.map_or(DOMAIN, String::as_str).to_owned();
    }
    let Some((node, domains)) = child(block(node), "autopath").zip(kubernetes.autopath.as_ref()) else {
        return;
    };
    if kubernetes.pods != Pods::Verified {
        let problem = "`autopath` has to know which pod asks";
        decoder.report(node, problem, "write `pods \"verified\"` beside it");
    }
    if domains.len() > MOST_SEARCHED {
        let problem = format!("{} domains are too many to search in", domains.len());
        decoder.report(node, problem, format!("at most {MOST_SEARCHED}"));
    }
}

fn read_zones(decoder: &mut Decoder, node: &KdlNode, external: &mut External) {
    external.zones = own_names(decoder, node);
}

/// The names in a node; reports names outside the zone, for which no query would arrive.
fn own_names(decoder: &mut Decoder, node: &KdlNode) -> Vec<String> {
    let word = node.name().value();
    let mut names = Vec::new();
    for (name, span) in decoder.values_at(node, zone_name) {
        if !decoder.around.zones.iter().any(|zone| is_within(&name, zone)) {
            let problem = format!("`{word}`: no query for {name} comes to this zone");
            let help = format!("write the name behind `zone`, too: zone {name:?}");
            decoder.report(span, problem, help);
        }
        names.push(name);
    }
    names
}

fn read_domains(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Vec<String> {
    let mut domains = Vec::new();
    for entry in arguments(node) {
        match entry.value().as_string().filter(|text| is_path(text)) {
            Some(path) => domains.extend(search_list_of(decoder, entry, path)),
            None => domains.extend(decoder.value("autopath", entry, zone_name)),
        }
    }
    domains
}

/// The search list of a resolv.conf, without entries that are not domains.
fn search_list_of(decoder: &mut Decoder, entry: &KdlEntry, path: &str) -> Vec<String> {
    let path = decoder.files.at(path);
    let list = search_list(&mut decoder.files, &path).unwrap_or_else(|problem| {
        let problem = format!("{}: {problem}", path.display());
        decoder.report(entry, problem, "name a resolv.conf, or write the domains here");
        Vec::new()
    });
    let names = list.into_iter().map(KdlValue::String);
    names.filter_map(|name| zone_name(&name).ok()).collect()
}

fn find_file(decoder: &mut Decoder, node: &KdlNode, kubeconfig: &mut Kubeconfig) {
    let Some(written) = decoder.argument(node, text) else {
        return;
    };
    kubeconfig.path = decoder.files.at(written);
    // One that can be read is no reason to reload when it changes: it decides nothing here, and who follows the API
    // server reads it again after each failure.
    if let Err(error) = files::read(&kubeconfig.path, LONGEST_KUBECONFIG) {
        decoder.files.note(&kubeconfig.path);
        let problem = format!("{}: cannot be read: {error}", kubeconfig.path.display());
        let help = "name a kubeconfig file that dnsweir may read";
        decoder.report(value_span(node), problem, help);
    }
}

/// Reads the name of a namespace, or another label.
pub(super) fn label(value: &KdlValue) -> Result<String, Wrong> {
    let allowed = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-';
    let fits = |name: &str| (1..=63).contains(&name.len()) && name.bytes().all(allowed);
    let help = "it has lower-case letters, digits and hyphens, 63 at most";
    fitting(value, fits, "is not a label", help)
}

/// Reads a label selector. Its syntax is left to the API server to check.
pub(super) fn selector(value: &KdlValue) -> Result<String, Wrong> {
    let fits = |selector: &str| {
        let has_name = selector.bytes().any(|octet| octet.is_ascii_alphanumeric());
        has_name && !selector.contains(|letter: char| letter.is_control())
    };
    fitting(value, fits, "is not a label selector", SELECTOR_HELP)
}

/// Whether a zone contains reverse names.
fn is_reverse(zone: &str) -> bool {
    let dotted = format!(".{zone}");
    [".in-addr.arpa.", ".ip6.arpa."]
        .iter()
        .any(|end| dotted.ends_with(end))
}
