//! What the webhook looks at of a pod, and nothing else of what is in it.

use k8s_openapi::api::core::v1::{PodDNSConfig, PodDNSConfigOption};
use serde::Deserialize;

use super::entries::{List, Map};

/// The annotation of a pod that only shows what a kubelet runs by itself already.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod as it is to be created.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// What it is called and marked with.
    pub metadata: Metadata,
    /// What it is.
    pub spec: Spec,
}

/// What a pod is called and marked with.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Its name, unless that is still to be found.
    pub name: Option<String>,
    /// How that will begin.
    pub generate_name: Option<String>,
    /// Its labels.
    pub labels: Option<Map>,
    /// Its annotations.
    pub annotations: Option<Map>,
}

/// What a pod is.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// Where its names come from. The API server has written the default in.
    pub dns_policy: Option<String>,
    /// Whether it has the node's network.
    pub host_network: Option<bool>,
    /// What it wants of its resolver.
    #[serde(rename = "dnsConfig")]
    pub dns_config: Option<DnsConfig>,
    /// For which system it is.
    pub os: Option<System>,
}

/// What a pod wants of its resolver.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DnsConfig {
    nameservers: Option<List<String>>,
    searches: Option<List<String>>,
    options: Option<List<PodDNSConfigOption>>,
}

impl From<&DnsConfig> for PodDNSConfig {
    fn from(config: &DnsConfig) -> PodDNSConfig {
        PodDNSConfig {
            nameservers: config.nameservers.as_ref().map(|list| list.entries.clone()),
            searches: config.searches.as_ref().map(|list| list.entries.clone()),
            options: config.options.as_ref().map(|list| list.entries.clone()),
        }
    }
}

/// A system.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct System {
    /// `linux` or `windows`.
    pub name: Option<String>,
}

impl Pod {
    /// What to call it in the log.
    pub fn name(&self) -> &str {
        let metadata = &self.metadata;
        let name = metadata.name.as_ref().or(metadata.generate_name.as_ref());
        name.map_or("", String::as_str)
    }

    /// Whether it asks the cluster's DNS, as the kubelet decides it: on the host's network `ClusterFirst` does not.
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

    /// Whether it runs already, whatever becomes of this.
    pub fn is_mirror(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some())
    }

    /// Whether something has more entries than are read.
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
