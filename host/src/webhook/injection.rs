//! What becomes of a pod: a function from the pod, its namespace and what is asked for to a JSON patch.
//!
//! The kubelet gives a pod with `ClusterFirst` the cluster's DNS, the search list of its namespace and `ndots:5`, and merges the
//! pod's own `dnsConfig` into that. With `None` it gives it `dnsConfig` alone, so all of that is written down here.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{PodDNSConfig, PodDNSConfigOption};
use serde_json::{Value, json};

use super::pod::Pod;
use crate::dns::name::is_subdomain;

/// What Kubernetes allows a `dnsConfig` (`ValidatePodDNSConfig`): name servers, search domains, and characters of those with a space
/// between each two.
const NAMESERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

/// Namespaces of the system, whose pods others stand on.
pub const SYSTEM: [&str; 2] = ["kube-system", "kube-public"];

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Injection {
    /// Whom pods are to ask instead of the cluster's DNS; none: only options are added.
    pub resolvers: Option<Resolvers>,
    /// Options for resolv.conf, each of another name.
    pub options: Vec<DnsOption>,
    /// The label with which a pod opts out, and its value.
    pub opt_out: (String, String),
    /// Which of [`SYSTEM`] are not left out.
    pub included: Vec<String>,
}

/// Whom to ask, and for which names.
#[derive(Debug, Clone)]
pub struct Resolvers {
    /// Addresses of the node, and of the cluster's DNS after them.
    pub nameservers: Vec<IpAddr>,
    /// The cluster's domain.
    pub domain: String,
}

/// An option of resolv.conf.
#[derive(Debug, Clone)]
pub struct DnsOption {
    /// Its name.
    pub name: String,
    /// Its value, if it has one.
    pub value: Option<String>,
}

impl DnsOption {
    /// The option of this name.
    pub fn new(name: &str, value: Option<&str>) -> DnsOption {
        DnsOption {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        }
    }
}

/// Whether this is a cluster's domain, in front of which there is room for a namespace: lowercase labels (RFC 1123 section 2.1), at most
/// 253 octets with all that goes before.
pub fn is_domain(text: &str) -> bool {
    const BEFORE: usize = 63 + ".svc.".len();
    text.len() <= 253 - BEFORE && is_subdomain(text)
}

/// What is to be changed about a pod.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// The JSON patch (RFC 6902).
    pub patch: Value,
    /// What whoever creates the pod should know.
    pub warnings: Vec<String>,
}

/// Why a pod stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its namespace is one of the system's.
    SystemNamespace,
    /// Its label says so.
    OptedOut,
    /// It does not ask the cluster's DNS.
    Policy,
    /// It is for Windows.
    Windows,
    /// It runs already.
    Mirror,
    /// It has what is asked for.
    Same,
    /// It has more labels, annotations, or entries of a list than are read.
    TooMany,
    /// It is no pod that is being created, and the rules of the webhook should not ask about it.
    NotCreated,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 8] = [
        Reason::SystemNamespace,
        Reason::OptedOut,
        Reason::Policy,
        Reason::Windows,
        Reason::Mirror,
        Reason::Same,
        Reason::TooMany,
        Reason::NotCreated,
    ];

    /// As metrics and the log have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::SystemNamespace => "system_namespace",
            Reason::OptedOut => "opted_out",
            Reason::Policy => "policy",
            Reason::Windows => "windows",
            Reason::Mirror => "mirror",
            Reason::Same => "same",
            Reason::TooMany => "too_many_entries",
            Reason::NotCreated => "not_created",
        }
    }
}

impl Injection {
    /// What is to be changed about a pod that is created in a namespace.
    ///
    /// # Errors
    /// Why nothing is.
    pub fn change(&self, pod: &Pod, namespace: &str) -> Result<Change, Reason> {
        let (label, value) = &self.opt_out;
        let is_included = self.included.iter().any(|name| name == namespace);
        for (holds, reason) in [
            (
                SYSTEM.contains(&namespace) && !is_included,
                Reason::SystemNamespace,
            ),
            (pod.has_label(label, value), Reason::OptedOut),
            (!pod.asks_the_cluster(), Reason::Policy),
            (pod.is_for_windows(), Reason::Windows),
            (pod.is_mirror(), Reason::Mirror),
            (pod.has_more(), Reason::TooMany),
        ] {
            if holds {
                return Err(reason);
            }
        }
        let before = pod.spec.dns_config.as_ref().map(PodDNSConfig::from);
        let before = before.unwrap_or_default();
        let (after, warnings) = self.merged(&before, namespace);
        // Each field by itself: what else may be in it stays.
        let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        let mut patch = Vec::new();
        if self.resolvers.is_some() {
            patch.push(add("/spec/dnsPolicy", json!("None")));
        }
        if pod.spec.dns_config.is_none() {
            patch.push(add("/spec/dnsConfig", json!({})));
        }
        let fields = [
            ("nameservers", json!(before.nameservers), json!(after.nameservers)),
            ("searches", json!(before.searches), json!(after.searches)),
            ("options", json!(before.options), json!(after.options)),
        ];
        let changed = fields.into_iter().filter(|(_, before, after)| before != after);
        let changed: Vec<Value> = changed
            .map(|(name, _, after)| add(&format!("/spec/dnsConfig/{name}"), after))
            .collect();
        if changed.is_empty() && self.resolvers.is_none() {
            return Err(Reason::Same);
        }
        patch.extend(changed);
        let patch = Value::Array(patch);
        Ok(Change { patch, warnings })
    }

    /// A pod's own configuration with what is asked for, and what has no room in it.
    fn merged(&self, own: &PodDNSConfig, namespace: &str) -> (PodDNSConfig, Vec<String>) {
        let mut merged = own.clone();
        let mut warnings = Vec::new();
        if let Some(Resolvers { nameservers, domain }) = &self.resolvers {
            let ours = nameservers.iter().map(ToString::to_string);
            let room = Room::new("nameserver", NAMESERVERS, usize::MAX, &mut warnings);
            merged.nameservers = Some(room.fill(ours, own.nameservers.iter().flatten()));
            let ours = [
                format!("{namespace}.svc.{domain}"),
                format!("svc.{domain}"),
                domain.clone(),
            ];
            let room = Room::new("search domain", SEARCHES, SEARCH_CHARACTERS, &mut warnings);
            merged.searches = Some(room.fill(ours, own.searches.iter().flatten()));
        }
        // What the pod says about an option counts.
        let own: Vec<_> = own.options.iter().flatten().cloned().collect();
        let says = |name: &str| own.iter().any(|one| one.name.as_deref() == Some(name));
        let missing = self.options.iter().filter(|option| !says(&option.name));
        let missing: Vec<_> = missing
            .map(|option| PodDNSConfigOption {
                name: Some(option.name.clone()),
                value: option.value.clone(),
            })
            .collect();
        if !missing.is_empty() {
            merged.options = Some(missing.into_iter().chain(own).collect());
        }
        (merged, warnings)
    }
}

/// A list with bounds. What comes first stays, as it would with the kubelet, which cuts the end off.
struct Room<'a> {
    what: &'static str,
    entries: usize,
    characters: usize,
    warnings: &'a mut Vec<String>,
}

impl<'a> Room<'a> {
    fn new(what: &'static str, entries: usize, characters: usize, warnings: &'a mut Vec<String>) -> Room<'a> {
        Room {
            what,
            entries,
            characters,
            warnings,
        }
    }

    /// Ours and then the pod's, each once.
    fn fill<'s>(
        self,
        ours: impl IntoIterator<Item = String>,
        own: impl Iterator<Item = &'s String>,
    ) -> Vec<String> {
        let (mut list, mut characters): (Vec<String>, usize) = (Vec::new(), 0);
        let mut left_out = 0;
        for entry in ours.into_iter().chain(own.cloned()) {
            let with = characters + entry.len() + usize::from(!list.is_empty());
            if list.contains(&entry) {
                continue;
            }
            if left_out > 0 || list.len() == self.entries || with > self.characters {
                left_out += 1;
                continue;
            }
            characters = with;
            list.push(entry);
        }
        if left_out > 0 {
            let plural = if left_out == 1 { "" } else { "s" };
            self.warnings.push(format!(
                "dnsweir: {left_out} {}{plural} of dnsConfig left out, only the first {} of all fit",
                self.what,
                list.len()
            ));
        }
        list
    }
}
