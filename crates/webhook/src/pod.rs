//! The parts of a pod that the webhook reads.

use serde::{Deserialize, Serialize};

use super::entries::{List, Map};

/// The annotation of a mirror pod, which shows a pod that a kubelet already runs.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod that is being created.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its specification.
    pub spec: Spec,
}

/// The metadata of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Its name; `None` if it is generated.
    pub name: Option<String>,
    /// The prefix of a generated name.
    pub generate_name: Option<String>,
    /// Its labels.
    pub labels: Option<Map>,
    /// Its annotations.
    pub annotations: Option<Map>,
}

/// The specification of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// The DNS policy. The API server has filled in the default.
    pub dns_policy: Option<String>,
    /// Whether it uses the node's network.
    pub host_network: Option<bool>,
    /// Its own resolver settings.
    #[serde(rename = "dnsConfig")]
    pub dns_config: Option<DnsConfig>,
    /// Its operating system.
    pub os: Option<System>,
}

/// Resolver settings of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DnsConfig {
    nameservers: Option<List<String>>,
    searches: Option<List<String>>,
    options: Option<List<DnsOption>>,
}

/// An option of resolv.conf.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct DnsOption {
    /// Its name.
    pub name: Option<String>,
    /// Its value, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Resolver settings with every entry that was read.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Name servers.
    pub nameservers: Option<Vec<String>>,
    /// The search list.
    pub searches: Option<Vec<String>>,
    /// Options for resolv.conf.
    pub options: Option<Vec<DnsOption>>,
}

impl From<&DnsConfig> for Settings {
    fn from(config: &DnsConfig) -> Settings {
        Settings {
            nameservers: config.nameservers.as_ref().map(|list| list.entries.clone()),
            searches: config.searches.as_ref().map(|list| list.entries.clone()),
            options: config.options.as_ref().map(|list| list.entries.clone()),
        }
    }
}

/// An operating system.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct System {
    /// `linux` or `windows`.
    pub name: Option<String>,
}

impl Pod {
    /// The name to show in the log.
    pub fn name(&self) -> &str {
        let metadata = &self.metadata;
        let name = metadata.name.as_ref().or(metadata.generate_name.as_ref());
        name.map_or("", String::as_str)
    }

    /// Whether it uses the cluster DNS. As in the kubelet, `ClusterFirst` does not on the host's network.
    pub fn asks_the_cluster(&self) -> bool {
        match self.spec.dns_policy.as_deref() {
            None | Some("ClusterFirst") => !self.spec.host_network.unwrap_or_default(),
            Some("ClusterFirstWithHostNet") => true,
            Some(_) => false,
        }
    }

    /// Whether it is for Windows, whose nodes have no proxy.
    pub fn is_for_windows(&self) -> bool {
        let system = self.spec.os.as_ref().and_then(|os| os.name.as_deref());
        system == Some("windows")
    }

    /// Whether it only mirrors a pod that already runs.
    pub fn is_mirror(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some())
    }

    /// Whether any list or map has more entries than are read.
    pub fn has_more(&self) -> bool {
        let Metadata {
            labels, annotations, ..
        } = &self.metadata;
        let maps = [labels, annotations].into_iter().flatten();
        let config = self.spec.dns_config.as_ref();
        maps.into_iter().any(|map| map.has_more())
            || config.is_some_and(|config| {
                let lists = [&config.nameservers, &config.searches].into_iter().flatten();
                let options = config.options.as_ref();
                lists.into_iter().any(|list| list.has_more) || options.is_some_and(|list| list.has_more)
            })
    }

    /// Whether it has a label with this value.
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        let labels = self.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key)) == Some(value)
    }
}
