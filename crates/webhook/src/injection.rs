//! Decides what to change about a pod: a pure function from pod, namespace and settings to a JSON patch.
//!
//! The kubelet gives a pod with `ClusterFirst` the cluster DNS, the search list of its namespace and
//! `ndots:5`, and merges the pod's own `dnsConfig` into that. With `None`, it uses `dnsConfig` alone, so the
//! patch contains all of that.

use std::net::IpAddr;

use dnsweir_flags::{DnsOption, SYSTEM};
use serde_json::{Value, json};

use super::pod::{self, Pod, Settings};

/// Limits of a `dnsConfig` in Kubernetes (`ValidateSettings`): name servers, search domains, and
/// characters of the latter joined by spaces.
const NAMESERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

/// The settings for pods.
#[derive(Debug, Clone)]
pub struct Injection {
    /// Name servers to use instead of the cluster DNS; `None`: only options are added.
    pub resolvers: Option<Resolvers>,
    /// Options for resolv.conf, with different names.
    pub options: Vec<DnsOption>,
    /// The label that opts a pod out, and its value.
    pub opt_out: (String, String),
    /// The entries of [`SYSTEM`] that are not excluded.
    pub included: Vec<String>,
}

/// Name servers and search lists.
#[derive(Debug, Clone)]
pub struct Resolvers {
    /// The node's addresses, followed by those of the cluster DNS.
    pub nameservers: Vec<IpAddr>,
    /// The cluster's domain.
    pub domain: String,
}

/// A change to a pod.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// The JSON patch (RFC 6902).
    pub patch: Value,
    /// Warnings for the client that creates the pod.
    pub warnings: Vec<String>,
}

/// Why a pod is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is in a system namespace.
    SystemNamespace,
    /// Its label opts out.
    OptedOut,
    /// It does not use the cluster DNS.
    Policy,
    /// It is for Windows.
    Windows,
    /// It is a mirror of a pod that already runs.
    Mirror,
    /// It already has these settings.
    Same,
    /// It has more labels, annotations or list entries than are read.
    TooMany,
    /// The request does not create a pod; the webhook's rules should not match it.
    NotCreated,
}

impl Reason {
    /// All reasons.
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

    /// The name in metrics and the log.
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
    /// Returns the change to a pod created in a namespace.
    ///
    /// # Errors
    /// Why it stays as it is.
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
        let before = pod.spec.dns_config.as_ref().map(Settings::from);
        let before = before.unwrap_or_default();
        let (after, warnings) = self.merged(&before, namespace);
        // One operation per field, so that other fields are kept.
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

    /// Merges a pod's own configuration with the settings; warns of what does not fit.
    fn merged(&self, own: &Settings, namespace: &str) -> (Settings, Vec<String>) {
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
        // The pod's own options take precedence.
        let own: Vec<_> = own.options.iter().flatten().cloned().collect();
        let says = |name: &str| own.iter().any(|one| one.name.as_deref() == Some(name));
        let missing = self.options.iter().filter(|option| !says(&option.name));
        let missing: Vec<_> = missing
            .map(|option| pod::DnsOption {
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

/// A list with limits. The first entries stay, as with the kubelet, which cuts off the end.
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

    /// Fills the list with our entries, then the pod's, without duplicates.
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
