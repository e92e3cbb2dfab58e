//! The objects of a cluster, as its controllers write them: every second service is headless, and each has
//! ten endpoints in one slice.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::protobuf::{self, CREATED, Message};

/// Endpoints per service.
pub const ENDPOINTS: u32 = 10;

/// Services per namespace.
const SERVICES: u32 = 100;

/// A kind of object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The path in requests.
    pub path: &'static str,
    pub version: &'static str,
    pub name: &'static str,
    message: Message,
}

pub const NAMESPACES: Kind = Kind {
    path: "/api/v1/namespaces",
    version: "v1",
    name: "Namespace",
    message: protobuf::NAMESPACE,
};

pub const SERVICES_KIND: Kind = Kind {
    path: "/api/v1/services",
    version: "v1",
    name: "Service",
    message: protobuf::SERVICE,
};

pub const SLICES: Kind = Kind {
    path: "/apis/discovery.k8s.io/v1/endpointslices",
    version: "discovery.k8s.io/v1",
    name: "EndpointSlice",
    message: protobuf::SLICE,
};

/// An object in both encodings.
pub struct Object {
    pub json: String,
    /// Without its envelope.
    pub protobuf: Vec<u8>,
}

impl Kind {
    /// Encodes an object of this kind in both ways.
    pub fn object(self, value: &Value) -> Object {
        Object {
            json: value.to_string(),
            protobuf: protobuf::encode(value, self.message),
        }
    }
}

/// Returns the number of namespaces of this many services.
pub fn namespaces(services: u32) -> u32 {
    services.div_ceil(SERVICES)
}

/// Whether a service is headless.
pub fn is_headless(service: u32) -> bool {
    service % 2 == 1
}

/// Returns a service's name in DNS.
pub fn host(service: u32) -> String {
    format!("service-{service}.space-{}.svc.cluster.local", service / SERVICES)
}

/// Returns the address of a service that is not headless.
pub fn cluster_address(service: u32) -> Ipv4Addr {
    (u32::from(Ipv4Addr::new(10, 96, 0, 1)) + service).into()
}

/// Returns the initial address of an endpoint.
pub fn endpoint_address(service: u32, endpoint: u32) -> Ipv4Addr {
    (u32::from(Ipv4Addr::new(10, 128, 0, 1)) + service * ENDPOINTS + endpoint).into()
}

/// Returns a namespace.
pub fn namespace(number: u32) -> Value {
    let name = format!("space-{number}");
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name, "uid": uid(1, number), "resourceVersion": "1", "creationTimestamp": CREATED,
            "labels": {"kubernetes.io/metadata.name": name},
        },
        "status": {"phase": "Active"},
    })
}

/// Returns a service.
pub fn service(number: u32) -> Value {
    let address = match is_headless(number) {
        true => "None".to_owned(),
        false => cluster_address(number).to_string(),
    };
    let name = format!("service-{number}");
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": format!("space-{}", number / SERVICES),
            "uid": uid(2, number), "resourceVersion": "1", "creationTimestamp": CREATED, "labels": {"app": name},
            "managedFields": [{
                "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": CREATED, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {"f:internalTrafficPolicy": {}, "f:ports": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}},
                    "f:selector": {}, "f:sessionAffinity": {}, "f:type": {}}},
            }],
        },
        "spec": {
            "clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"}],
            "selector": {"app": name},
        },
    })
}

/// Returns the endpoints of a service at this version, the first of them with this address.
pub fn slice(number: u32, first: Ipv4Addr, version: u64) -> Value {
    let (name, namespace) = (
        format!("service-{number}"),
        format!("space-{}", number / SERVICES),
    );
    let endpoint = |endpoint: u32| {
        let address = match endpoint {
            0 => first,
            _ => endpoint_address(number, endpoint),
        };
        let host = number * ENDPOINTS + endpoint;
        json!({
            "addresses": [address],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", host % 1000), "zone": format!("zone-{}", host % 3),
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": format!("{name}-6d4cf56db6-{endpoint:05}"), "uid": uid(3, host)},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-x7k2p"), "namespace": namespace, "uid": uid(4, number),
            "resourceVersion": version.to_string(), "generation": version, "creationTimestamp": CREATED,
            "labels": {"app": name, "kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": CREATED},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid(2, number), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "discovery.k8s.io/v1", "time": CREATED, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:addressType": {}, "f:endpoints": {}, "f:metadata": {"f:annotations": {".": {}}, "f:labels": {".": {}, "f:app": {}}, "f:ownerReferences": {".": {}}}, "f:ports": {}},
            }],
        },
        "addressType": "IPv4",
        "endpoints": (0..ENDPOINTS).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    })
}

fn uid(kind: u32, number: u32) -> String {
    format!("{number:08x}-{kind:04x}-4000-8000-0123456789ab")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_every_kind_has_its_number() {
        for (kind, value) in [
            (NAMESPACES, namespace(1)),
            (SERVICES_KIND, service(1)),
            (SLICES, slice(1, Ipv4Addr::LOCALHOST, 7)),
        ] {
            let object = kind.object(&value);
            assert!(object.json.len() > object.protobuf.len() && object.protobuf.len() > 60);
        }
    }
}
