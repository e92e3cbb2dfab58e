//! Multi-cluster services (KEP-1645): `ServiceImport` objects, and endpoint slices that name their cluster.

use std::sync::Arc;

use serde::Deserialize;

use super::index::Index;
use super::known::Indexed;
use super::objects::{
    Interest, LeftOut, MOST_ADDRESSES, MOST_PORTS, Malformed, Outside, Port, Service, ServiceKind, Slice,
    service_name,
};
use crate::api_server::{Object, Reading, resources};

/// The labels of an endpoint slice that name its multi-cluster service and its cluster.
pub(crate) const SERVICE_OF_SLICE: &str = "multicluster.kubernetes.io/service-name";
const CLUSTER_OF_SLICE: &str = "multicluster.kubernetes.io/source-cluster";

/// The path of all such services.
pub(super) const SERVICE_IMPORTS: &str = "/apis/multicluster.x-k8s.io/v1alpha1/serviceimports";

/// The type of a service without its own address.
const HEADLESS: &str = "Headless";

/// A `ServiceImport` of `multicluster.x-k8s.io/v1alpha1`, reduced to what DNS answers need.
pub type ServiceImport = Object<Spec>;

/// The specification of a multi-cluster service.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Spec {
    #[serde(rename = "type")]
    kind: Option<String>,
    ips: Option<Vec<String>>,
    ports: Option<Vec<resources::Port>>,
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
        let ServiceImport { metadata, spec, .. } = object;
        if !self.covers(metadata.namespace.as_ref()) {
            return Ok(Reading::Nothing);
        }
        let spec = spec.unwrap_or_default();
        let (ports, ips) = (spec.ports.unwrap_or_default(), spec.ips.unwrap_or_default());
        let mut left_out = LeftOut::default();
        let ports = left_out
            .bounded(&ports, MOST_PORTS, "ports")
            .iter()
            .map(Port::read);
        let addresses = left_out.bounded(&ips, MOST_ADDRESSES, "addresses");
        let addresses = addresses.iter().filter_map(|address| address.parse().ok());
        Ok(Reading::Present(Import(Arc::new(Service {
            name: service_name(metadata.name.as_deref(), metadata.namespace.as_deref())?,
            kind: match spec.kind.as_deref() {
                Some(HEADLESS) => ServiceKind::Headless,
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
        object: resources::EndpointSlice,
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
    fn enter(self: &Arc<Self>, index: &mut Index) -> usize {
        index.change_import(&self.0.name, |entry| entry.service = Some(Arc::clone(&self.0)));
        0
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        index.change_import(&self.0.name, |entry| entry.service = None);
    }

    fn octets(&self) -> usize {
        self.0.octets()
    }
}

impl Indexed<Index> for ImportedSlice {
    fn enter(self: &Arc<Self>, index: &mut Index) -> usize {
        let is_there = index.change_import(&self.0.service, |entry| entry.add(&self.0));
        index.note(&self.0, is_there);
        usize::from(!is_there)
    }

    fn leave(self: &Arc<Self>, index: &mut Index) {
        index.change_import(&self.0.service, |entry| entry.remove(&self.0));
    }

    fn octets(&self) -> usize {
        self.0.octets()
    }
}
