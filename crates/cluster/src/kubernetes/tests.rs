//! Objects, questions, and answers.

mod answers;
mod autopath;
mod external;
mod multicluster;
mod objects;
mod updates;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::Teller;
use super::index::Index;
use super::known::Indexed;
use super::objects::{Interest, Malformed};
use super::rules::Rules;
use crate::api_server::Reading;
use crate::config::{self, Pods};
use crate::dns::name::Name;
use crate::dns::records::Section;
use crate::dns::suffix_map::SuffixMap;
use crate::dns::text::record_lines;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, rcode_text, rtype};
use dnsweir_answer::identity::Identity;
use dnsweir_answer::{Alias, Question, Resolution};

/// A minimal configuration.
fn config() -> config::Kubernetes {
    config::Kubernetes {
        domain: "cluster.local.".into(),
        pods: Pods::Disabled,
        namespaces: vec![],
        namespace_labels: None,
        labels: None,
        endpoint_pod_names: false,
        ignore_empty_services: false,
        ttl: std::time::Duration::from_secs(5),
        multicluster: vec![],
        external: None,
        autopath: None,
        fallthrough: vec![],
        kubeconfig: None,
        wait: std::time::Duration::ZERO,
        memory: 1 << 20,
        transfer: None,
    }
}

/// A cluster with all its objects known.
struct Zoo {
    index: Index,
    interest: Interest,
    config: config::Kubernetes,
    hosts: Vec<IpAddr>,
    /// Whether the queries come from clients, not from the proxy itself.
    direct: bool,
    /// The largest reply they take, in bytes.
    room: usize,
}

impl Zoo {
    fn new(config: config::Kubernetes) -> Zoo {
        let mut zoo = Zoo {
            index: Index::default(),
            interest: Interest {
                namespaces: config.namespaces.clone(),
                endpoint_pod_names: config.endpoint_pod_names,
            },
            config,
            hosts: Vec::new(),
            direct: true,
            room: MESSAGE_MAXIMUM,
        };
        zoo.index.complete = true;
        zoo.index.serial = 7;
        zoo.add(Interest::namespace, json!({"metadata": {"name": "zoo"}}));
        zoo
    }

    fn add<K: serde::de::DeserializeOwned, T: Indexed<Index>>(
        &mut self,
        read: fn(&Interest, K) -> Result<Reading<T>, Malformed>,
        object: Value,
    ) {
        if let Reading::Present(object) =
            read(&self.interest, serde_json::from_value(object).unwrap()).unwrap()
        {
            Arc::new(object).enter(&mut self.index);
        }
    }

    /// Adds a service in `zoo` with this specification.
    fn service(&mut self, name: &str, spec: Value) {
        let object = json!({"metadata": {"name": name, "namespace": "zoo"}, "spec": spec});
        self.add(Interest::service, object);
    }

    /// Adds endpoints of a service in `zoo`.
    fn slice(&mut self, service: &str, ports: Value, endpoints: Value) {
        let labels = json!({"kubernetes.io/service-name": service});
        self.add(
            Interest::slice,
            json!({"metadata": {"name": format!("{service}-1"), "namespace": "zoo", "labels": labels},
                   "addressType": "IPv4", "ports": ports, "endpoints": endpoints}),
        );
    }

    fn resolve(&self, zone: &str, name: &str, qtype: u16) -> Resolution {
        self.resolve_for([127, 0, 0, 1].into(), zone, name, qtype)
    }

    fn resolve_for(&self, client: IpAddr, zone: &str, name: &str, qtype: u16) -> Resolution {
        let (zone, name) = (Name::parse(zone).unwrap(), Name::parse(name).unwrap());
        let rules = Rules::new(&self.config);
        let teller = Teller {
            index: &self.index,
            rules: &rules,
            hosts: &self.hosts,
        };
        teller.answer(&Question {
            name: name.as_bytes(),
            qtype,
            qclass: CLASS_IN,
            flags: 0,
            dnssec_ok: false,
            subnet: None,
            signed: None,
            room: self.room,
            client,
            identity: &Identity::Unknown,
            zone: &zone,
            zones: &SuffixMap::default(),
            tap: None,
            direct: self.direct,
            traced: false,
        })
    }

    /// The result of a question in `cluster.local`: rcode, records of all sections, or another resolution.
    fn ask(&self, name: &str, qtype: u16) -> Vec<String> {
        self.ask_in("cluster.local.", &format!("{name}.cluster.local"), qtype)
    }

    fn ask_in(&self, zone: &str, name: &str, qtype: u16) -> Vec<String> {
        let answer = match self.resolve(zone, name, qtype) {
            Resolution::Answer {
                answer,
                authoritative,
            } => {
                assert!(authoritative);
                answer
            }
            Resolution::Alias(found) => return vec![alias(&found)],
            Resolution::NotMine => return vec!["not mine".into()],
            other => return vec![format!("{other:?}")],
        };
        // The message and its parsed form must agree.
        let read = crate::dns::records::Answer::read(answer.message.clone()).unwrap();
        assert_eq!(
            (
                &read.message,
                &read.ttl_offsets,
                read.rcode,
                read.meaning,
                read.ttl
            ),
            (
                &answer.message,
                &answer.ttl_offsets,
                answer.rcode,
                answer.meaning,
                answer.ttl
            )
        );
        let section = |section| record_lines(&answer.message, section);
        let mut lines = section(Section::Answer);
        lines.sort_unstable();
        let authority = section(Section::Authority);
        match (lines.is_empty(), &authority[..]) {
            // All denials have the same authority section, which one test checks.
            (true, [soa]) => {
                assert!(soa.contains("SOA"), "{soa}");
                let text = match rcode_text(answer.rcode) {
                    text if text == "NOERROR" => "NODATA".into(),
                    text => text,
                };
                vec![text]
            }
            _ => {
                let mut additional = section(Section::Additional);
                additional.sort_unstable();
                lines.extend(additional.into_iter().map(|line| format!("+ {line}")));
                lines
            }
        }
    }
}

/// The targets of an alias.
fn alias(alias: &Alias) -> String {
    let names: Vec<String> = alias
        .targets
        .iter()
        .map(|name| crate::dns::name::Text(name).to_string())
        .collect();
    let ttl = alias.ttl.map_or_else(String::new, |ttl| format!(" for {ttl}"));
    format!("alias of {}{ttl}", names.join(" "))
}

/// A cluster with all kinds of services.
fn zoo(config: config::Kubernetes) -> Zoo {
    let mut zoo = Zoo::new(config);
    let http = json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    zoo.service(
        "web",
        json!({"clusterIPs": ["10.96.0.10", "fd00::10"], "ports": http}),
    );
    zoo.slice("web", http.clone(), json!([{"addresses": ["10.244.0.9"]}]));
    zoo.service(
        "single",
        json!({"clusterIP": "10.96.0.11", "ports": [{"port": 9, "protocol": "TCP"}]}),
    );
    zoo.service("peers", json!({"clusterIPs": ["None"], "ports": http}));
    zoo.slice(
        "peers",
        http,
        json!([
            {"addresses": ["10.244.0.1"], "hostname": "peer-0", "conditions": {"ready": true}},
            {"addresses": ["10.244.0.2"], "targetRef": {"kind": "Pod", "name": "pod-2"}},
            {"addresses": ["10.244.0.3"], "hostname": "peer-3", "conditions": {"ready": false, "serving": true}}
        ]),
    );
    zoo.slice(
        "peers",
        json!([{"name": "dns", "port": 53, "protocol": "UDP"}]),
        json!([{"addresses": ["fd00:1::"]}]),
    );
    zoo.service(
        "nobody",
        json!({"clusterIPs": ["None"], "ports": [{"name": "x", "port": 1}]}),
    );
    zoo.service("portless", json!({"clusterIPs": ["None"]}));
    zoo.slice("portless", Value::Null, json!([{"addresses": ["10.244.0.7"]}]));
    zoo.service(
        "outside",
        json!({"type": "ExternalName", "externalName": "Www.example.org"}),
    );
    zoo.service(
        "address",
        json!({"type": "ExternalName", "externalName": "192.0.2.1"}),
    );
    let pod = |name: &str, addresses: &[&str]| {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"metadata": {"name": name, "namespace": "zoo"}, "status": {"podIPs": addresses}})
    };
    zoo.add(Interest::pod, pod("one", &["10.244.1.1", "fd00:2::1"]));
    zoo
}
