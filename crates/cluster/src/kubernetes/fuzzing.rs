//! Entry points for fuzzing endpoint slices.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::Teller;
use super::index::Index;
use super::known::Indexed;
use super::objects::Interest;
use super::rules::Rules;
use crate::api_server::Reading;
use crate::config::{self, Pods};
use dnsweir_answer::{Question, Resolution};

/// An index with a headless service and the slice in this JSON; `None` if it cannot be parsed.
pub fn index(octets: &[u8]) -> Option<Index> {
    let slice = serde_json::from_slice(octets).ok()?;
    let interest = Interest {
        namespaces: Vec::new(),
        endpoint_pod_names: true,
    };
    let mut index = Index::default();
    index.complete = true;
    let object = |value: Value| serde_json::from_value(value).ok();
    let namespace = object(json!({"metadata": {"name": "zoo"}}))?;
    enter(&mut index, interest.namespace(namespace).ok()?);
    let headless = json!({"metadata": {"name": "web", "namespace": "zoo"}, "spec": {"clusterIP": "None"}});
    let service = serde_json::from_value(headless).ok()?;
    enter(&mut index, interest.service(service).ok()?);
    enter(&mut index, interest.slice(slice).ok()?);
    Some(index)
}

fn enter<T: Indexed<Index>>(index: &mut Index, reading: Reading<T>) {
    if let Reading::Present(object) = reading {
        Arc::new(object).enter(index);
    }
}

/// Answers a question from an index.
pub fn answer(index: &Index, question: &Question<'_>) -> Resolution {
    let rules = Rules::new(&config::Kubernetes {
        domain: "cluster.local.".into(),
        pods: Pods::Disabled,
        namespaces: vec![],
        namespace_labels: None,
        labels: None,
        endpoint_pod_names: true,
        ignore_empty_services: false,
        ttl: Duration::from_secs(5),
        multicluster: vec![],
        external: None,
        autopath: None,
        fallthrough: vec![],
        kubeconfig: None,
        wait: Duration::ZERO,
        memory: 1 << 20,
        transfer: None,
    });
    let teller = Teller {
        index,
        rules: &rules,
        hosts: &[],
    };
    teller.answer(question)
}
