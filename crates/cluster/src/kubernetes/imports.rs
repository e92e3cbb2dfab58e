//! Multi-cluster services (KEP-1645): `ServiceImport` objects, and endpoint slices that name their cluster.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::index::Index;
use super::known::Indexed;
use super::objects::{
    Interest, LeftOut, MOST_ADDRESSES, MOST_PORTS, Malformed, Outside, Port, Service, ServiceKind, Slice,
    service_name,
};
use crate::api_server::Reading;

/// The labels of an endpoint slice that name its multi-cluster service and its cluster.
pub(crate) const SERVICE_OF_SLICE: &str = "multicluster.kubernetes.io/service-name";
const CLUSTER_OF_SLICE: &str = "multicluster.kubernetes.io/source-cluster";

/// The type of a service without its own address.
const HEADLESS: &str = "Headless";

/// A `ServiceImport` of `multicluster.x-k8s.io/v1alpha1`, reduced to what DNS answers need.
#[derive(Debug, Clone, Deserialize)]
pub struct ServiceImport {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    ips: Vec<String>,
    #[serde(default)]
    ports: Vec<SpecPort>,
}

#[derive(Debug, Clone, Deserialize)]
struct SpecPort {
    name: Option<String>,
    protocol: Option<String>,
    port: i32,
}

impl Resource for ServiceImport {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ServiceImport".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "multicluster.x-k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "serviceimports".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A multi-cluster service.
#[derive(Debug, PartialEq, Eq)]
pub struct Import(Arc<Service>);

/// Some of its endpoints.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedSlice(Arc<Slice>);

impl Interest {
    /// Reads an imported service.
    pub fn import(&self, object: ServiceImport) -> Result<Reading<Import>, Malformed> {
        let ServiceImport { metadata, spec } = object;
        if !self.covers(metadata.namespace.as_ref()) {
            return Ok(Reading::Nothing);
        }
        let mut left_out = LeftOut::default();
        let ports = left_out
            .bounded(&spec.ports, MOST_PORTS, "ports")
            .iter()
            .map(|port| {
                let number = u16::try_from(port.port).ok();
                Port::read(port.name.as_deref(), port.protocol.as_deref(), number)
            });
        let addresses = left_out.bounded(&spec.ips, MOST_ADDRESSES, "addresses");
        let addresses = addresses.iter().filter_map(|address| address.parse().ok());
        Ok(Reading::Present(Import(Arc::new(Service {
            name: service_name(metadata.name.as_deref(), metadata.namespace.as_deref())?,
            kind: match &*spec.kind {
                HEADLESS => ServiceKind::Headless,
                _ => ServiceKind::Cluster(addresses.collect()),
            },
            ports: ports.collect::<Result<_, _>>()?,
            outside: Outside::default(),
            left_out: left_out.told(&metadata),
        }))))
    }

    /// Reads an endpoint slice of a multi-cluster service. Its cluster's name follows each endpoint's label.
    pub(crate) fn imported_slice(
        &self,
        object: discovery::EndpointSlice,
    ) -> Result<Reading<ImportedSlice>, Malformed> {
        let read = self.slice_of(object, SERVICE_OF_SLICE, Some(CLUSTER_OF_SLICE))?;
        Ok(match read {
            Reading::Present(slice) => Reading::Present(ImportedSlice(Arc::new(slice))),
            Reading::Nothing => Reading::Nothing,
            Reading::Unchanged => Reading::Unchanged,
        })
    }
}

impl Indexed<Index> for Import {
    fn enter(self: &Arc<Self>, index: &mut Index) {
        index.change_import(&self.0.name, |entry| entry.service = Some(Arc::clone(&self.0)));
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        index.change_import(&self.0.name, |entry| entry.service = None);
    }

    fn octets(&self) -> usize {
        self.0.octets()
    }
}

impl Indexed<Index> for ImportedSlice {
    fn enter(self: &Arc<Self>, index: &mut Index) {
        let is_there = index.change_import(&self.0.service, |entry| entry.add(&self.0));
        index.note(&self.0, is_there);
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        index.change_import(&self.0.service, |entry| entry.remove(&self.0));
    }

    fn octets(&self) -> usize {
        self.0.octets()
    }
}
