//! The objects of Kubernetes itself, reduced to the fields that are read, and their paths in the API.
//!
//! Any field may be missing or null: Go's encoder writes `null` for an empty list.

use serde::Deserialize;

use super::objects::{HasMetadata, Metadata, Object};

/// The path of all namespaces.
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
/// The path of all services.
pub(crate) const SERVICES: &str = "/api/v1/services";
/// The path of all endpoint slices.
pub(crate) const ENDPOINT_SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// The path of all pods.
pub(crate) const PODS: &str = "/api/v1/pods";

/// A namespace.
pub type Namespace = Object<serde::de::IgnoredAny>;

/// A service.
pub type Service = Object<ServiceSpec, ServiceStatus>;

/// A pod.
pub type Pod = Object<PodSpec, PodStatus>;

/// The specification of a service.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The first of its addresses.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    /// Its addresses.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Option<Vec<String>>,
    /// Addresses outside that lead to it.
    #[serde(rename = "externalIPs")]
    pub external_ips: Option<Vec<String>>,
    /// The name that it stands for.
    pub external_name: Option<String>,
    /// Its ports.
    pub ports: Option<Vec<Port>>,
}

/// The status of a service.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Its load balancer.
    pub load_balancer: Option<LoadBalancer>,
}

/// A load balancer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LoadBalancer {
    /// Where it is reached.
    pub ingress: Option<Vec<Ingress>>,
}

/// Where a load balancer is reached.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Ingress {
    /// Its address.
    pub ip: Option<String>,
    /// Its name.
    pub hostname: Option<String>,
}

/// A port of a service or of its endpoints.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Its name.
    pub name: Option<String>,
    /// Its protocol.
    pub protocol: Option<String>,
    port: Option<i32>,
}

impl Port {
    /// Its number, if it has a valid one.
    pub fn number(&self) -> Option<u16> {
        u16::try_from(self.port?).ok()
    }
}

/// Some of a service's endpoints.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EndpointSlice {
    /// Its metadata.
    pub metadata: Metadata,
    /// The endpoints.
    pub endpoints: Option<Vec<Endpoint>>,
    /// The ports of each.
    pub ports: Option<Vec<Port>>,
}

impl HasMetadata for EndpointSlice {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// An endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Option<Vec<String>>,
    /// Its conditions.
    pub conditions: Option<Conditions>,
    /// Its host name.
    pub hostname: Option<String>,
    /// The object behind it.
    pub target_ref: Option<Target>,
}

/// The conditions of an endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Whether it takes traffic.
    pub ready: Option<bool>,
}

/// The object behind an endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Its name.
    pub name: Option<String>,
}

/// The specification of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Whether it uses its node's network.
    pub host_network: Option<bool>,
    /// The service account that it runs as.
    pub service_account_name: Option<String>,
}

/// The status of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// Its phase.
    pub phase: Option<String>,
    /// The first of its addresses.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Its addresses.
    #[serde(rename = "podIPs")]
    pub pod_ips: Option<Vec<Address>>,
    /// The first of its node's addresses.
    #[serde(rename = "hostIP")]
    pub host_ip: Option<String>,
    /// Its node's addresses.
    #[serde(rename = "hostIPs")]
    pub host_ips: Option<Vec<Address>>,
}

/// An address of a pod or a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Address {
    /// As text.
    pub ip: Option<String>,
}
