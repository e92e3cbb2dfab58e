//! Reads the parts of pods and namespaces that identify clients.

use std::convert::Infallible;
use std::net::IpAddr;

use super::bounds::OF_OBJECT;
use crate::api_server::{Metadata, Reading, resources};
use dnsweir_answer::identity::{Labels, Namespace, PodObject};

/// An annotation that `kubectl apply` keeps for itself; it contains the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Approximate bytes of an object without labels and annotations, and of each of these without its text.
const BASE: usize = 512;
const OF_LABEL: usize = 96;

/// An object that is cut to the room there is.
pub(super) trait Kept {
    /// Removes what there is no room for, and returns what that was.
    fn fit(&mut self, room: usize) -> Option<&'static str>;

    /// Approximate bytes.
    fn octets(&self) -> usize;
}

impl Kept for PodObject {
    fn fit(&mut self, room: usize) -> Option<&'static str> {
        fit(&mut self.labels, &mut self.annotations, room)
    }

    fn octets(&self) -> usize {
        BASE + octets(&self.labels) + octets(&self.annotations)
    }
}

impl Kept for Namespace {
    fn fit(&mut self, room: usize) -> Option<&'static str> {
        fit(&mut self.labels, &mut self.annotations, room)
    }

    fn octets(&self) -> usize {
        BASE + octets(&self.labels) + octets(&self.annotations)
    }
}

/// Reads a pod, unless it has ended.
pub(super) fn read_pod(object: resources::Pod) -> Result<Reading<PodObject>, Infallible> {
    let (metadata, spec) = (object.metadata, object.spec.unwrap_or_default());
    let status = object.status.unwrap_or_default();
    // A pod that is being deleted may run for as long as its grace period.
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Ok(Reading::Nothing);
    }
    let of_pod = status
        .pod_ips
        .unwrap_or_default()
        .into_iter()
        .filter_map(|one| one.ip);
    let of_host = status
        .host_ips
        .unwrap_or_default()
        .into_iter()
        .filter_map(|one| one.ip);
    Ok(Reading::Present(PodObject {
        namespace: metadata.namespace.clone().unwrap_or_default().into(),
        name: metadata.name.clone().unwrap_or_default().into(),
        service_account: spec.service_account_name.unwrap_or_default().into(),
        uid: metadata.uid.clone().unwrap_or_default().into(),
        created: metadata.created(),
        addresses: addresses(of_pod.chain(status.pod_ip)),
        host: addresses(of_host.chain(status.host_ip)),
        on_host: spec.host_network.unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: annotations(metadata),
    }))
}

/// Reads a namespace.
pub(super) fn read_namespace(object: resources::Namespace) -> Result<Reading<Namespace>, Infallible> {
    Ok(Reading::Present(Namespace {
        labels: object.metadata.labels.clone().unwrap_or_default(),
        annotations: annotations(object.metadata),
    }))
}

fn annotations(metadata: Metadata) -> Labels {
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    annotations
}

fn addresses(texts: impl Iterator<Item = String>) -> Box<[IpAddr]> {
    let mut addresses: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into()
}

/// Drops annotations first, since labels tell objects apart. The name always stays: otherwise the owner of an
/// object could shed its identity.
fn fit(labels: &mut Labels, annotations: &mut Labels, room: usize) -> Option<&'static str> {
    let fits = |labels: &Labels, annotations: &Labels| {
        let said = text(labels) + text(annotations);
        said <= OF_OBJECT && BASE + octets(labels) + octets(annotations) <= room
    };
    let says_nothing = labels.is_empty() && annotations.is_empty();
    if says_nothing || fits(labels, annotations) {
        return None;
    }
    annotations.clear();
    if fits(labels, annotations) {
        return Some("annotations");
    }
    labels.clear();
    Some("labels and annotations")
}

fn text(labels: &Labels) -> usize {
    labels.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn octets(labels: &Labels) -> usize {
    text(labels) + labels.len() * OF_LABEL
}
